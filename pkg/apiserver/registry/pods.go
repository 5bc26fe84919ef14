package registry

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/registry/podspec"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

func pods(k *scheme.Kind, cfg Config) *Kind {
	kind := Of[*corev1.Pod]{
		Default:                  defaultPod,
		Prepare:                  preparePod(cfg.Disabled),
		Validate:                 validatePrivileged(cfg, validatePod, func(p *corev1.Pod) (*corev1.PodSpec, *field.Path) { return &p.Spec, field.NewPath("spec") }),
		Warnings:                 func(new, _ *corev1.Pod) []string { return podspec.Warnings(&new.Spec, field.NewPath("spec")) },
		Columns:                  podColumns(),
		Row:                      podRow,
		Fields:                   podFields,
		Indexed:                  []string{"spec.nodeName"},
		BeforeDelete:             deletePod,
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,
		Subresources: []*Subresource{
			part(k, "status", preparePodStatus, validatePodStatus),
			part(k, "ephemeralcontainers", keepAllButSpec, refuseEphemeral),
			part(k, "resize", keepAllButSpec, refuseResize),
			podBinding(cfg),
			podEviction(cfg),
		},
	}
	for _, s := range []struct {
		name, kind string
		connect    Connect
		methods    []string
	}{
		{"log", "Pod", cfg.Streams.PodLog, []string{"GET"}},
		{"exec", "PodExecOptions", cfg.Streams.PodExec, []string{"GET", "POST"}},
		{"attach", "PodAttachOptions", cfg.Streams.PodAttach, []string{"GET", "POST"}},
		{"portforward", "PodPortForwardOptions", cfg.Streams.PodPortForward, []string{"GET", "POST"}},
		{"proxy", "PodProxyOptions", cfg.Streams.PodProxy, proxyMethods()},
	} {
		kind.Subresources = append(kind.Subresources, stream(s.name, s.kind, s.connect, s.methods)...)
	}
	return kind.Kind(k)
}

// stream is a subresource that is a connection; none where nobody answers it.
func stream(name, kind string, connect Connect, methods []string) []*Subresource {
	if connect == nil {
		return nil
	}
	return []*Subresource{{Name: name, GVK: corev1.SchemeGroupVersion.WithKind(kind), Connect: connect, Methods: methods}}
}

func proxyMethods() []string {
	return []string{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}
}

func defaultPod(pod *corev1.Pod) {
	podspec.DefaultPod(pod)
	// One address is said in two places; a writer may know only one of them.
	s := &pod.Status
	if s.PodIP != "" && len(s.PodIPs) == 0 {
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	} else if s.PodIP == "" && len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
	if s.HostIP != "" && len(s.HostIPs) == 0 {
		s.HostIPs = []corev1.HostIP{{IP: s.HostIP}}
	}
}

func preparePod(off PluginSet) func(ctx context.Context, b Backend, new, old *corev1.Pod) error {
	return func(ctx context.Context, b Backend, new, old *corev1.Pod) error {
		if !off.Has(DefaultTolerationSeconds) {
			addNodeTolerations(&new.Spec)
		}
		if old != nil {
			new.Status = old.Status
			if new.Spec.Priority == nil {
				new.Spec.Priority = old.Spec.Priority
			}
			new.Generation = nextGeneration(&old.ObjectMeta, apiequality.Semantic.DeepEqual(new.Spec, old.Spec))
			return nil
		}
		for _, text := range podspec.AppArmorFields(new.Annotations, &new.Spec) {
			request.Warn(ctx, text)
		}
		new.Generation = 1
		new.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: podspec.QOSClass(&new.Spec)}
		if !off.Has(Priority) {
			if err := setPriority(new); err != nil {
				return err
			}
		}
		if class := new.Spec.RuntimeClassName; class != nil {
			return forbidden(new, fmt.Errorf("pod rejected: RuntimeClass %q not found", *class))
		}
		if off.Has(ServiceAccount) {
			return nil
		}
		return admitAccount(ctx, b, new)
	}
}

// nextGeneration counts the changes of a spec.
func nextGeneration(old *metav1.ObjectMeta, same bool) int64 {
	if same {
		return old.Generation
	}
	return old.Generation + 1
}

// setPriority resolves the pod's class. No class that exists keeps its pods
// from preempting others.
func setPriority(pod *corev1.Pod) error {
	priority, ok := podspec.Priority(pod.Spec.PriorityClassName)
	if !ok {
		return forbidden(pod, fmt.Errorf("no PriorityClass with name %s was found", pod.Spec.PriorityClassName))
	}
	if p := pod.Spec.Priority; p != nil && *p != priority {
		return forbidden(pod, fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *p, priority))
	}
	if p := pod.Spec.PreemptionPolicy; p != nil && *p != corev1.PreemptLowerPriority {
		return forbidden(pod, fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *p, corev1.PreemptLowerPriority))
	}
	pod.Spec.Priority = &priority
	return nil
}

// How long a pod stays on a node that is not ready or not heard of, if the
// pod does not say.
const nodeFailureSeconds = 300

func addNodeTolerations(spec *corev1.PodSpec) {
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if toleratesEviction(spec.Tolerations, key) {
			continue
		}
		seconds := int64(nodeFailureSeconds)
		spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds})
	}
}

func toleratesEviction(tolerations []corev1.Toleration, key string) bool {
	for _, t := range tolerations {
		if (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return true
		}
	}
	return false
}

