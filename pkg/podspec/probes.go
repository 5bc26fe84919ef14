package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
)

func validateProbes(c *corev1.Container, path *field.Path) field.ErrorList {
	errs := validateProbe(c.LivenessProbe, true, path.Child("livenessProbe"))
	if p := c.ReadinessProbe; p != nil && p.TerminationGracePeriodSeconds != nil {
		errs = append(errs, field.Invalid(path.Child("readinessProbe", "terminationGracePeriodSeconds"),
			*p.TerminationGracePeriodSeconds, "must not be set for readinessProbes"))
	}
	errs = append(errs, validateProbe(c.ReadinessProbe, false, path.Child("readinessProbe"))...)
	return append(errs, validateProbe(c.StartupProbe, true, path.Child("startupProbe"))...)
}

// validateProbe validates a probe; once requires a success threshold of 1.
func validateProbe(p *corev1.Probe, once bool, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := validateHandler(handler{p.Exec, p.HTTPGet, p.TCPSocket, p.GRPC, nil, nil}, path)
	for _, n := range []struct {
		value int32
		name  string
	}{
		{p.InitialDelaySeconds, "initialDelaySeconds"},
		{p.TimeoutSeconds, "timeoutSeconds"},
		{p.PeriodSeconds, "periodSeconds"},
		{p.SuccessThreshold, "successThreshold"},
		{p.FailureThreshold, "failureThreshold"},
	} {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(n.value), path.Child(n.name))...)
	}
	if s := p.TerminationGracePeriodSeconds; s != nil && *s <= 0 {
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *s, "must be greater than 0"))
	}
	if once && p.SuccessThreshold != 1 {
		errs = append(errs, field.Invalid(path.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	return errs
}

// validateLifecycle validates the lifecycle hooks and the stop signal of a container of
// the pod.
func validateLifecycle(l *corev1.Lifecycle, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if l == nil {
		return nil
	}
	grace := spec.TerminationGracePeriodSeconds
	errs := validateStopSignal(l.StopSignal, spec.OS, path.Child("stopSignal"))
	if h := l.PostStart; h != nil {
		errs = append(errs, validateHandler(handler{h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep, grace}, path.Child("postStart"))...)
	}
	if h := l.PreStop; h != nil {
		errs = append(errs, validateHandler(handler{h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep, grace}, path.Child("preStop"))...)
	}
	return errs
}

// handler is the action of a probe or a lifecycle hook: exactly one field except
// grace is set.
type handler struct {
	exec  *corev1.ExecAction
	http  *corev1.HTTPGetAction
	tcp   *corev1.TCPSocketAction
	grpc  *corev1.GRPCAction
	sleep *corev1.SleepAction
	grace *int64 // maximum of sleep; nil if the pod has no grace period, which is reported elsewhere
}

func validateHandler(h handler, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	handlers := 0
	one := func(name string, check func(path *field.Path) field.ErrorList) {
		path := path.Child(name)
		if handlers++; handlers > 1 {
			errs = append(errs, field.Forbidden(path, "may not specify more than 1 handler type"))
			return
		}
		errs = append(errs, check(path)...)
	}
	if h.exec != nil {
		one("exec", func(path *field.Path) field.ErrorList {
			if len(h.exec.Command) == 0 {
				return field.ErrorList{field.Required(path.Child("command"), "")}
			}
			return nil
		})
	}
	if h.http != nil {
		one("httpGet", func(path *field.Path) field.ErrorList { return validateHTTPGet(h.http, path) })
	}
	if h.tcp != nil {
		one("tcpSocket", func(path *field.Path) field.ErrorList { return validatePort(h.tcp.Port, path.Child("port")) })
	}
	if h.grpc != nil {
		one("grpc", func(path *field.Path) field.ErrorList {
			return fieldcheck.Invalid(validation.IsValidPortNum(int(h.grpc.Port)), path.Child("port"), h.grpc.Port)
		})
	}
	if h.sleep != nil {
		one("sleep", func(path *field.Path) field.ErrorList {
			return validateSleep(h.sleep.Seconds, h.grace, path)
		})
	}
	if handlers == 0 {
		errs = append(errs, field.Required(path, "must specify a handler type"))
	}
	return errs
}

func validateSleep(seconds int64, grace *int64, path *field.Path) field.ErrorList {
	if grace == nil || seconds >= 0 && seconds <= *grace {
		return nil
	}
	return field.ErrorList{field.Invalid(path, seconds, fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace))}
}

func validateHTTPGet(h *corev1.HTTPGetAction, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if h.Path == "" {
		errs = append(errs, field.Required(path.Child("path"), ""))
	}
	errs = append(errs, validatePort(h.Port, path.Child("port"))...)
	if h.Scheme != corev1.URISchemeHTTP && h.Scheme != corev1.URISchemeHTTPS {
		errs = append(errs, field.NotSupported(path.Child("scheme"), h.Scheme, []corev1.URIScheme{corev1.URISchemeHTTP, corev1.URISchemeHTTPS}))
	}
	for _, header := range h.HTTPHeaders {
		errs = append(errs, fieldcheck.Invalid(validation.IsHTTPHeaderName(header.Name), path.Child("httpHeaders"), header.Name)...)
	}
	return errs
}

func validatePort(port intstr.IntOrString, path *field.Path) field.ErrorList {
	switch port.Type {
	case intstr.Int:
		return fieldcheck.Invalid(validation.IsValidPortNum(port.IntValue()), path, port.IntValue())
	case intstr.String:
		return fieldcheck.Invalid(validation.IsValidPortName(port.StrVal), path, port.StrVal)
	}
	return field.ErrorList{field.InternalError(path, nil)}
}
