package crd

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// validate validates a custom resource, and its changes against old unless old is nil.
// It accepts errors in parts that an update does not change (ratcheting).
func (r *rules) validate(new, old *unstructured.Unstructured) field.ErrorList {
	obj, before := r.content(new), r.content(old)
	v, s := r.shape.validators(), r.shape.structural()
	var errs field.ErrorList
	var related *common.CorrelatedObject
	if old == nil {
		errs = validation.ValidateCustomResource(nil, obj, v.all)
	} else {
		related = common.NewCorrelatedObject(obj, before, &model.Structural{Structural: s})
		errs = validation.ValidateCustomResourceUpdate(nil, obj, before, v.all, validation.WithRatcheting(related))
	}
	errs = append(errs, r.validateReplicas(obj, true)...)
	if err := objectmeta.Coerce(nil, runtime.DeepCopyJSON(obj), s, false, false); err != nil {
		errs = append(errs, err)
	} else {
		errs = append(errs, objectmeta.Validate(context.Background(), nil, obj, s, false)...)
	}
	errs = append(errs, r.validateLists(obj, before)...)
	return append(errs, r.validateRules(errs, obj, before, related)...)
}

// validateStatus validates a write of the status subresource.
func (r *rules) validateStatus(new, old *unstructured.Unstructured) field.ErrorList {
	obj, before := r.content(new), r.content(old)
	related := common.NewCorrelatedObject(obj, before, &model.Structural{Structural: r.shape.structural()})
	var errs field.ErrorList
	if status, ok := obj["status"]; ok {
		errs = validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, before["status"], r.shape.validators().status, validation.WithRatcheting(related.Key("status")))
	}
	errs = append(errs, r.validateReplicas(obj, false)...)
	errs = append(errs, r.validateLists(obj, before)...)
	return append(errs, r.validateRules(errs, obj, before, related)...)
}

// content returns the content of an object with its type metadata, which schemas and
// rules may use; nil for a nil object.
func (r *rules) content(u *unstructured.Unstructured) map[string]any {
	if u == nil {
		return nil
	}
	out := maps.Clone(u.Object)
	out["apiVersion"], out["kind"] = r.gvk.GroupVersion().String(), r.gvk.Kind
	return out
}

// validateLists validates lists that are sets or maps. It accepts duplicates if old
// has some.
func (r *rules) validateLists(obj, old map[string]any) field.ErrorList {
	errs := listtype.ValidateListSetsAndMaps(nil, r.shape.structural(), obj)
	if len(errs) > 0 && old != nil && len(listtype.ValidateListSetsAndMaps(nil, r.shape.structural(), old)) > 0 {
		return nil
	}
	return errs
}

// validateRules evaluates the CEL rules, unless errs are such that the rules may fail
// because of them. related is nil on create.
func (r *rules) validateRules(errs field.ErrorList, obj, old map[string]any, related *common.CorrelatedObject) field.ErrorList {
	rules := r.shape.validators().rules
	if rules == nil {
		return nil
	}
	blocking := []field.ErrorType{field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid}
	if slices.ContainsFunc(errs, func(err *field.Error) bool { return slices.Contains(blocking, err.Type) }) {
		return field.ErrorList{field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")}
	}
	var before any // an untyped nil on create
	var options []cel.Option
	if related != nil {
		before, options = old, []cel.Option{cel.WithRatcheting(related)}
	}
	errs, _ = rules.Validate(context.Background(), nil, r.shape.structural(), obj, before, celconfig.RuntimeCELCostBudget, options...)
	return errs
}

// validateReplicas validates the fields that the scale subresource shows: those of the
// status, and with spec set also the wanted number.
func (r *rules) validateReplicas(obj map[string]any, spec bool) (errs field.ErrorList) {
	if r.scale == nil {
		return nil
	}
	count := func(path string) {
		n, _, err := unstructured.NestedInt64(obj, split(path)...)
		switch at := field.NewPath(path); {
		case err != nil:
			errs = append(errs, field.Invalid(at, n, err.Error()))
		case n < 0:
			errs = append(errs, field.Invalid(at, n, "should be a non-negative integer"))
		case n > math.MaxInt32:
			errs = append(errs, field.Invalid(at, n, fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)))
		}
	}
	if spec {
		count(r.scale.SpecReplicasPath)
	}
	count(r.scale.StatusReplicasPath)
	if path := r.scale.LabelSelectorPath; path != nil {
		if text, _, err := unstructured.NestedString(obj, split(*path)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*path), text, err.Error()))
		}
	}
	return errs
}

// split returns the field names of a path in the dot notation.
func split(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }
