package registry

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel"

	"podium/pkg/deviceselector"
	"podium/pkg/fieldcheck"
)

// This file validates what the kinds of resource.k8s.io have in common.

// unbounded is the limit of a list that has none.
const unbounded = -1

// validateList validates the items of a list. It does not look at those of a list
// that is too long.
func validateList[T any](list []T, most int, path *field.Path, check func(item *T, path *field.Path) field.ErrorList) field.ErrorList {
	if most != unbounded && len(list) > most {
		return field.ErrorList{field.TooMany(path, len(list), most)}
	}
	var errs field.ErrorList
	for i := range list {
		errs = append(errs, check(&list[i], path.Index(i))...)
	}
	return errs
}

// validateSet validates the items of a list of which no two have the same key.
func validateSet[T any, K comparable](list []T, most int, path *field.Path, key func(item *T) K, check func(item *T, path *field.Path) field.ErrorList) field.ErrorList {
	errs := validateList(list, most, path, check)
	if most != unbounded && len(list) > most {
		return errs
	}
	seen := map[K]bool{}
	for i := range list {
		k := key(&list[i])
		if seen[k] {
			errs = append(errs, field.Duplicate(path.Index(i), k))
		}
		seen[k] = true
	}
	return errs
}

func itself(s *string) string { return *s }

func validateLabel(name string, path *field.Path) field.ErrorList {
	return fieldcheck.Invalid(validation.IsDNS1123Label(name), path, name)
}

func validatePoolName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > resourcev1.PoolNameMaxLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.PoolNameMaxLength))
	}
	for part := range strings.SplitSeq(name, "/") {
		errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Subdomain(part), path, part)...)
	}
	return errs
}

// validateQualified validates the name of an attribute or a capacity: a C identifier,
// which a domain may precede.
func validateQualified(name resourcev1.QualifiedName, path *field.Path) field.ErrorList {
	domain, id, qualified := strings.Cut(string(name), "/")
	if !qualified {
		return validateIdentifier(domain, path)
	}
	var errs field.ErrorList
	if strings.Contains(id, "/") {
		return field.ErrorList{field.Invalid(path, string(name), "must not contain more than one slash")}
	}
	if domain == "" {
		errs = append(errs, field.Invalid(path, "", "the domain must not be empty"))
	} else {
		errs = append(errs, fieldcheck.DriverName(domain, path)...)
	}
	if id == "" {
		return append(errs, field.Invalid(path, "", "the name must not be empty"))
	}
	return append(errs, validateIdentifier(id, path)...)
}

func validateIdentifier(id string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(id) > resourcev1.DeviceMaxIDLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.DeviceMaxIDLength))
	}
	return append(errs, fieldcheck.Invalid(content.IsCIdentifier(id), path, id)...)
}

