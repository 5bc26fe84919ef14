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

// verdict ends a pod from outside its containers: it was refused, ran too long
// or was evicted.
type verdict struct {
	phase           corev1.PodPhase
	reason, message string
	refused         bool                 // it never ran here: its containers have no status
	evicted         bool                 // its containers get evictionGrace at most
	condition       *corev1.PodCondition // goes into the status; nil: none
}

// view is all that a pod's status is made from.
type view struct {
	pod         *corev1.Pod // as the API has it
	observed    observed
	waiting     map[string]corev1.ContainerStateWaiting // why a container does not run, by name
	initialized bool
	ready       func(containerID string) bool
	started     func(containerID string) bool
	hostIPs     []string
	runtime     string   // the scheme of container ids
	ended       bool     // nothing runs any more, nothing will
	verdict     *verdict // nil: the containers decide
	now         time.Time
}

// podStatus is the pod's status as the kubelet knows it. Fields that belong to
// others (other conditions, nominatedNodeName) are those of the API's pod.
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
	slices.SortFunc(s.ContainerStatuses, func(a, b corev1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) })
	v.addresses(&s)
	switch {
	case finalPhase(old.Phase):
		s.Phase, s.Reason, s.Message = old.Phase, old.Reason, old.Message
	case v.verdict != nil:
		s.Phase, s.Reason, s.Message = v.verdict.phase, v.verdict.reason, v.verdict.message
	default:
		s.Phase = phase(v.pod, s.InitContainerStatuses, s.ContainerStatuses, v.ended)
	}
	setConditions(v, &s)
	if v.verdict != nil && v.verdict.condition != nil {
		setCondition(&s, *v.verdict.condition, v.now)
	}
	return s
}

func finalPhase(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

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
		return // the last ones stay
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
		out = append(out, v.containerStatus(&specs[i], before, init))
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func (v *view) containerStatus(spec *corev1.Container, old *corev1.ContainerStatus, init bool) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: spec.Name, Image: spec.Image, Started: new(bool)}
	c := v.observed.latest(spec.Name)
	if c == nil {
		v.absent(spec, old, init, &s)
		return s
	}
	s.RestartCount = c.attempt
	s.ContainerID = v.runtime + "://" + c.id
	s.Image, s.ImageID = c.image, c.imageRef
	s.AllocatedResources, s.Resources = allocated(spec, c)
	s.User = containerUser(c.user)
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

// absent is the status of a container the runtime does not have (any more).
func (v *view) absent(spec *corev1.Container, old *corev1.ContainerStatus, init bool, s *corev1.ContainerStatus) {
	had := old != nil && old.ContainerID != ""
	if had {
		s.RestartCount, s.ContainerID, s.Image, s.ImageID = old.RestartCount, old.ContainerID, old.Image, old.ImageID
		s.LastTerminationState = old.LastTerminationState
		s.Resources, s.AllocatedResources, s.User = old.Resources, old.AllocatedResources, old.User
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
		if !v.initialized && len(v.pod.Spec.InitContainers) > 0 && !(init && v.turnOf(spec.Name)) {
			why.Reason = reasonPodInitializing
		}
	}
	s.State.Waiting = &why
}

// turnOf says that every init container before this one has succeeded.
func (v *view) turnOf(name string) bool {
	for i := range v.pod.Spec.InitContainers {
		n := v.pod.Spec.InitContainers[i].Name
		if n == name {
			return true
		}
		if c := v.observed.latest(n); c == nil || !c.exited() || c.exitCode != 0 {
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
	if c.started.IsZero() { // it was never started: the wire's zero is the epoch
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

// crashMessage is the waiting message of a container in back-off.
func crashMessage(pod *corev1.Pod, container string, delay time.Duration) string {
	return fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", delay, container, describe(pod))
}

// describe is how upstream writes a pod in messages.
func describe(pod *corev1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}

// allocated is what the container was given, as far as the runtime says it.
func allocated(spec *corev1.Container, c *container) (corev1.ResourceList, *corev1.ResourceRequirements) {
	if len(spec.Resources.Requests) == 0 && len(spec.Resources.Limits) == 0 {
		return nil, &corev1.ResourceRequirements{}
	}
	r := spec.Resources.DeepCopy()
	r.Claims = nil
	if !c.running() {
		return r.Requests.DeepCopy(), r
	}
	return spec.Resources.Requests.DeepCopy(), r
}

func containerUser(u *runtimeapi.ContainerUser) *corev1.ContainerUser {
	l := u.GetLinux()
	if l == nil {
		return nil
	}
	return &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: l.Uid, GID: l.Gid, SupplementalGroups: l.SupplementalGroups}}
}
