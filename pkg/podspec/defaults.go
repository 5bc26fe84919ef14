package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// DefaultScheduler is the scheduler of pods that do not name one.
	DefaultScheduler = "default-scheduler"

	defaultGraceSeconds = 30
	defaultFileMode     = 0o644
	defaultTokenSeconds = 3600
)

// Default sets the defaults of a spec, for pods and for templates. It is
// idempotent.
func Default(spec *corev1.PodSpec) {
	fill(&spec.DNSPolicy, corev1.DNSClusterFirst)
	fill(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	fill(&spec.SchedulerName, DefaultScheduler)
	fillPtr(&spec.TerminationGracePeriodSeconds, defaultGraceSeconds)
	fillPtr(&spec.SecurityContext, corev1.PodSecurityContext{})

	// serviceAccount is the deprecated name of serviceAccountName; both have the
	// same value.
	fill(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName

	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	for i := range spec.InitContainers {
		defaultContainer(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		defaultContainer(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		defaultContainer((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	RoundUp(spec.Overhead)
	if r := spec.Resources; r != nil {
		RoundUp(r.Limits)
		RoundUp(r.Requests)
	}
}

// DefaultPod sets the defaults of a pod, including those that templates do not get.
// It is idempotent.
func DefaultPod(pod *corev1.Pod) {
	Default(&pod.Spec)
	fillPtr(&pod.Spec.EnableServiceLinks, true)
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			requestLimits(&list[i].Resources)
			if pod.Spec.HostNetwork {
				hostPorts(list[i].Ports)
			}
		}
	}
	defaultHugePageLimits(&pod.Spec)
	defaultPodRequests(&pod.Spec)
}

// requestLimits sets missing requests to the limits.
func requestLimits(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; ok {
			continue
		}
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		r.Requests[name] = limit.DeepCopy()
	}
}

// hostPorts sets the host port of each port to its container port, as they are
// equal on the host network.
func hostPorts(ports []corev1.ContainerPort) {
	for i := range ports {
		fill(&ports[i].HostPort, ports[i].ContainerPort)
	}
}

func defaultContainer(c *corev1.Container) {
	fill(&c.ImagePullPolicy, pullPolicy(c.Image))
	fill(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	fill(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		fill(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			fill(&from.FieldRef.APIVersion, "v1")
		}
	}
	RoundUp(c.Resources.Limits)
	RoundUp(c.Resources.Requests)
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(probe)
	}
	if l := c.Lifecycle; l != nil {
		for _, h := range []*corev1.LifecycleHandler{l.PostStart, l.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	fill(&p.TimeoutSeconds, 1)
	fill(&p.PeriodSeconds, 10)
	fill(&p.SuccessThreshold, 1)
	fill(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		fillPtr(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(h *corev1.HTTPGetAction) {
	if h == nil {
		return
	}
	fill(&h.Path, "/")
	fill(&h.Scheme, corev1.URISchemeHTTP)
}

// pullPolicy returns the default pull policy: Always for the tag latest, which may
// be another image each time.
func pullPolicy(image string) corev1.PullPolicy {
	name, digest, _ := strings.Cut(image, "@")
	_, tag, _ := strings.Cut(name[strings.LastIndexByte(name, '/')+1:], ":")
	if tag == "latest" || tag == "" && digest == "" && name != "" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultVolume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	switch {
	case v.HostPath != nil:
		fillPtr(&v.HostPath.Type, corev1.HostPathUnset)
	case v.ISCSI != nil:
		fill(&v.ISCSI.ISCSIInterface, "default")
	case v.Secret != nil:
		fillPtr(&v.Secret.DefaultMode, defaultFileMode)
	case v.ConfigMap != nil:
		fillPtr(&v.ConfigMap.DefaultMode, defaultFileMode)
	case v.DownwardAPI != nil:
		fillPtr(&v.DownwardAPI.DefaultMode, defaultFileMode)
		defaultDownward(v.DownwardAPI.Items)
	case v.Ephemeral != nil:
		if t := v.Ephemeral.VolumeClaimTemplate; t != nil {
			fillPtr(&t.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
		}
	case v.Image != nil:
		fill(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	case v.Projected != nil:
		fillPtr(&v.Projected.DefaultMode, defaultFileMode)
		for i := range v.Projected.Sources {
			source := &v.Projected.Sources[i]
			if source.DownwardAPI != nil {
				defaultDownward(source.DownwardAPI.Items)
			}
			if source.ServiceAccountToken != nil {
				fillPtr(&source.ServiceAccountToken.ExpirationSeconds, defaultTokenSeconds)
			}
		}
	}
}

func defaultDownward(files []corev1.DownwardAPIVolumeFile) {
	for i := range files {
		if files[i].FieldRef != nil {
			fill(&files[i].FieldRef.APIVersion, "v1")
		}
	}
}

// RoundUp rounds quantities up to a thousandth, the finest supported unit.
func RoundUp(list corev1.ResourceList) {
	for name, q := range list {
		if q.RoundUp(resource.Milli) {
			continue // unchanged
		}
		list[name] = q
	}
}

func fill[T comparable](field *T, value T) {
	var unset T
	if *field == unset {
		*field = value
	}
}

func fillPtr[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
