package definition

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate validates a definition, and its changes against old unless old is nil. It
// compiles the CEL rules of the schemas.
func Validate(obj, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	in, err := internal(obj)
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), "", err.Error())}
	}
	path := field.NewPath("spec")
	var errs field.ErrorList
	if want := in.Spec.Names.Plural + "." + in.Spec.Group; old == nil && in.Name != want {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), in.Name, `must be spec.names.plural+"."+spec.group`))
	}
	errs = append(errs, validateSpec(&in.Spec, path)...)
	if old != nil {
		errs = append(errs, validateChange(&obj.Spec, old, path)...)
	}
	errs = append(errs, validateNames(&in.Status.AcceptedNames, field.NewPath("status", "acceptedNames"))...)
	errs = append(errs, validateStored(obj, field.NewPath("status", "storedVersions"))...)
	return append(errs, validateApproval(obj, old)...)
}

// ValidateStatus validates the status of a definition.
func ValidateStatus(obj, _ *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	in, err := internal(obj)
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("status"), "", err.Error())}
	}
	return validateNames(&in.Status.AcceptedNames, field.NewPath("status", "acceptedNames"))
}

// internal converts a definition to upstream's internal version, whose field paths
// upstream reports: what is equal in all versions is at the top level there.
func internal(obj *apiextensionsv1.CustomResourceDefinition) (*apiextensions.CustomResourceDefinition, error) {
	out := &apiextensions.CustomResourceDefinition{}
	return out, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(obj.DeepCopy(), out, nil)
}

func validateSpec(spec *apiextensions.CustomResourceDefinitionSpec, path *field.Path) field.ErrorList {
	errs := validateGroup(spec.Group, path.Child("group"))
	errs = append(errs, oneOf(path.Child("scope"), spec.Scope, apiextensions.ClusterScoped, apiextensions.NamespaceScoped)...)
	if keep := spec.PreserveUnknownFields; keep != nil && *keep {
		errs = append(errs, field.Invalid(path.Child("preserveUnknownFields"), true,
			"cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"))
	}
	errs = append(errs, validateVersions(spec, path.Child("versions"))...)
	names := path.Child("names")
	for _, n := range []struct{ name, value string }{
		{"plural", spec.Names.Plural}, {"singular", spec.Names.Singular}, {"kind", spec.Names.Kind}, {"listKind", spec.Names.ListKind},
	} {
		if n.value == "" {
			errs = append(errs, field.Required(names.Child(n.name), ""))
		}
	}
	errs = append(errs, validateNames(&spec.Names, names)...)
	common := apiextensions.CustomResourceDefinitionVersion{
		Schema: spec.Validation, Subresources: spec.Subresources,
		AdditionalPrinterColumns: spec.AdditionalPrinterColumns, SelectableFields: spec.SelectableFields,
	}
	errs = append(errs, validateServing(&common, hasStatus(spec.Subresources), path, "validation")...)
	return append(errs, validateConversion(spec.Conversion, path.Child("conversion"))...)
}

func validateGroup(group string, path *field.Path) field.ErrorList {
	if group == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	if problems := validation.IsDNS1123Subdomain(group); len(problems) > 0 {
		return field.ErrorList{field.Invalid(path, group, strings.Join(problems, ","))}
	}
	if !strings.Contains(group, ".") {
		return field.ErrorList{field.Invalid(path, group, "should be a domain with at least one dot")}
	}
	return nil
}

func validateVersions(spec *apiextensions.CustomResourceDefinitionSpec, path *field.Path) (errs field.ErrorList) {
	stored, names := 0, map[string]bool{}
	for i := range spec.Versions {
		v, path := &spec.Versions[i], path.Index(i)
		names[v.Name] = true
		if v.Storage {
			stored++
		}
		if problems := validation.IsDNS1035Label(v.Name); len(problems) > 0 {
			errs = append(errs, field.Invalid(path.Child("name"), v.Name, strings.Join(problems, ",")))
		}
		for _, problem := range deprecationProblems(v) {
			errs = append(errs, field.Invalid(path.Child("deprecationWarning"), v.DeprecationWarning, problem))
		}
		if !hasSchema(spec.Validation) && !hasSchema(v.Schema) {
			errs = append(errs, field.Required(path.Child("schema", "openAPIV3Schema"), ""))
		}
		subresources := v.Subresources
		if subresources == nil {
			subresources = spec.Subresources
		}
		errs = append(errs, validateServing(v, hasStatus(subresources), path, "schema")...)
	}
	if len(names) < len(spec.Versions) {
		errs = append(errs, field.Invalid(path, spec.Versions, "must contain unique version names"))
	}
	if stored != 1 {
		errs = append(errs, field.Invalid(path, spec.Versions, "must have exactly one version marked as storage version"))
	}
	return errs
}

func hasSchema(v *apiextensions.CustomResourceValidation) bool {
	return v != nil && v.OpenAPIV3Schema != nil
}

func hasStatus(s *apiextensions.CustomResourceSubresources) bool { return s != nil && s.Status != nil }

// deprecationProblems returns what is wrong with the deprecation warning of a version.
func deprecationProblems(v *apiextensions.CustomResourceDefinitionVersion) (out []string) {
	if v.DeprecationWarning == nil {
		return nil
	}
	text := *v.DeprecationWarning
	if !v.Deprecated {
		return []string{"can only be set for deprecated versions"}
	}
	if len(text) > 256 {
		out = append(out, "must be <= 256 characters long")
	}
	if text == "" {
		out = append(out, "must not be an empty string")
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		out = append(out, fmt.Sprintf("must only contain printable UTF-8 characters; non-printable character found at index %d", i))
	}
	return out
}

