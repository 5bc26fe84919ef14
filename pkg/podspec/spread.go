package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateSpread validates topology spread constraints. Topology key and action
// together identify a constraint; of two equal ones, the earlier is reported as the
// duplicate.
func validateSpread(constraints []corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	left := map[string]int{}
	for i := range constraints {
		left[spreadName(&constraints[i])]++
	}
	for i := range constraints {
		c, at := &constraints[i], path.Index(i)
		errs = append(errs, positive(c.MaxSkew, at.Child("maxSkew"))...)
		if c.TopologyKey == "" {
			errs = append(errs, field.Required(at.Child("topologyKey"), "can not be empty"))
		}
		if c.WhenUnsatisfiable != corev1.DoNotSchedule && c.WhenUnsatisfiable != corev1.ScheduleAnyway {
			errs = append(errs, field.NotSupported(at.Child("whenUnsatisfiable"), c.WhenUnsatisfiable,
				[]corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}))
		}
		name := spreadName(c)
		if left[name]--; left[name] > 0 {
			errs = append(errs, field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), name))
		}
		errs = append(errs, validateMinDomains(c, at.Child("minDomains"))...)
		errs = append(errs, validateInclusion(c.NodeAffinityPolicy, at.Child("nodeAffinityPolicy"))...)
		errs = append(errs, validateInclusion(c.NodeTaintsPolicy, at.Child("nodeTaintsPolicy"))...)
		errs = append(errs, validateLabelKeys(c.MatchLabelKeys, c.LabelSelector, at.Child("matchLabelKeys"))...)
		errs = append(errs, metavalidation.ValidateLabelSelector(c.LabelSelector, metavalidation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
	}
	return errs
}

func spreadName(c *corev1.TopologySpreadConstraint) string {
	return fmt.Sprintf("{%s, %s}", c.TopologyKey, c.WhenUnsatisfiable)
}

func validateMinDomains(c *corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	if c.MinDomains == nil {
		return nil
	}
	errs := positive(*c.MinDomains, path)
	if c.WhenUnsatisfiable != corev1.DoNotSchedule {
		errs = append(errs, field.Invalid(path, *c.MinDomains,
			fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, c.WhenUnsatisfiable)))
	}
	return errs
}

// validateInclusion validates a node inclusion policy; nil is the default.
func validateInclusion(policy *corev1.NodeInclusionPolicy, path *field.Path) field.ErrorList {
	if policy == nil || *policy == corev1.NodeInclusionPolicyHonor || *policy == corev1.NodeInclusionPolicyIgnore {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, *policy, []corev1.NodeInclusionPolicy{corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore})}
}

func positive(n int32, path *field.Path) field.ErrorList {
	if n <= 0 {
		return field.ErrorList{field.Invalid(path, n, "must be greater than zero")}
	}
	return nil
}
