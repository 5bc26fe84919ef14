package pods

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/podspec"
	"podium/pkg/kubelet/resources"
)

// The waiting reasons of containers; clients match them.
const (
	reasonContainerCreating = "ContainerCreating"
	reasonPodInitializing   = "PodInitializing"
	reasonCrashLoop         = "CrashLoopBackOff"
	reasonStatusUnknown     = "ContainerStatusUnknown"
	exitCodeUnknown         = 137
)

// verdict is a decision outside of the containers that ends the pod: it was
// rejected, exceeded its deadline or was evicted.
type verdict struct {
	phase           corev1.PodPhase
	reason, message string
	refused         bool                 // it never ran here: its containers have no status
	grace           *time.Duration       // the most that its containers get to stop; nil: what the pod gives them
	condition       *corev1.PodCondition // is added to the status; may be nil
}

// view is the input of podStatus.
type view struct {
	pod         *corev1.Pod // as the API has it
	observed    observed
	waiting     map[string]corev1.ContainerStateWaiting // why a container does not run, by name
	initialized bool
	ready       func(containerID string) bool
	started     func(containerID string) bool
	resources   func(*corev1.Container, *container) (granted corev1.ResourceList, has *corev1.ResourceRequirements)
	resizing    []corev1.PodCondition // of a resize that has not been completed
	devices     func(*corev1.Container) []corev1.ResourceStatus
	hostIPs     []string
	runtime     string   // the scheme of container ids
	ended       bool     // no container is running or will run again
	verdict     *verdict // nil: the containers determine the phase
	now         time.Time
}

// podStatus computes the pod's status. Fields of other clients (other conditions,
// nominatedNodeName) stay as in v.pod. It does no I/O.
func podStatus(v *view) corev1.PodStatus {
	old := &v.pod.Status
	s := *old.DeepCopy()
	s.ObservedGeneration = v.pod.Generation
	s.Message, s.Reason = "", ""
	if s.QOSClass == "" {
		s.QOSClass = resources.QOS(v.pod)
	}
	if v.verdict != nil && v.verdict.refused {
		s.Phase, s.Reason, s.Message = v.verdict.phase, v.verdict.reason, v.verdict.message
		return s
	}
	if s.StartTime == nil {
		s.StartTime = &metav1.Time{Time: v.now.Truncate(time.Second)}
	}
	s.InitContainerStatuses = v.containerStatuses(v.pod.Spec.InitContainers, old.InitContainerStatuses, true)
	s.ContainerStatuses = v.containerStatuses(v.pod.Spec.Containers, old.ContainerStatuses, false)
	s.EphemeralContainerStatuses = v.ephemeralStatuses(old.EphemeralContainerStatuses)
	slices.SortFunc(s.ContainerStatuses, func(a, b corev1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) })
	v.addresses(&s)
	v.podResources(&s)
	switch {
	case finalPhase(old.Phase):
		s.Phase, s.Reason, s.Message = old.Phase, old.Reason, old.Message
	case v.verdict != nil:
		v.judged(&s)
		return s
	default:
		s.Phase = phase(v.pod, s.InitContainerStatuses, s.ContainerStatuses, v.ended)
		if finalPhase(s.Phase) && !v.ended {
			s.Phase = old.Phase // containers with policies of their own start again; sidecars run until the pod is terminated
		}
	}
	setConditions(v, &s)
	return s
}

// judged sets the phase and the conditions of a pod that is ended from outside. It is no
// longer ready, but as upstream it gets its final phase, with what explains it, only when
// nothing of it runs any more: then others delete it at once, or replace it.
func (v *view) judged(s *corev1.PodStatus) {
	before := s.Phase
	s.Phase, s.Reason, s.Message = v.verdict.phase, v.verdict.reason, v.verdict.message
	setConditions(v, s)
	switch {
	case !v.ended:
		s.Phase, s.Reason, s.Message = before, "", ""
	case v.verdict.condition != nil:
		setCondition(s, *v.verdict.condition, v.now)
	}
}