// validateServing validates how a version is served, or all versions: schema,
// subresources, columns and selectable fields. schema is the name of the schema's
// field.
func validateServing(v *apiextensions.CustomResourceDefinitionVersion, status bool, path *field.Path, schema string) (errs field.ErrorList) {
	var fields *tree
	if hasSchema(v.Schema) {
		fields, errs = validateSchema(v.Schema.OpenAPIV3Schema, status, path.Child(schema))
	}
	errs = append(errs, validateSubresources(v.Subresources, path.Child("subresources"))...)
	for i := range v.AdditionalPrinterColumns {
		errs = append(errs, validateColumn(&v.AdditionalPrinterColumns[i], path.Child("additionalPrinterColumns").Index(i))...)
	}
	return append(errs, validateSelectable(v.SelectableFields, fields, path.Child("selectableFields"))...)
}

// oneOf returns an error unless value is one of the accepted ones.
func oneOf[T ~string](path *field.Path, value T, accepted ...T) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(path, "")}
	case !slices.Contains(accepted, value):
		return field.ErrorList{field.NotSupported(path, value, accepted)}
	}
	return nil
}

func validateNames(names *apiextensions.CustomResourceDefinitionNames, path *field.Path) (errs field.ErrorList) {
	check := func(path *field.Path, value, prefix string) {
		label := value
		if prefix != "" {
			label = strings.ToLower(value)
		}
		if problems := validation.IsDNS1035Label(label); value != "" && len(problems) > 0 {
			errs = append(errs, field.Invalid(path, value, prefix+strings.Join(problems, ",")))
		}
	}
	const mixed = "may have mixed case, but should otherwise match: "
	check(path.Child("plural"), names.Plural, "")
	check(path.Child("singular"), names.Singular, "")
	check(path.Child("kind"), names.Kind, mixed)
	check(path.Child("listKind"), names.ListKind, mixed)
	for i, name := range names.ShortNames {
		check(path.Child("shortNames").Index(i), name, "")
	}
	if names.Kind != "" && names.Kind == names.ListKind {
		errs = append(errs, field.Invalid(path.Child("listKind"), names.ListKind, "kind and listKind may not be the same"))
	}
	for i, name := range names.Categories {
		check(path.Child("categories").Index(i), name, "")
	}
	return errs
}

// validateChange validates that an update keeps what may not change. Upstream lets
// scope and kind change until the names are accepted.
func validateChange(spec *apiextensionsv1.CustomResourceDefinitionSpec, old *apiextensionsv1.CustomResourceDefinition, path *field.Path) (errs field.ErrorList) {
	if apihelpers.IsCRDConditionTrue(old, apiextensionsv1.Established) {
		errs = append(errs, apivalidation.ValidateImmutableField(spec.Scope, old.Spec.Scope, path.Child("scope"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(spec.Names.Kind, old.Spec.Names.Kind, path.Child("names", "kind"))...)
		errs = append(errs, validateBundle(spec, &old.Spec, path.Child("conversion", "webhookClientConfig", "caBundle"))...)
	}
	errs = append(errs, apivalidation.ValidateImmutableField(spec.Group, old.Spec.Group, path.Child("group"))...)
	return append(errs, apivalidation.ValidateImmutableField(spec.Names.Plural, old.Spec.Names.Plural, path.Child("names", "plural"))...)
}

func validateStored(obj *apiextensionsv1.CustomResourceDefinition, path *field.Path) (errs field.ErrorList) {
	stored := obj.Status.StoredVersions
	if len(stored) == 0 {
		return field.ErrorList{field.Invalid(path, stored, "must have at least one stored version")}
	}
	for _, v := range obj.Spec.Versions {
		if v.Storage && !slices.Contains(stored, v.Name) {
			errs = append(errs, field.Invalid(path, stored, "must have the storage version "+v.Name))
		}
	}
	for i, name := range stored {
		if !slices.ContainsFunc(obj.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == name }) {
			errs = append(errs, field.Invalid(path.Index(i), name, fmt.Sprintf("missing from spec.versions; %[1]s was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in %[1]s and removes %[1]s from status.storedVersions", name)))
		}
	}
	return errs
}

// validateApproval validates the annotation that a group of the Kubernetes community
// needs. A value that does not change is accepted.
func validateApproval(obj, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	if !apihelpers.IsProtectedCommunityGroup(obj.Spec.Group) {
		return nil
	}
	const annotation = apiextensionsv1.KubeAPIApprovedAnnotation
	state, reason := apihelpers.GetAPIApprovalState(obj.Annotations)
	if old != nil {
		if before, _ := apihelpers.GetAPIApprovalState(old.Annotations); before == state {
			return nil
		}
	}
	path := field.NewPath("metadata", "annotations").Key(annotation)
	switch state {
	case apihelpers.APIApproved, apihelpers.APIApprovalBypassed:
		return nil
	case apihelpers.APIApprovalMissing:
		return field.ErrorList{field.Required(path, reason)}
	}
	return field.ErrorList{field.Invalid(path, obj.Annotations[annotation], reason)}
}
