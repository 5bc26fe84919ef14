package pods

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// ours are the conditions the kubelet writes; all others are somebody else's.
var ours = []corev1.PodConditionType{
	corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled,
}

// setConditions writes the kubelet's conditions into the status.
func setConditions(v *view, s *corev1.PodStatus) {
	box := v.observed.current()
	sandboxed := !v.ended && box != nil && box.ready && (v.pod.Spec.HostNetwork || len(box.ips) > 0)
	containers := containersReady(s.Phase, v.pod.Spec.Containers, s.ContainerStatuses)
	for _, c := range []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: truth(sandboxed)},
		initialized(s.Phase, v.pod.Spec.InitContainers, s.InitContainerStatuses, v.initialized),
		podReady(v.pod, s, containers),
		containers,
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	} {
		c.ObservedGeneration = v.pod.Generation
		setCondition(s, c, v.now)
	}
}

// setCondition keeps the time of the last transition, not of the last look.
func setCondition(s *corev1.PodStatus, c corev1.PodCondition, now time.Time) {
	c.LastTransitionTime = metav1.NewTime(now.Truncate(conditionTransitionGrain))
	for i := range s.Conditions {
		if s.Conditions[i].Type != c.Type {
			continue
		}
		if s.Conditions[i].Status == c.Status {
			c.LastTransitionTime = s.Conditions[i].LastTransitionTime
		}
		c.LastProbeTime = s.Conditions[i].LastProbeTime
		s.Conditions[i] = c
		return
	}
	s.Conditions = append(s.Conditions, c)
}

func truth(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

func initialized(p corev1.PodPhase, specs []corev1.Container, statuses []corev1.ContainerStatus, done bool) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	if p == corev1.PodSucceeded {
		c.Reason = reasonPodCompleted
		return c
	}
	var incomplete []string
	for i := range specs {
		if i >= len(statuses) || !statuses[i].Ready {
			incomplete = append(incomplete, specs[i].Name)
		}
	}
	if len(incomplete) > 0 && !done {
		c.Status, c.Reason = corev1.ConditionFalse, reasonNotInitialized
		c.Message = fmt.Sprintf("containers with incomplete status: %s", incomplete)
	}
	return c
}

func containersReady(p corev1.PodPhase, specs []corev1.Container, statuses []corev1.ContainerStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse}
	switch p {
	case corev1.PodSucceeded:
		c.Reason = reasonPodCompleted
		return c
	case corev1.PodFailed:
		c.Reason = reasonPodFailed
		return c
	}
	ready := map[string]bool{}
	for i := range statuses {
		ready[statuses[i].Name] = statuses[i].Ready
	}
	var unknown, unready []string
	for i := range specs {
		name := specs[i].Name
		switch is, known := ready[name]; {
		case !known:
			unknown = append(unknown, name)
		case !is:
			unready = append(unready, name)
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

// podReady is ContainersReady and the readiness gates.
func podReady(pod *corev1.Pod, s *corev1.PodStatus, containers corev1.PodCondition) corev1.PodCondition {
	c := containers
	c.Type = corev1.PodReady
	if c.Status != corev1.ConditionTrue {
		return c
	}
	var messages []string
	for _, gate := range pod.Spec.ReadinessGates {
		switch has := condition(s, gate.ConditionType); {
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

func condition(s *corev1.PodStatus, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}