// podResources sets what the pod itself has, once its cgroup exists. Such pods cannot be
// resized.
func (v *view) podResources(s *corev1.PodStatus) {
	if r := v.pod.Spec.Resources; r != nil && v.observed.current() != nil {
		s.AllocatedResources = r.Requests.DeepCopy()
		s.Resources = &corev1.ResourceRequirements{Requests: r.Requests.DeepCopy(), Limits: r.Limits.DeepCopy()}
	}
}

func finalPhase(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

// addresses sets the IPs of the host and of the pod. An ended pod keeps its last IPs.
func (v *view) addresses(s *corev1.PodStatus) {
	s.HostIP, s.HostIPs = "", nil
	for _, ip := range v.hostIPs {
		s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: ip})
	}
	if len(v.hostIPs) > 0 {
		s.HostIP = v.hostIPs[0]
	}
	var ips []string
	switch box := v.observed.current(); {
	case v.pod.Spec.HostNetwork:
		ips = v.hostIPs
	case box != nil && box.ready:
		ips = box.ips
	}
	if len(ips) == 0 && (v.ended || finalPhase(s.Phase)) {
		return // keep the last addresses
	}
	s.PodIP, s.PodIPs = "", nil
	for _, ip := range ips {
		s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(ips) > 0 {
		s.PodIP = ips[0]
	}
}

