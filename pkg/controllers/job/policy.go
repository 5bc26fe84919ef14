package job

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// match is what the pod failure policy says about a failed pod.
type match struct {
	action  batchv1.PodFailurePolicyAction // "": no rule matches, and the failure counts
	message string                         // of the action FailJob
}

// ignored reports whether the failure does not count.
func (m match) ignored() bool { return m.action == batchv1.PodFailurePolicyActionIgnore }

// matchFailure returns the action of the first rule that matches the pod. policy may be nil.
func matchFailure(policy *batchv1.PodFailurePolicy, p *corev1.Pod) match {
	if policy == nil {
		return match{}
	}
	for i, rule := range policy.Rules {
		var what string
		if on := rule.OnExitCodes; on != nil {
			if c := exited(p, on); c != nil {
				what = fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d", c.Name, p.Namespace, p.Name, c.State.Terminated.ExitCode)
			}
		} else if c := conditionAmong(p, rule.OnPodConditions); c != nil {
			what = fmt.Sprintf("Pod %s/%s has condition %s", p.Namespace, p.Name, c.Type)
		}
		if what != "" {
			return match{rule.Action, fmt.Sprintf("%s matching %s rule at index %d", what, rule.Action, i)}
		}
	}
	return match{}
}

// exited returns the first failed container whose exit code meets the requirement.
func exited(p *corev1.Pod, on *batchv1.PodFailurePolicyOnExitCodesRequirement) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range list {
			c := &list[i]
			if on.ContainerName != nil && *on.ContainerName != c.Name || c.State.Terminated == nil || c.State.Terminated.ExitCode == 0 {
				continue
			}
			among := slices.Contains(on.Values, c.State.Terminated.ExitCode)
			if among == (on.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn) {
				return c
			}
		}
	}
	return nil
}

func conditionAmong(p *corev1.Pod, patterns []batchv1.PodFailurePolicyOnPodConditionsPattern) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		for _, want := range patterns {
			if c.Type == want.Type && c.Status == want.Status {
				return c
			}
		}
	}
	return nil
}

// matchSuccess returns the message of the first rule of the success policy that the completed
// indexes meet.
func matchSuccess(policy *batchv1.SuccessPolicy, done indexes, completions int) (message string, met bool) {
	if policy == nil {
		return "", false
	}
	for i, rule := range policy.Rules {
		if succeeds(&rule, done, completions) {
			return fmt.Sprintf("Matched rules at index %d", i), true
		}
	}
	return "", false
}

func succeeds(rule *batchv1.SuccessPolicyRule, done indexes, completions int) bool {
	if rule.SucceededIndexes == nil {
		return rule.SucceededCount != nil && done.total() >= int(*rule.SucceededCount)
	}
	required := parseIndexes(*rule.SucceededIndexes, completions)
	need := required.total()
	if rule.SucceededCount != nil {
		need = int(*rule.SucceededCount)
	}
	return common(required, done) >= need
}

// common returns the number of indexes that are in both sets.
func common(a, b indexes) int {
	n := 0
	for len(a) > 0 && len(b) > 0 {
		n += max(0, min(a[0].last, b[0].last)-max(a[0].first, b[0].first)+1)
		if a[0].last < b[0].last {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return n
}