func validatePod(new, old *corev1.Pod) field.ErrorList {
	path, metadata := field.NewPath("spec"), field.NewPath("metadata")
	if old == nil {
		errs := podspec.ValidateAppArmorAnnotations(new.Annotations, &new.Spec, metadata, path)
		return append(errs, podspec.Validate(&new.Spec, path)...)
	}
	errs := podspec.ValidateAppArmorUpdate(new.Annotations, old.Annotations, metadata.Child("annotations"))
	if apiequality.Semantic.DeepEqual(new.Spec, old.Spec) {
		return errs
	}
	errs = append(errs, podspec.Validate(&new.Spec, path)...)
	return append(errs, podspec.ValidateUpdate(&new.Spec, &old.Spec, path)...)
}

func podFields(pod *corev1.Pod) fields.Set {
	ip := pod.Status.PodIP
	if ip == "" && len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	return fields.Set{
		"spec.nodeName":            pod.Spec.NodeName,
		"spec.restartPolicy":       string(pod.Spec.RestartPolicy),
		"spec.schedulerName":       pod.Spec.SchedulerName,
		"spec.serviceAccountName":  pod.Spec.ServiceAccountName,
		"spec.hostNetwork":         strconv.FormatBool(pod.Spec.HostNetwork),
		"status.phase":             string(pod.Status.Phase),
		"status.podIP":             ip,
		"status.podIPs":            ip,
		"status.nominatedNodeName": pod.Status.NominatedNodeName,
	}
}

// deletePod gives a pod the time it asks for. What no kubelet knows of, or
// what has ended, needs none. A second delete can only shorten the time.
func deletePod(pod *corev1.Pod, opts *metav1.DeleteOptions, now time.Time) (keep bool, err error) {
	if pod.DeletionTimestamp != nil {
		return shortenGrace(pod, opts), nil
	}
	grace := int64(0)
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = *s
	}
	if opts.GracePeriodSeconds != nil {
		grace = *opts.GracePeriodSeconds
	}
	if grace < 0 {
		grace = 1
	}
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		grace = 0
	}
	end := metav1.NewTime(now.Add(time.Duration(grace) * time.Second)).Rfc3339Copy()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &end, &grace
	if pod.Generation > 0 {
		pod.Generation++
	}
	return grace > 0, nil
}

func shortenGrace(pod *corev1.Pod, opts *metav1.DeleteOptions) (keep bool) {
	left := pod.DeletionGracePeriodSeconds
	if left == nil {
		return false
	}
	if opts.GracePeriodSeconds == nil || *opts.GracePeriodSeconds >= *left {
		return *left > 0
	}
	grace := max(*opts.GracePeriodSeconds, 0)
	end := metav1.NewTime(pod.DeletionTimestamp.Add(time.Duration(grace-*left) * time.Second))
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &end, &grace
	return grace > 0
}

func preparePodStatus(new, old *corev1.Pod) {
	new.Spec = old.Spec
	new.Generation = old.Generation
	new.OwnerReferences = old.OwnerReferences
	new.Status.QOSClass = old.Status.QOSClass
}

func validatePodStatus(new, old *corev1.Pod) field.ErrorList {
	path := field.NewPath("status")
	var errs field.ErrorList
	for i, c := range new.Status.Conditions {
		errs = append(errs, validateConditionType(string(c.Type), path.Child("conditions").Index(i).Child("type"))...)
	}
	if n := new.Status.NominatedNodeName; n != "" && n != old.Status.NominatedNodeName {
		for _, m := range apivalidation.NameIsDNSSubdomain(n, false) {
			errs = append(errs, field.Invalid(path.Child("nominatedNodeName"), n, m))
		}
	}
	errs = append(errs, validateContainerStates(new.Status.ContainerStatuses, old.Status.ContainerStatuses, old.Spec.RestartPolicy, path.Child("containerStatuses"))...)
	errs = append(errs, validateContainerStates(new.Status.InitContainerStatuses, old.Status.InitContainerStatuses, old.Spec.RestartPolicy, path.Child("initContainerStatuses"))...)
	return append(errs, validatePodIPs(&new.Status, path.Child("podIPs"))...)
}

// validateContainerStates: what ended for good does not come back.
func validateContainerStates(new, old []corev1.ContainerStatus, policy corev1.RestartPolicy, path *field.Path) field.ErrorList {
	if policy == corev1.RestartPolicyAlways {
		return nil
	}
	var errs field.ErrorList
	for i := range old {
		ended := old[i].State.Terminated
		if ended == nil || ended.ExitCode != 0 && policy == corev1.RestartPolicyOnFailure {
			continue
		}
		for j := range new {
			if new[j].Name == old[i].Name && new[j].State.Terminated == nil {
				errs = append(errs, field.Forbidden(path.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
			}
		}
	}
	return errs
}

// keepAllButSpec is for the parts of a pod that are in its spec.
func keepAllButSpec(new, old *corev1.Pod) {
	new.Status = old.Status
	new.Generation = nextGeneration(&old.ObjectMeta, apiequality.Semantic.DeepEqual(new.Spec, old.Spec))
}

func refuseEphemeral(new, old *corev1.Pod) field.ErrorList {
	if apiequality.Semantic.DeepEqual(new.Spec, old.Spec) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "ephemeralContainers"), podspec.Unsupported)}
}

func refuseResize(new, old *corev1.Pod) field.ErrorList {
	if apiequality.Semantic.DeepEqual(new.Spec, old.Spec) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), "Podium does not resize running containers")}
}

// forbidden is the answer of a rule that concerns more than the pod's fields.
func forbidden(pod *corev1.Pod, err error) error {
	name := pod.Name
	if name == "" {
		name = pod.GenerateName
	}
	return apierrors.NewForbidden(corev1.Resource("pods"), name, err)
}
