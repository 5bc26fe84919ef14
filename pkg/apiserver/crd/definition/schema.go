package definition

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// These limit the work that one schema may cause. Upstream has no such limits. The
// decoder limits the number of its parts.
const (
	maxDepth = 100
	maxRules = 2_000
)

// tree is a valid structural schema.
type tree struct {
	*structuralschema.Structural
}

// rootFields are the fields that a schema may have at its root if there is a status
// subresource: with others, properties.status alone would mean something else.
var rootFields = []string{"Description", "Type", "Format", "Title", "Maximum", "ExclusiveMaximum", "Minimum", "ExclusiveMinimum", "MaxLength",
	"MinLength", "Pattern", "MaxItems", "MinItems", "UniqueItems", "MultipleOf", "Required", "Items", "Properties", "ExternalDocs", "Example",
	"XPreserveUnknownFields", "XValidations"}

// validateSchema validates a schema and returns its structural form, nil if it has
// none. status is set if there is a status subresource.
func validateSchema(schema *apiextensions.JSONSchemaProps, status bool, path *field.Path) (*tree, field.ErrorList) {
	at := path.Child("openAPIV3Schema")
	if err := checkSize(schema, at); err != nil {
		return nil, field.ErrorList{err}
	}
	var errs field.ErrorList
	if status {
		errs = validateRoot(schema, at, path.Child("openAPIV3Schema.type"))
	}
	if schema.Nullable {
		errs = append(errs, field.Forbidden(path.Child("openAPIV3Schema.nullable"), "nullable cannot be true at the root"))
	}
	structural, notStructural, problems := toStructural(schema, at)
	errs = append(errs, problems...)
	w := &walk{}
	w.visit(node{schema: schema, structural: structural, path: at, root: true, times: 1})
	errs = append(append(errs, w.errs...), w.rules...)
	errs = append(errs, w.total(at)...)
	if len(errs) == 0 && notStructural != nil {
		errs = append(errs, notStructural)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	if _, _, err := validation.NewSchemaValidator(schema); err != nil {
		return nil, field.ErrorList{field.Invalid(path, "", fmt.Sprintf("error building validator: %v", err))}
	}
	return &tree{structural}, nil
}

// toStructural returns the structural form of a schema, or nil and errors. invalid is
// set if the schema has no such form; the other errors of the schema may explain it
// better.
func toStructural(schema *apiextensions.JSONSchemaProps, path *field.Path) (out *structuralschema.Structural, invalid *field.Error, errs field.ErrorList) {
	s, err := structuralschema.NewStructural(schema)
	if err != nil {
		return nil, field.Invalid(path, "", err.Error()), nil
	}
	if errs := structuralschema.ValidateStructural(path, s); len(errs) > 0 {
		return nil, nil, errs
	}
	errs, err = defaulting.ValidateDefaults(context.Background(), path, s, true, true)
	if err != nil {
		errs = append(errs, field.Invalid(path, "", err.Error()))
	}
	if len(errs) > 0 {
		return nil, nil, errs
	}
	return s, nil, nil
}

// validateRoot validates the root of a schema beside a status subresource.
func validateRoot(schema *apiextensions.JSONSchemaProps, path, typePath *field.Path) field.ErrorList {
	v := reflect.ValueOf(*schema)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		switch {
		case v.Field(i).IsZero():
		case name == "Type" && schema.Type != "object":
			return field.ErrorList{field.Invalid(typePath, schema.Type, `only "object" is allowed as the type at the root of the schema if the status subresource is enabled`)}
		case !slices.Contains(rootFields, name):
			return field.ErrorList{field.Invalid(path, "", fmt.Sprintf(`only %v fields are allowed at the root of the schema if the status subresource is enabled`, rootFields))}
		}
	}
	return nil
}

// child is a schema within another one.
type child struct {
	schema     *apiextensions.JSONSchemaProps
	structural *structuralschema.Structural // nil in a logical junctor, where no rules apply
	path       *field.Path
	name       string // of a property
	sort       sort
}

type sort int

const (
	junctor sort = iota // allOf, not, ...
	property
	value // of additionalProperties
	item
)

// children returns the schemas within n, ordered by path.
func (n *node) children() (out []child) {
	s := n.schema
	st := n.structural
	if st == nil {
		st = &structuralschema.Structural{}
	}
	if extra := s.AdditionalProperties; extra != nil && extra.Schema != nil {
		var in *structuralschema.Structural
		if st.AdditionalProperties != nil {
			in = st.AdditionalProperties.Structural
		}
		out = append(out, child{extra.Schema, in, n.path.Child("additionalProperties"), "", value})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		var in *structuralschema.Structural
		if sp, ok := st.Properties[name]; ok {
			in = &sp
		}
		out = append(out, child{&p, in, n.path.Child("properties").Key(name), name, property})
	}
	if s.Items != nil && s.Items.Schema != nil {
		out = append(out, child{s.Items.Schema, st.Items, n.path.Child("items"), "", item})
	}
	if s.Not != nil {
		out = append(out, child{s.Not, nil, n.path.Child("not"), "", junctor})
	}
	for _, j := range []struct {
		name string
		all  []apiextensions.JSONSchemaProps
	}{{"allOf", s.AllOf}, {"oneOf", s.OneOf}, {"anyOf", s.AnyOf}} {
		for i := range j.all {
			out = append(out, child{&j.all[i], nil, n.path.Child(j.name).Index(i), "", junctor})
		}
	}
	return out
}

// checkSize returns an error if a schema is too deep or has too many rules to be looked at.
func checkSize(schema *apiextensions.JSONSchemaProps, path *field.Path) *field.Error {
	type level struct {
		nodes []*apiextensions.JSONSchemaProps
		depth int
	}
	rules := 0
	for l := (level{[]*apiextensions.JSONSchemaProps{schema}, 1}); len(l.nodes) > 0; l.depth++ {
		if l.depth > maxDepth {
			return field.Forbidden(path, fmt.Sprintf("schemas may not be nested deeper than %d levels", maxDepth))
		}
		var below []*apiextensions.JSONSchemaProps
		for _, s := range l.nodes {
			rules += len(s.XValidations)
			n := node{schema: s, path: path}
			for _, c := range n.children() {
				below = append(below, c.schema)
			}
		}
		if rules > maxRules {
			return field.Forbidden(path, fmt.Sprintf("a schema may not have more than %d x-kubernetes-validations rules", maxRules))
		}
		l.nodes = below
	}
	return nil
}

// correlates reports whether the elements of n correspond to elements of the previous
// object, so that rules below n may use oldSelf.
func (n *node) correlates(c child) bool {
	switch c.sort {
	case property:
		return cel.MapIsCorrelatable(n.schema.XMapType)
	case item:
		return n.schema.XListType != nil && *n.schema.XListType == "map"
	}
	return true
}
