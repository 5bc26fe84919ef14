package crd

import (
	"slices"
	"sync/atomic"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"

	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
)

// Kind returns how the API server serves the custom resources of a definition, whose
// names must be accepted. While terminating is set, creates fail. convert converts
// between the versions; nil: they differ only in their names.
func Kind(crd *apiextensionsv1.CustomResourceDefinition, terminating *atomic.Bool, convert registry.Converter) *registry.Kind {
	var storage *registry.Version
	var others []*registry.Version
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		one := newVersion(crd, v, terminating)
		if v.Storage {
			storage = one
		} else {
			others = append(others, one)
		}
	}
	k := &registry.Kind{Kind: storage.Kind, Of: *storage.Rules}
	k.Convert, k.Versions, k.Unserved, k.Schema, k.SchemaV2 = convert, others, storage.Unserved, storage.Schema, storage.SchemaV2
	return k
}

// newVersion returns how one version of a definition is served.
func newVersion(crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion, terminating *atomic.Bool) *registry.Version {
	names := crd.Status.AcceptedNames
	kind := scheme.Untyped(scheme.Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: names.Kind},
		Resource:         names.Plural, Singular: names.Singular, List: names.ListKind, ShortNames: names.ShortNames, Categories: names.Categories,
		Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
	})
	r := &rules{
		gvk: kind.GroupVersionKind, resource: kind.GVR().GroupResource(), terminating: terminating,
		shape: newShape(v.Schema), columns: columnsOf(v.AdditionalPrinterColumns), fields: selectableOf(v.SelectableFields),
	}
	if s := v.Subresources; s != nil {
		r.status, r.scale = s.Status != nil, s.Scale
	}
	of := registry.Of[*unstructured.Unstructured]{
		Prune: r.prune, Default: r.setDefaults, Prepare: r.prepare, Validate: r.validate, Warnings: finalizerWarnings,
		Columns: r.columnDefinitions(), Row: r.row, Subresources: r.subresources(), Deprecated: deprecation(crd, v),
	}
	if len(r.fields) > 0 {
		of.Fields = r.selectable
	}
	rules := of.Kind(kind).Of
	out := &registry.Version{Kind: kind, Unserved: !v.Served, Rules: &rules}
	out.Schema, out.SchemaV2 = r.shape.published()
	return out
}

// deprecation returns the warning that a version is deprecated, or "".
func deprecation(crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion) string {
	if !v.Deprecated {
		return ""
	}
	if v.DeprecationWarning != nil {
		return *v.DeprecationWarning
	}
	name := func(version string) string { return crd.Spec.Group + "/" + version + " " + crd.Spec.Names.Kind }
	text := name(v.Name) + " is deprecated"
	var better []string
	for _, other := range crd.Spec.Versions {
		if other.Served && !other.Deprecated && apiversion.CompareKubeAwareVersionStrings(v.Name, other.Name) < 0 {
			better = append(better, other.Name)
		}
	}
	if len(better) == 0 {
		return text
	}
	return text + "; use " + name(slices.MaxFunc(better, apiversion.CompareKubeAwareVersionStrings))
}

// internalSchema converts a schema to upstream's internal version, or returns nil if
// there is none.
func internalSchema(v *apiextensionsv1.CustomResourceValidation) *apiextensions.JSONSchemaProps {
	if v == nil || v.OpenAPIV3Schema == nil {
		return nil
	}
	out := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.OpenAPIV3Schema.DeepCopy(), out, nil); err != nil {
		return nil // unreachable: the definition was validated
	}
	return out
}
