package pods

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/conditions"
	"podium/pkg/kubelet/podspec"
)

// The reasons of pod conditions; clients match them.
const (
	reasonPodCompleted       = "PodCompleted"
	reasonPodFailed          = "PodFailed"
	reasonNotReady           = "ContainersNotReady"
	reasonNotInitialized     = "ContainersNotInitialized"
	reasonReadinessGates     = "ReadinessGatesNotReady"
	reasonUnknownContainers  = "UnknownContainerStatuses"
	conditionTransitionGrain = time.Second
)

// ownedConditions are the conditions that the kubelet owns; it keeps all others.
var ownedConditions = []corev1.PodConditionType{
	corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled,
	corev1.PodResizePending, corev1.PodResizeInProgress,
}

// setConditions sets the kubelet's conditions in the status.
func setConditions(v *view, s *corev1.PodStatus) {
	box := v.observed.current()
	sandboxed := !v.ended && box != nil && box.ready && (v.pod.Spec.HostNetwork || len(box.ips) > 0)
	containers := containersReady(v.pod, s)
	for _, t := range []corev1.PodConditionType{corev1.PodResizePending, corev1.PodResizeInProgress} {
		if conditions.Find(v.resizing, t) == nil {
			s.Conditions = slices.DeleteFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == t })
		}
	}
	for _, c := range slices.Concat([]corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: truth(sandboxed)},
		initialized(s.Phase, v.pod.Spec.InitContainers, s.InitContainerStatuses, v.initialized),
		podReady(v.pod, s, containers),
		containers,
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	}, v.resizing) {
		c.ObservedGeneration = v.pod.Generation
		setCondition(s, c, v.now)
	}
}

// setCondition sets a condition as of now; it keeps the probe time of the old one.
func setCondition(s *corev1.PodStatus, c corev1.PodCondition, now time.Time) {
	c.LastTransitionTime = metav1.NewTime(now.Truncate(conditionTransitionGrain))
	if has := conditions.Find(s.Conditions, c.Type); has != nil {
		c.LastProbeTime = has.LastProbeTime
	}
	s.Conditions = conditions.Set(s.Conditions, c)
}

func truth(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// initialized returns the Initialized condition. done means that all init containers
// are done although their statuses may not show it.
func initialized(p corev1.PodPhase, specs []corev1.Container, statuses []corev1.ContainerStatus, done bool) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	if p == corev1.PodSucceeded {
		c.Reason = reasonPodCompleted
		return c
	}
	var incomplete []string
	for i := range specs {
		if i >= len(statuses) || !initDone(&specs[i], &statuses[i]) {
			incomplete = append(incomplete, specs[i].Name)
		}
	}
	if len(incomplete) > 0 && !done {
		c.Status, c.Reason = corev1.ConditionFalse, reasonNotInitialized
		c.Message = fmt.Sprintf("containers with incomplete status: %s", incomplete)
	}
	return c
}

// initDone reports whether an init container lets the next one start: it has
// succeeded, or it is a sidecar that has started.
func initDone(spec *corev1.Container, s *corev1.ContainerStatus) bool {
	if podspec.Sidecar(spec) {
		return isTrue(s.Started)
	}
	return s.Ready
}

// containersReady returns the ContainersReady condition: of sidecars and app
// containers.
func containersReady(pod *corev1.Pod, s *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse}
	switch s.Phase {
	case corev1.PodSucceeded:
		c.Reason = reasonPodCompleted
		return c
	case corev1.PodFailed:
		c.Reason = reasonPodFailed
		return c
	}
	ready := map[string]bool{}
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range list {
			ready[list[i].Name] = list[i].Ready
		}
	}
	var unknown, unready []string
	for spec := range podspec.Main(pod) {
		switch is, known := ready[spec.Name]; {
		case !known:
			unknown = append(unknown, spec.Name)
		case !is:
			unready = append(unready, spec.Name)
		}
	}
	switch {
	case len(unknown) > 0:
		c.Reason, c.Message = reasonUnknownContainers, fmt.Sprintf("containers with unknown status: %s", unknown)
	case len(unready) > 0:
		c.Reason, c.Message = reasonNotReady, fmt.Sprintf("containers with unready status: %s", unready)
	default:
		c.Status = corev1.ConditionTrue
	}
	return c
}

// podReady returns the Ready condition: ContainersReady and the readiness gates.
func podReady(pod *corev1.Pod, s *corev1.PodStatus, containers corev1.PodCondition) corev1.PodCondition {
	c := containers
	c.Type = corev1.PodReady
	if c.Status != corev1.ConditionTrue {
		return c
	}
	var messages []string
	for _, gate := range pod.Spec.ReadinessGates {
		switch has := conditions.Find(s.Conditions, gate.ConditionType); {
		case has == nil:
			messages = append(messages, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case has.Status != corev1.ConditionTrue:
			messages = append(messages, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, has.Status))
		}
	}
	if len(messages) > 0 {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, reasonReadinessGates, messages[0]
		for _, m := range messages[1:] {
			c.Message += ", " + m
		}
	}
	return c
}
