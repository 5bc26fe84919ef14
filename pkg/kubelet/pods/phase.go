package pods

import (
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/podspec"
)

// phase computes the pod's phase from the container statuses. ended means that no
// container is running or will run again.
// https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase
func phase(pod *corev1.Pod, inits, apps []corev1.ContainerStatus, ended bool) corev1.PodPhase {
	never := pod.Spec.RestartPolicy == corev1.RestartPolicyNever
	pendingInit := 0
	for i := range inits {
		s := &inits[i]
		if i < len(pod.Spec.InitContainers) && podspec.Sidecar(&pod.Spec.InitContainers[i]) {
			if !isTrue(s.Started) && !ended {
				pendingInit++
			}
			continue
		}
		done := s.State.Terminated
		if done == nil && s.State.Waiting != nil {
			done = s.LastTerminationState.Terminated
		}
		switch {
		case s.State.Terminated != nil && s.State.Terminated.ExitCode == 0:
		case done != nil && done.ExitCode != 0 && never:
			return corev1.PodFailed
		default:
			pendingInit++
		}
	}
	var waiting, running, stopped, succeeded int
	for i := range apps {
		s := &apps[i]
		switch {
		case s.State.Running != nil:
			running++
		case s.State.Terminated != nil:
			stopped++
			if s.State.Terminated.ExitCode == 0 {
				succeeded++
			}
		case s.LastTerminationState.Terminated != nil:
			stopped++
		default:
			waiting++
		}
	}
	switch {
	case ended && pendingInit > 0:
		return corev1.PodFailed
	case pendingInit > 0 && running == 0, waiting > 0 && !ended:
		return corev1.PodPending
	case running > 0:
		return corev1.PodRunning
	case ended || never:
		if stopped > 0 && stopped == succeeded {
			return corev1.PodSucceeded
		}
		return corev1.PodFailed
	case pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure && stopped == succeeded:
		return corev1.PodSucceeded
	}
	return corev1.PodRunning
}
