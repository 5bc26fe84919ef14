package registry

import (
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

// validateSelector checks that the selector of a workload matches its own pod
// template and is not empty, because an empty selector matches every pod.
func validateSelector(selector *metav1.LabelSelector, template *corev1.PodTemplateSpec, kind string, path *field.Path) field.ErrorList {
	at := path.Child("selector")
	if selector == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, at)
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(at, selector, "empty selector is invalid for "+kind))
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return append(errs, field.Invalid(at, selector, "invalid label selector"))
	}
	if !s.Empty() && !s.Matches(labels.Set(template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), template.Labels, "`selector` does not match template `labels`"))
	}
	return errs
}

// validateTemplate validates a template that is new or has changed. An unchanged
// template stays valid. kind is the kind of the workload, whose pods always restart.
func validateTemplate(new, old *corev1.PodTemplateSpec, kind string, path *field.Path) field.ErrorList {
	if old != nil && apiequality.Semantic.DeepEqual(new, old) {
		return nil
	}
	return podspec.ValidateTemplate(new, kind, path)
}

// templateWarnings returns the warnings for pods of the template.
func templateWarnings(name string, t *corev1.PodTemplateSpec) []string {
	var out []string
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 && name != "" {
		out = append(out, nameWarning(problems))
	}
	return append(out, podspec.TemplateWarnings(t, field.NewPath("spec", "template"))...)
}

// nameWarning warns that pods cannot have host names that begin with a name.
func nameWarning(problems []string) string {
	return "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: " + fmt.Sprint(problems)
}

// count is one number of a status with its field name.
type count struct {
	name  string
	value int32
}

// validateCounts checks that no number is negative and that no part is greater than
// all.
func validateCounts(path *field.Path, all count, parts ...count) field.ErrorList {
	errs := apivalidation.ValidateNonnegativeField(int64(all.value), path.Child(all.name))
	for _, part := range parts {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(part.value), path.Child(part.name))...)
		if part.value > all.value {
			errs = append(errs, field.Invalid(path.Child(part.name), part.value, "cannot be greater than status."+all.name))
		}
	}
	return errs
}

// validateNonnegative checks that no number is negative.
func validateNonnegative(path *field.Path, counts ...count) field.ErrorList {
	var errs field.ErrorList
	for _, c := range counts {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(c.value), path.Child(c.name))...)
	}
	return errs
}

// validateCollisions validates the number of hash collisions, which only grows.
func validateCollisions(new, old *int32, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	now := int32(0)
	if new != nil {
		now = *new
		errs = apivalidation.ValidateNonnegativeField(int64(now), path)
	}
	if old != nil && (new == nil || now < *old) {
		errs = append(errs, field.Invalid(path, now, "cannot be decremented"))
	}
	return errs
}

// validateShare validates a number or a percentage of pods.
func validateShare(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	if v == nil {
		return nil
	}
	if v.Type == intstr.String {
		return fieldcheck.Invalid(validation.IsValidPercent(v.StrVal), path, v)
	}
	return apivalidation.ValidateNonnegativeField(int64(v.IntVal), path)
}

// atMostAll rejects percentages above 100.
func atMostAll(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	if v == nil || v.Type != intstr.String || share(v) <= 100 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, v, "must not be greater than 100%")}
}

// share returns the number of pods or the percentage in v.
func share(v *intstr.IntOrString) int {
	if v == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(v, 100, true)
	if err != nil {
		return 0
	}
	return n
}

// scalable implements the scale subresource of a kind.
type scalable[T scheme.Object] struct {
	replicas func(T) **int32
	running  func(T) int32
	selector func(T) *metav1.LabelSelector
}

func (s scalable[T]) subresource() *Subresource {
	return &Subresource{
		Name: "scale", GVK: autoscalingv1.SchemeGroupVersion.WithKind("Scale"),
		View: func(obj scheme.Object) (runtime.Object, error) { return s.view(obj.(T)) },
		Merge: func(obj scheme.Object, view runtime.Object) error {
			return s.merge(obj.(T), view.(*autoscalingv1.Scale))
		},
	}
}

func (s scalable[T]) view(obj T) (*autoscalingv1.Scale, error) {
	selector, err := metav1.LabelSelectorAsSelector(s.selector(obj))
	if err != nil {
		return nil, fmt.Errorf("selector of %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	scale := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
			ResourceVersion: obj.GetResourceVersion(), CreationTimestamp: obj.GetCreationTimestamp(),
		},
		Status: autoscalingv1.ScaleStatus{Replicas: s.running(obj), Selector: selector.String()},
	}
	if n := *s.replicas(obj); n != nil {
		scale.Spec.Replicas = *n
	}
	return scale, nil
}

// merge sets the replicas.
func (s scalable[T]) merge(obj T, scale *autoscalingv1.Scale) error {
	if errs := apivalidation.ValidateNonnegativeField(int64(scale.Spec.Replicas), field.NewPath("spec", "replicas")); len(errs) > 0 {
		return apierrors.NewInvalid(autoscalingv1.SchemeGroupVersion.WithKind("Scale").GroupKind(), obj.GetName(), errs)
	}
	*s.replicas(obj) = &scale.Spec.Replicas
	return nil
}
