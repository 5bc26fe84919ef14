package podspec

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateGates validates spec.schedulingGates.
func validateGates(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen, at := sets.New[string](), path.Child("schedulingGates")
	for i, gate := range spec.SchedulingGates {
		errs = append(errs, metavalidation.ValidateLabelName(gate.Name, at.Index(i))...)
		if seen.Has(gate.Name) {
			errs = append(errs, field.Duplicate(at.Index(i), gate.Name))
		}
		seen.Insert(gate.Name)
	}
	if len(spec.SchedulingGates) > 0 && spec.NodeName != "" {
		errs = append(errs, field.Forbidden(path.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
	}
	return errs
}

// validateGatesUpdate allows scheduling gates only to be removed.
func validateGatesUpdate(new, old []corev1.PodSchedulingGate, path *field.Path) field.ErrorList {
	for i, gate := range new {
		if !slices.Contains(old, gate) {
			return field.ErrorList{field.Forbidden(path.Index(i).Child("name"), fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", gate.Name))}
		}
	}
	return nil
}

// narrow restores, in new, what a gated pod may change: its node selector and its required node
// affinity may become stricter, its preferred node affinity may change. It returns errors if they
// become less strict.
func narrow(new, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	if len(old.SchedulingGates) == 0 {
		return nil
	}
	var errs field.ErrorList
	for key, value := range old.NodeSelector {
		if now, ok := new.NodeSelector[key]; !ok || now != value {
			errs = append(errs, field.Invalid(path.Child("nodeSelector"), new.NodeSelector, "only additions to spec.nodeSelector are allowed (no mutations or deletions)"))
			break
		}
	}
	errs = append(errs, narrowTerms(requiredNodes(new), requiredNodes(old), path.Child("affinity", "nodeAffinity", required))...)
	new.NodeSelector = old.NodeSelector
	if podAffinityEqual(new.Affinity, old.Affinity) {
		new.Affinity = old.Affinity
	}
	return errs
}

// podAffinityEqual compares all but node affinity.
func podAffinityEqual(a, b *corev1.Affinity) bool {
	var x, y corev1.Affinity
	if a != nil {
		x = *a
	}
	if b != nil {
		y = *b
	}
	x.NodeAffinity, y.NodeAffinity = nil, nil
	return apiequality.Semantic.DeepEqual(x, y)
}

func requiredNodes(spec *corev1.PodSpec) *corev1.NodeSelector {
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// narrowTerms allows requirements only to be added to the terms.
func narrowTerms(new, old *corev1.NodeSelector, path *field.Path) field.ErrorList {
	if old == nil || len(old.NodeSelectorTerms) == 0 {
		return nil
	}
	path = path.Child("nodeSelectorTerms")
	if new == nil || len(new.NodeSelectorTerms) != len(old.NodeSelectorTerms) {
		return field.ErrorList{field.Invalid(path, new, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")}
	}
	for i := range old.NodeSelectorTerms {
		before, now := &old.NodeSelectorTerms[i], &new.NodeSelectorTerms[i]
		if !starts(now.MatchExpressions, before.MatchExpressions) || !starts(now.MatchFields, before.MatchFields) {
			return field.ErrorList{field.Invalid(path.Index(i), *now, "only additions are allowed (no mutations or deletions)")}
		}
	}
	return nil
}

func starts(list, with []corev1.NodeSelectorRequirement) bool {
	return len(list) >= len(with) && apiequality.Semantic.DeepEqual(list[:len(with)], with)
}
