package definition

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	registration "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/jsonpath"

	"podium/pkg/fieldcheck"
)

// maxSelectable is the number of selectable fields that a version may have.
const maxSelectable = 8

func validateSubresources(s *apiextensions.CustomResourceSubresources, path *field.Path) (errs field.ErrorList) {
	if s == nil || s.Scale == nil {
		return nil
	}
	check := func(name, value, detail string, below ...string) {
		path := path.Child(name)
		if problems := validatePath(value, path); len(problems) > 0 {
			errs = append(errs, problems...)
		} else if !slices.ContainsFunc(below, func(root string) bool { return strings.HasPrefix(value, root) }) {
			errs = append(errs, field.Invalid(path, value, "should be a json path under "+detail))
		}
	}
	required := func(name, value, below string) {
		if value == "" {
			errs = append(errs, field.Required(path.Child(name), ""))
			return
		}
		check(name, value, below, below+".")
	}
	required("scale.specReplicasPath", s.Scale.SpecReplicasPath, ".spec")
	required("scale.statusReplicasPath", s.Scale.StatusReplicasPath, ".status")
	if selector := s.Scale.LabelSelectorPath; selector != nil && *selector != "" {
		check("scale.labelSelectorPath", *selector, "either .spec or .status", ".spec.", ".status.")
	}
	return errs
}

// validatePath validates a path that must be in the dot notation.
func validatePath(text string, path *field.Path) field.ErrorList {
	if !strings.HasPrefix(text, ".") {
		return field.ErrorList{field.Invalid(path, text, "must be a simple json path starting with .")}
	}
	return nil
}

// validateColumn validates a printer column. Upstream accepts a JSON path that does
// not parse and then shows no columns at all.
func validateColumn(c *apiextensions.CustomResourceColumnDefinition, path *field.Path) (errs field.ErrorList) {
	types := []string{"boolean", "date", "integer", "number", "string"}
	formats := []string{"byte", "date", "date-time", "double", "float", "int32", "int64", "password"}
	if c.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	switch detail := "must be one of " + strings.Join(types, ","); {
	case c.Type == "":
		errs = append(errs, field.Required(path.Child("type"), detail))
	case !slices.Contains(types, c.Type):
		errs = append(errs, field.Invalid(path.Child("type"), c.Type, detail))
	}
	if c.Format != "" && !slices.Contains(formats, c.Format) {
		errs = append(errs, field.Invalid(path.Child("format"), c.Format, "must be one of "+strings.Join(formats, ",")))
	}
	where := path.Child("JSONPath")
	if c.JSONPath == "" {
		return append(errs, field.Required(where, ""))
	}
	if problems := validatePath(c.JSONPath, where); len(problems) > 0 {
		return append(errs, problems...)
	}
	if err := jsonpath.New(c.Name).Parse("{" + c.JSONPath + "}"); err != nil {
		errs = append(errs, field.Invalid(where, c.JSONPath, err.Error()))
	}
	return errs
}

// validateSelectable validates selectable fields. schema is nil if the version has
// none, or none that is valid.
func validateSelectable(selectable []apiextensions.SelectableField, schema *tree, path *field.Path) (errs field.ErrorList) {
	if schema == nil {
		return nil
	}
	seen := map[string]bool{}
	for i, f := range selectable {
		path := path.Index(i).Child("jsonPath")
		if f.JSONPath == "" {
			errs = append(errs, field.Required(path, ""))
			continue
		}
		at, found, err := cel.ValidFieldPath(f.JSONPath, schema.Structural, cel.WithFieldPathAllowArrayNotation(false))
		if err != nil {
			errs = append(errs, field.Invalid(path, f.JSONPath, fmt.Sprintf("is an invalid path: %v", err)))
			continue
		}
		if at.Root().String() == "metadata" {
			errs = append(errs, field.Invalid(path, f.JSONPath, "must not point to fields in metadata"))
		}
		if found == nil || !slices.Contains([]string{"string", "boolean", "integer"}, found.Type) {
			errs = append(errs, field.Invalid(path, f.JSONPath, "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."))
		}
		if seen[at.String()] {
			errs = append(errs, field.Duplicate(path, f.JSONPath))
		}
		seen[at.String()] = true
	}
	if len(seen) > maxSelectable {
		errs = append(errs, field.TooMany(path, len(seen), maxSelectable))
	}
	return errs
}

// validateConversion validates how objects are converted between versions.
func validateConversion(c *apiextensions.CustomResourceConversion, path *field.Path) field.ErrorList {
	if c == nil {
		return nil
	}
	errs := oneOf(path.Child("strategy"), c.Strategy, apiextensions.NoneConverter, apiextensions.WebhookConverter)
	if c.Strategy == apiextensions.WebhookConverter {
		return append(errs, validateConverter(c, path)...)
	}
	if c.WebhookClientConfig != nil {
		errs = append(errs, field.Forbidden(path.Child("webhookClientConfig"), "should not be set when strategy is not set to Webhook"))
	}
	if len(c.ConversionReviewVersions) > 0 {
		errs = append(errs, field.Forbidden(path.Child("conversionReviewVersions"), "should not be set when strategy is not set to Webhook"))
	}
	return errs
}

// validateConverter validates a conversion webhook.
func validateConverter(c *apiextensions.CustomResourceConversion, path *field.Path) (errs field.ErrorList) {
	at := path.Child("webhookClientConfig")
	if to := c.WebhookClientConfig; to == nil {
		errs = append(errs, field.Required(at, "required when strategy is set to Webhook"))
	} else {
		client := &registration.WebhookClientConfig{URL: to.URL}
		if s := to.Service; s != nil {
			client.Service = &registration.ServiceReference{Namespace: s.Namespace, Name: s.Name, Path: s.Path, Port: &s.Port}
		}
		errs = append(errs, fieldcheck.WebhookClient(client, at)...)
	}
	return append(errs, fieldcheck.ReviewVersions(c.ConversionReviewVersions, "", path.Child("conversionReviewVersions"))...)
}

// validateBundle refuses a change that makes the CA bundle of a conversion webhook
// unusable. Upstream accepts an unusable one from the start.
func validateBundle(spec, old *apiextensionsv1.CustomResourceDefinitionSpec, path *field.Path) field.ErrorList {
	if bundle := unusableBundle(spec); bundle != nil && unusableBundle(old) == nil {
		return field.ErrorList{field.Invalid(path, bundle, "unable to load root certificates: unable to parse bytes as PEM block")}
	}
	return nil
}

// unusableBundle returns the CA bundle of a conversion webhook if it has no certificate.
func unusableBundle(spec *apiextensionsv1.CustomResourceDefinitionSpec) []byte {
	if c := spec.Conversion; c == nil || c.Webhook == nil || c.Webhook.ClientConfig == nil || len(c.Webhook.ClientConfig.CABundle) == 0 {
		return nil
	}
	if bundle := spec.Conversion.Webhook.ClientConfig.CABundle; !x509.NewCertPool().AppendCertsFromPEM(bundle) {
		return bundle
	}
	return nil
}
