package pods

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// shouldRestart reports whether an exited container is started again: by the first of
// its rules that matches its exit code, else by its restart policy, else by the
// pod's. Do not call it for an init container that has succeeded.
func shouldRestart(pod *corev1.Pod, spec *corev1.Container, c *container) bool {
	if c.replaced {
		return true
	}
	for _, r := range spec.RestartPolicyRules {
		if matches(r.ExitCodes, c.exitCode) {
			return r.Action == corev1.ContainerRestartRuleActionRestart
		}
	}
	policy := corev1.ContainerRestartPolicy(pod.Spec.RestartPolicy)
	if spec.RestartPolicy != nil {
		policy = *spec.RestartPolicy
	}
	switch policy {
	case corev1.ContainerRestartPolicyNever:
		return false
	case corev1.ContainerRestartPolicyOnFailure:
		return c.exitCode != 0
	}
	return true
}

// matches reports whether a rule of a container with exit codes matches one.
func matches(on *corev1.ContainerRestartRuleOnExitCodes, code int32) bool {
	if on == nil {
		return false
	}
	return slices.Contains(on.Values, code) == (on.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn)
}