func validateFullyQualified(name resourcev1.FullyQualifiedName, path *field.Path) field.ErrorList {
	errs := validateQualified(resourcev1.QualifiedName(name), path)
	if !strings.Contains(string(name), "/") {
		errs = append(errs, field.Invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash"))
	}
	return errs
}

// deviceChecks validates what refers to devices. It compiles the expressions that select
// them as the scheduler does.
type deviceChecks struct{ compiler *deviceselector.Compiler }

// selectors validates CEL expressions. Those of known are in the store already.
func (v deviceChecks) selectors(list, known []resourcev1.DeviceSelector, path *field.Path) field.ErrorList {
	return validateList(list, resourcev1.DeviceSelectorsMaxSize, path, func(s *resourcev1.DeviceSelector, path *field.Path) field.ErrorList {
		at := path.Child("cel")
		switch {
		case s.CEL == nil:
			return field.ErrorList{field.Required(at, "")}
		case len(s.CEL.Expression) > resourcev1.CELSelectorExpressionMaxLength:
			return field.ErrorList{field.TooLong(at.Child("expression"), "", resourcev1.CELSelectorExpressionMaxLength)}
		}
		stored := slices.ContainsFunc(known, func(o resourcev1.DeviceSelector) bool { return o.CEL != nil && *o.CEL == *s.CEL })
		return v.expression(s.CEL.Expression, stored, at.Child("expression"))
	})
}

func (v deviceChecks) expression(text string, stored bool, path *field.Path) field.ErrorList {
	switch s := v.compiler.Compile(text, stored); {
	case s.Error != nil && s.Error.Type == cel.ErrorTypeInternal:
		return field.ErrorList{field.InternalError(path, s.Error)}
	case s.Error != nil:
		return field.ErrorList{field.Invalid(path, text, s.Error.Detail)}
	case s.TooComplex():
		return field.ErrorList{field.Forbidden(path, "too complex, exceeds cost limit")}
	}
	return nil
}

func validateDeviceConfiguration(c *resourcev1.DeviceConfiguration, path *field.Path) field.ErrorList {
	at := path.Child("opaque")
	if c.Opaque == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := fieldcheck.DriverName(c.Opaque.Driver, at.Child("driver"))
	return append(errs, validateRaw(c.Opaque.Parameters, resourcev1.OpaqueParametersMaxLength, at.Child("parameters"))...)
}

// validateRaw checks that a value for a driver is a JSON object of at most that many
// bytes.
func validateRaw(raw runtime.RawExtension, most int, path *field.Path) field.ErrorList {
	var value any
	switch {
	case len(raw.Raw) == 0:
		return field.ErrorList{field.Required(path, "")}
	case len(raw.Raw) > most:
		return field.ErrorList{field.TooLong(path, "", most)}
	}
	if err := json.Unmarshal(raw.Raw, &value); err != nil {
		return field.ErrorList{field.Invalid(path, "<value omitted>", fmt.Sprintf("error parsing data as JSON: %v", err))}
	}
	if value == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	if _, object := value.(map[string]any); !object {
		return field.ErrorList{field.Invalid(path, "<value omitted>", "must be a valid JSON object")}
	}
	return nil
}

func validateDeviceEffect(effect resourcev1.DeviceTaintEffect, path *field.Path) field.ErrorList {
	return fieldcheck.OneOf(effect, path, resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone)
}

func validateDeviceTaint(t *resourcev1.DeviceTaint, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabelName(t.Key, path.Child("key"))
	errs = append(errs, fieldcheck.Invalid(validation.IsValidLabelValue(t.Value), path.Child("value"), t.Value)...)
	return append(errs, validateDeviceEffect(t.Effect, path.Child("effect"))...)
}

func validateDeviceToleration(t *resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, metavalidation.ValidateLabelName(t.Key, path.Child("key"))...)
	}
	switch value := path.Child("value"); t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(value, t.Value, "must be empty for operator `Exists`"))
		}
	case resourcev1.DeviceTolerationOpEqual:
		errs = append(errs, fieldcheck.Invalid(validation.IsValidLabelValue(t.Value), value, t.Value)...)
	default:
		errs = append(errs, fieldcheck.OneOf(t.Operator, path.Child("operator"), resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists)...)
	}
	if t.Effect != "" {
		errs = append(errs, validateDeviceEffect(t.Effect, path.Child("effect"))...)
	}
	return errs
}

// validateBindingConditions validates the conditions that a device awaits before a
// pod is bound. Both lists are set, or none.
func validateBindingConditions(ready, failed []string, path *field.Path) field.ErrorList {
	readyAt, failedAt := path.Child("bindingConditions"), path.Child("bindingFailureConditions")
	name := func(s *string, path *field.Path) field.ErrorList { return metavalidation.ValidateLabelName(*s, path) }
	errs := validateSet(ready, resourcev1.BindingConditionsMaxSize, readyAt, itself, name)
	errs = append(errs, validateSet(failed, resourcev1.BindingFailureConditionsMaxSize, failedAt, itself, name)...)
	for i, condition := range failed {
		if slices.Contains(ready, condition) {
			errs = append(errs, field.Invalid(failedAt.Index(i), condition, "bindingFailureConditions must not overlap with bindingConditions"))
		}
	}
	if len(ready) == 0 && len(failed) > 0 {
		errs = append(errs, field.Invalid(readyAt, ready, "bindingConditions are required to use bindingFailureConditions"))
	}
	if len(failed) == 0 && len(ready) > 0 {
		errs = append(errs, field.Invalid(failedAt, failed, "bindingFailureConditions are required to use bindingConditions"))
	}
	return errs
}

// semanticVersion matches a version as semver.org defines it.
var semanticVersion = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?` +
	`(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)
