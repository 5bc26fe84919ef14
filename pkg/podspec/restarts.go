package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
)

// Upstream's limits of a container's restart rules.
const (
	maxRestartRules = 20
	maxExitCodes    = 255
)

// validateRestarts validates the restart policy of a container and its rules.
func validateRestarts(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	rules := path.Child("restartPolicyRules")
	switch {
	case c.RestartPolicy != nil:
		errs = append(errs, fieldcheck.OneOf(*c.RestartPolicy, path.Child("restartPolicy"),
			corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)...)
	case len(c.RestartPolicyRules) > 0:
		errs = append(errs, field.Required(path.Child("restartPolicy"), "must specify restartPolicy when restart rules are used"))
	}
	if len(c.RestartPolicyRules) > maxRestartRules {
		errs = append(errs, field.TooLong(rules, len(c.RestartPolicyRules), maxRestartRules))
	}
	for i := range c.RestartPolicyRules {
		errs = append(errs, validateRestartRule(&c.RestartPolicyRules[i], rules.Index(i))...)
	}
	return errs
}

func validateRestartRule(r *corev1.ContainerRestartRule, path *field.Path) field.ErrorList {
	errs := fieldcheck.OneOf(r.Action, path.Child("action"), corev1.ContainerRestartRuleActionRestart)
	if r.ExitCodes == nil {
		return append(errs, field.Required(path.Child("exitCodes"), "must be specified"))
	}
	codes := path.Child("exitCodes")
	errs = append(errs, fieldcheck.OneOf(r.ExitCodes.Operator, codes.Child("operator"),
		corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)...)
	if len(r.ExitCodes.Values) > maxExitCodes {
		errs = append(errs, field.TooLong(codes.Child("values"), len(r.ExitCodes.Values), maxExitCodes))
	}
	return errs
}
