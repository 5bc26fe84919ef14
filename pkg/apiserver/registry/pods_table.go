package registry

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/podspec"
)

func podColumns() []metav1.TableColumnDefinition {
	spec, status := corev1.PodSpec{}.SwaggerDoc(), corev1.PodStatus{}.SwaggerDoc()
	return append(columns(
		column("Ready", "The aggregate readiness state of this pod for accepting traffic."),
		column("Status", "The aggregate status of the containers in this pod."),
		column("Restarts", "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted."),
		ageColumn(),
	), wide(
		column("IP", status["podIP"]),
		column("Node", spec["nodeName"]),
		column("Nominated Node", status["nominatedNodeName"]),
		column("Readiness Gates", spec["readinessGates"]),
	)...)
}

func podRow(pod *corev1.Pod, now time.Time) []any {
	s := summarize(pod)
	restarts := strconv.Itoa(s.restarts)
	if s.restarts != 0 && !s.lastRestart.IsZero() {
		restarts = fmt.Sprintf("%d (%s ago)", s.restarts, age(s.lastRestart, now))
	}
	ip := pod.Status.PodIP
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	return []any{
		pod.Name,
		fmt.Sprintf("%d/%d", s.ready, s.total),
		s.reason,
		restarts,
		age(pod.CreationTimestamp, now),
		orNone(ip),
		orNone(pod.Spec.NodeName),
		orNone(pod.Status.NominatedNodeName),
		readinessGates(pod),
	}
}

func readinessGates(pod *corev1.Pod) string {
	if len(pod.Spec.ReadinessGates) == 0 {
		return "<none>"
	}
	open := 0
	for _, gate := range pod.Spec.ReadinessGates {
		if conditionTrue(&pod.Status, gate.ConditionType) {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(pod.Spec.ReadinessGates))
}

func conditionTrue(status *corev1.PodStatus, t corev1.PodConditionType) bool {
	for i := range status.Conditions {
		if status.Conditions[i].Type == t {
			return status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}

// summary is the status of a pod in one line, as `kubectl get` prints it.
type summary struct {
	total, ready, restarts int
	lastRestart            metav1.Time
	reason                 string
	sidecars               map[string]bool // by name
}

func summarize(pod *corev1.Pod) summary {
	s := summary{total: len(pod.Spec.Containers), reason: string(pod.Status.Phase), sidecars: map[string]bool{}}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; podspec.Sidecar(c) {
			s.sidecars[c.Name] = true
			s.total++
		}
	}
	if pod.Status.Reason != "" {
		s.reason = pod.Status.Reason
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.reason = corev1.PodReasonSchedulingGated
		}
	}
	if initializing := s.initContainers(pod); !initializing || conditionTrue(&pod.Status, corev1.PodInitialized) {
		s.restarts, s.lastRestart = 0, metav1.Time{}
		for i := range pod.Status.InitContainerStatuses {
			if c := &pod.Status.InitContainerStatuses[i]; s.sidecars[c.Name] {
				s.count(c)
			}
		}
		s.containers(pod)
	}
	ended := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
	switch {
	case pod.DeletionTimestamp != nil && pod.Status.Reason == "NodeLost":
		s.reason = "Unknown"
	case pod.DeletionTimestamp != nil && !ended:
		s.reason = "Terminating"
	}
	return s
}

// initContainers sets the reason from the first init container that has not
// succeeded and is not a sidecar that has started, and reports whether there is one.
func (s *summary) initContainers(pod *corev1.Pod) (initializing bool) {
	for i := range pod.Status.InitContainerStatuses {
		c := &pod.Status.InitContainerStatuses[i]
		s.count(c)
		ended, waiting := c.State.Terminated, c.State.Waiting
		switch {
		case ended != nil && ended.ExitCode == 0:
			continue
		case s.sidecars[c.Name] && c.Started != nil && *c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case ended != nil:
			s.reason = "Init:" + endReason(ended)
		case waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing":
			s.reason = "Init:" + waiting.Reason
		default:
			s.reason = fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers))
		}
		return true
	}
	return false
}

// containers counts ready containers and sets the reason; that of the first
// container takes precedence.
func (s *summary) containers(pod *corev1.Pod) {
	running := false
	for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &pod.Status.ContainerStatuses[i]
		s.count(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.reason = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.reason = endReason(c.State.Terminated)
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.reason == "Completed" && running {
		s.reason = "NotReady"
		if conditionTrue(&pod.Status, corev1.PodReady) {
			s.reason = "Running"
		}
	}
}

func (s *summary) count(c *corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && s.lastRestart.Before(&t.FinishedAt) {
		s.lastRestart = t.FinishedAt
	}
}

func endReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}
