package registry

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/scheme"
)

// Converter converts objects between the versions of a kind without a Go type, where
// this takes more than another name, such as a call of a webhook. The objects have type
// metadata, and may be of different versions; the results are of the version to, in the
// same order. It does not modify its arguments. It may block, but not forever.
type Converter func(ctx context.Context, to schema.GroupVersionKind, objs []*unstructured.Unstructured) ([]*unstructured.Unstructured, error)

// Views returns a Kind for each version of a kind with a Converter, that of the storage
// version first. In its view, a version has the place of the storage version: all rules
// are about its objects, which are converted only when they are read from the store and
// written to it, and when a further version must be shown.
func (k *Kind) Views() []*Kind {
	all := k.All()
	views := make([]*Kind, len(all))
	for i, v := range all {
		view := &Kind{Kind: v.Kind, Of: *v.Rules}
		view.Unserved, view.Schema, view.SchemaV2, view.Convert, view.Versions = v.Unserved, v.Schema, v.SchemaV2, k.Convert, nil
		for _, other := range slices.Concat(all[:i], all[i+1:]) {
			o := *other
			o.FromStorage, o.ToStorage = k.Convert.one(v.GroupVersionKind, o.GroupVersionKind), k.Convert.one(o.GroupVersionKind, v.GroupVersionKind)
			view.Versions = append(view.Versions, &o)
		}
		views[i] = view
	}
	return views
}

// one returns a function that converts a single object, without type metadata, between
// two versions.
func (c Converter) one(from, to schema.GroupVersionKind) func(scheme.Object) (scheme.Object, error) {
	return func(obj scheme.Object) (scheme.Object, error) {
		in := &unstructured.Unstructured{Object: map[string]any{}}
		for key, value := range obj.(*unstructured.Unstructured).Object {
			in.Object[key] = value
		}
		in.SetGroupVersionKind(from)
		out, err := c(context.Background(), to, []*unstructured.Unstructured{in})
		if err != nil {
			return nil, err
		}
		delete(out[0].Object, "apiVersion")
		delete(out[0].Object, "kind")
		return out[0], nil
	}
}
