package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
)

// validateContainers validates containers and init containers, whose names must be
// unique together.
func validateContainers(spec *corev1.PodSpec, volumes map[string]*corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := containerCheck{spec: spec, volumes: volumes, names: unique{}}
	for i := range spec.InitContainers {
		at := path.Child("initContainers").Index(i)
		errs = append(errs, check.container(&spec.InitContainers[i], at)...)
		errs = append(errs, validateInit(&spec.InitContainers[i], spec, at)...)
	}
	if len(spec.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("containers"), ""))
	}
	for i := range spec.Containers {
		at := path.Child("containers").Index(i)
		errs = append(errs, check.container(&spec.Containers[i], at)...)
		errs = append(errs, validateRestarts(&spec.Containers[i], at)...)
		errs = append(errs, validateMain(&spec.Containers[i], spec, at)...)
	}
	for i := range spec.EphemeralContainers {
		errs = append(errs, check.ephemeral(&spec.EphemeralContainers[i], path.Child("ephemeralContainers").Index(i))...)
	}
	return append(errs, validateHostPorts(spec.Containers, path.Child("containers"))...)
}

// containerCheck validates containers in the context of their pod.
type containerCheck struct {
	spec    *corev1.PodSpec
	volumes map[string]*corev1.Volume
	names   unique
}

func validatePullPolicy(p corev1.PullPolicy, path *field.Path) field.ErrorList {
	return fieldcheck.OneOf(p, path, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}

func (cc *containerCheck) container(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else {
		errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Label(c.Name), path.Child("name"), c.Name)...)
		errs = append(errs, cc.names.check(c.Name, path.Child("name"))...)
	}
	switch {
	case c.Image == "":
		errs = append(errs, field.Required(path.Child("image"), ""))
	case c.Image != strings.TrimSpace(c.Image):
		errs = append(errs, field.Invalid(path.Child("image"), c.Image, "must not have leading or trailing whitespace"))
	}
	errs = append(errs, fieldcheck.OneOf(c.TerminationMessagePolicy, path.Child("terminationMessagePolicy"),
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, validatePullPolicy(c.ImagePullPolicy, path.Child("imagePullPolicy"))...)
	errs = append(errs, cc.ports(c.Ports, path.Child("ports"))...)
	errs = append(errs, validateEnv(c.Env, path.Child("env"))...)
	errs = append(errs, validateEnvFrom(c.EnvFrom, path.Child("envFrom"))...)
	errs = append(errs, cc.mounts(c, path.Child("volumeMounts"))...)
	errs = append(errs, cc.devices(c, path.Child("volumeDevices"))...)
	errs = append(errs, ValidateResources(&c.Resources, path.Child("resources"))...)
	errs = append(errs, validateSecurity(c.SecurityContext, cc.spec, path.Child("securityContext"))...)
	return append(errs, cc.resizePolicies(c.ResizePolicy, path.Child("resizePolicy"))...)
}

// resizePolicies validates resize policies. As upstream, only the error of a
// duplicate has its index.
func (cc *containerCheck) resizePolicies(policies []corev1.ContainerResizePolicy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := unique{}
	for i, p := range policies {
		errs = append(errs, names.check(string(p.ResourceName), path.Index(i))...)
		errs = append(errs, fieldcheck.OneOf(p.ResourceName, path, corev1.ResourceCPU, corev1.ResourceMemory)...)
		errs = append(errs, fieldcheck.OneOf(p.RestartPolicy, path, corev1.NotRequired, corev1.RestartContainer)...)
		if cc.spec.RestartPolicy == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired {
			errs = append(errs, field.Invalid(path, p.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
		}
	}
	return errs
}

// validateInit validates an init container. Unless it is a sidecar, it runs to
// completion before the others start, and hooks and probes have no meaning for it.
func validateInit(c *corev1.Container, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := validateRestarts(c, path)
	if Sidecar(c) {
		return append(errs, validateMain(c, spec, path)...)
	}
	forbid := func(set bool, name string) {
		if set {
			errs = append(errs, field.Forbidden(path.Child(name), "may not be set for init containers without restartPolicy=Always"))
		}
	}
	forbid(c.Lifecycle != nil, "lifecycle")
	forbid(c.LivenessProbe != nil, "livenessProbe")
	forbid(c.ReadinessProbe != nil, "readinessProbe")
	forbid(c.StartupProbe != nil, "startupProbe")
	return errs
}

// Sidecar reports whether an init container runs until the pod ends.
func Sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func validateMain(c *corev1.Container, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := validateLifecycle(c.Lifecycle, spec, path.Child("lifecycle"))
	return append(errs, validateProbes(c, path)...)
}

func (cc *containerCheck) ports(ports []corev1.ContainerPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := unique{}
	for i := range ports {
		p, at := &ports[i], path.Index(i)
		if p.Name != "" {
			if bad := validation.IsValidPortName(p.Name); len(bad) > 0 {
				errs = append(errs, fieldcheck.Invalid(bad, at.Child("name"), p.Name)...)
			} else {
				errs = append(errs, names.check(p.Name, at.Child("name"))...)
			}
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			errs = append(errs, fieldcheck.Invalid(validation.IsValidPortNum(int(p.ContainerPort)), at.Child("containerPort"), p.ContainerPort)...)
		}
		if p.HostPort != 0 {
			errs = append(errs, fieldcheck.Invalid(validation.IsValidPortNum(int(p.HostPort)), at.Child("hostPort"), p.HostPort)...)
			if cc.spec.HostNetwork && p.HostPort != p.ContainerPort {
				errs = append(errs, field.Invalid(at.Child("containerPort"), p.ContainerPort, "must match `hostPort` when `hostNetwork` is true"))
			}
		}
		if p.HostIP != "" {
			errs = append(errs, validation.IsValidIPForLegacyField(at.Child("hostIP"), p.HostIP, false, nil)...)
		}
		errs = append(errs, fieldcheck.OneOf(p.Protocol, at.Child("protocol"), corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
	}
	return errs
}

// validateHostPorts checks that no two containers use the same port of the node.
func validateHostPorts(containers []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := unique{}
	for i := range containers {
		for j, p := range containers[i].Ports {
			if p.HostPort == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			errs = append(errs, taken.check(key, path.Index(i).Child("ports").Index(j).Child("hostPort"))...)
		}
	}
	return errs
}