func (v *view) containerStatuses(specs []corev1.Container, old []corev1.ContainerStatus, init bool) []corev1.ContainerStatus {
	out := make([]corev1.ContainerStatus, 0, len(specs))
	for i := range specs {
		var before *corev1.ContainerStatus
		for j := range old {
			if old[j].Name == specs[i].Name {
				before = &old[j]
			}
		}
		out = append(out, v.containerStatus(&specs[i], before, init && !podspec.Sidecar(&specs[i])))
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// ephemeralStatuses returns the statuses of the ephemeral containers. They have no
// readiness.
func (v *view) ephemeralStatuses(old []corev1.ContainerStatus) []corev1.ContainerStatus {
	var specs []corev1.Container
	for i := range v.pod.Spec.EphemeralContainers {
		specs = append(specs, corev1.Container(v.pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	out := v.containerStatuses(specs, old, true)
	for i := range out {
		out[i].Ready, out[i].Started = false, nil
		if v.observed.latest(out[i].Name) != nil || !knownEphemeral(v.pod, out[i].Name) {
			continue
		}
		// The container is lost, and not started again.
		out[i] = *old[slices.IndexFunc(old, func(s corev1.ContainerStatus) bool { return s.Name == out[i].Name })].DeepCopy()
		if out[i].State.Terminated == nil {
			out[i].State = corev1.ContainerState{Terminated: lost("The container could not be located when the pod was deleted.  The container used to be Running")}
		}
	}
	return out
}

// containerStatus returns the status of one container. old is its status in the API;
// nil if there is none. init means that it runs to completion.
func (v *view) containerStatus(spec *corev1.Container, old *corev1.ContainerStatus, init bool) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: spec.Name, Image: spec.Image, Started: new(bool)}
	if s.AllocatedResourcesStatus = v.devices(spec); old != nil && v.ended {
		s.AllocatedResourcesStatus = old.AllocatedResourcesStatus // they are free again
	}
	c := v.observed.latest(spec.Name)
	if c == nil {
		v.absent(spec, old, init, &s)
		return s
	}
	s.RestartCount = c.attempt
	s.ContainerID = v.runtime + "://" + c.id
	s.Image, s.ImageID = c.image, c.imageRef
	s.AllocatedResources, s.Resources = v.resources(spec, c)
	s.User, s.VolumeMounts, s.StopSignal = containerUser(c.user), mountStatuses(spec.VolumeMounts, c), c.stopSignal
	if p := v.observed.previous(c); p != nil {
		s.LastTerminationState.Terminated = v.terminated(p)
	} else if old != nil && old.RestartCount == c.attempt {
		s.LastTerminationState = old.LastTerminationState
	}
	switch c.state {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.started)}
		if !init {
			*s.Started = v.started(c.id)
			s.Ready = *s.Started && v.ready(c.id)
		} else {
			*s.Started = true
		}
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		s.State.Terminated = v.terminated(c)
		s.Ready = init && c.exitCode == 0
		if why, ok := v.waiting[spec.Name]; ok && !v.ended {
			s.LastTerminationState, s.State = s.State, corev1.ContainerState{Waiting: &why}
			s.Ready = false
		}
	default:
		why, ok := v.waiting[spec.Name]
		if !ok {
			why.Reason = reasonContainerCreating
		}
		s.State.Waiting = &why
		s.ContainerID = ""
	}
	return s
}

// absent sets the status of a container that the runtime does not have or no longer
// has.
func (v *view) absent(spec *corev1.Container, old *corev1.ContainerStatus, init bool, s *corev1.ContainerStatus) {
	had := old != nil && old.ContainerID != ""
	if had {
		s.RestartCount, s.ContainerID, s.Image, s.ImageID = old.RestartCount, old.ContainerID, old.Image, old.ImageID
		s.LastTerminationState = old.LastTerminationState
		s.Resources, s.AllocatedResources, s.User = old.Resources, old.AllocatedResources, old.User
		s.VolumeMounts, s.StopSignal = old.VolumeMounts, old.StopSignal
	}
	if had && old.State.Terminated != nil && (v.ended || init && v.initialized) {
		s.State, s.Ready = old.State, init && old.State.Terminated.ExitCode == 0
		return
	}
	if v.ended && (had || v.initialized) {
		s.State.Terminated = lost("The container could not be located when the pod was terminated")
		return
	}
	if had && old.State.Running != nil {
		s.LastTerminationState.Terminated = lost("The container could not be located when the pod was deleted.  The container used to be Running")
		s.ContainerID = ""
	} else if had && old.State.Terminated != nil {
		s.LastTerminationState = old.State
		s.ContainerID = ""
	}
	why, ok := v.waiting[spec.Name]
	if !ok {
		why.Reason = reasonContainerCreating
		if !v.initialized && len(v.pod.Spec.InitContainers) > 0 && !v.turnOf(spec.Name) {
			why.Reason = reasonPodInitializing
		}
	}
	s.State.Waiting = &why
}

// turnOf reports whether an ephemeral container, or an init container after those that
// have succeeded or are sidecars that have started, may start.
func (v *view) turnOf(name string) bool {
	if podspec.Ephemeral(v.pod, name) != nil {
		return true
	}
	for i := range v.pod.Spec.InitContainers {
		spec := &v.pod.Spec.InitContainers[i]
		if spec.Name == name {
			return true
		}
		c := v.observed.latest(spec.Name)
		switch {
		case c == nil:
			return false
		case podspec.Sidecar(spec) && !(c.running() && v.started(c.id)):
			return false
		case !podspec.Sidecar(spec) && !(c.exited() && c.exitCode == 0):
			return false
		}
	}
	return false
}

func lost(message string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{Reason: reasonStatusUnknown, Message: message, ExitCode: exitCodeUnknown}
}

func (v *view) terminated(c *container) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{
		ExitCode: c.exitCode, Reason: c.reason, Message: c.message,
		StartedAt: metav1.NewTime(c.started), FinishedAt: metav1.NewTime(c.finished),
		ContainerID: v.runtime + "://" + c.id,
	}
	if c.started.IsZero() { // it was never started: upstream reports the epoch
		t.StartedAt = metav1.NewTime(time.Unix(0, 0))
	}
	if c.terminationMessage != "" {
		t.Message = strings.TrimPrefix(c.message+": ", ": ") + c.terminationMessage
		if c.message == "" {
			t.Message = c.terminationMessage
		}
	}
	if t.Reason == "" {
		t.Reason = cri.ReasonCompleted
		if c.exitCode != 0 {
			t.Reason = cri.ReasonError
		}
	}
	return t
}

// crashMessage returns the waiting message of a container in back-off.
func crashMessage(pod *corev1.Pod, container string, delay time.Duration) string {
	return fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", delay, container, describe(pod))
}

// describe returns the pod's name as in upstream's messages.
func describe(pod *corev1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}

func containerUser(u *runtimeapi.ContainerUser) *corev1.ContainerUser {
	l := u.GetLinux()
	if l == nil {
		return nil
	}
	return &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: l.Uid, GID: l.Gid, SupplementalGroups: l.SupplementalGroups}}
}
