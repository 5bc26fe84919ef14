// Package fieldcheck converts the results of the validators of k8s.io/apimachinery
// to field errors, for the validation of kinds and pod specs.
package fieldcheck

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Invalid returns an error at path for each message about value, or nil if there
// are no messages.
func Invalid(messages []string, path *field.Path, value any) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, value, m))
	}
	return errs
}

// OneOf returns an error if value is empty or is not among valid.
func OneOf[T ~string](value T, path *field.Path, valid ...T) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(path, "")}
	case !slices.Contains(valid, value):
		return field.ErrorList{field.NotSupported(path, value, valid)}
	}
	return nil
}

// Supported returns an error if value, which may be empty, is not among valid.
func Supported[T ~string](value T, path *field.Path, valid ...T) field.ErrorList {
	if slices.Contains(valid, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, valid)}
}

// DriverName validates the name of a CSI or DRA driver.
func DriverName(name string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(path, ""))
	}
	if len(name) > validation.DNS1123LabelMaxLength {
		errs = append(errs, field.TooLong(path, "", validation.DNS1123LabelMaxLength))
	}
	return append(errs, Invalid(validation.IsDNS1123Subdomain(strings.ToLower(name)), path, name)...)
}
