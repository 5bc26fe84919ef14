package endpoints

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/budget"
	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
	"podium/pkg/storage/pieces"
)

// version serves a resource in one of its versions. All work is done in the storage
// version: objects are converted when they are decoded and encoded.
type version struct {
	*resource
	served     *registry.Version
	rules      *registry.Of[scheme.Object] // of the version, or those of the kind
	subs       map[string]*registry.Subresource
	selectable map[string]bool  // fields that field selectors may use
	forms      []admission.Form // this version first, then the others
	tracker    tracker
}

func newVersion(r *resource, v *registry.Version) *version {
	out := &version{
		resource: r, served: v, rules: v.Rules,
		subs: map[string]*registry.Subresource{}, selectable: map[string]bool{"metadata.name": true},
	}
	if r.Namespaced {
		out.selectable["metadata.namespace"] = true
	}
	if v.Rules.Fields != nil {
		empty := r.New()
		if out.ownRules() {
			empty = v.New()
		}
		for name := range v.Rules.Fields(empty) {
			out.selectable[name] = true
		}
	}
	for _, s := range v.Rules.Subresources {
		out.subs[s.Name] = s
	}
	return out
}

func (v *version) gvk() schema.GroupVersionKind { return v.served.GroupVersionKind }

// empty returns an empty object of the version.
func (v *version) empty() scheme.Object { return v.served.New() }

// ownRules reports whether the version has rules of its own, for its objects. The
// rules of the kind are for objects of the storage version.
func (v *version) ownRules() bool { return v.rules != &v.Of }

// toStorage drops the unknown fields of an object of the version, which it returns
// as errors, sets defaults and converts the object to the storage version. The
// caller must not use obj afterwards.
func (v *version) toStorage(obj scheme.Object) (out scheme.Object, problems []error, err error) {
	if v.ownRules() {
		problems = complete(v.rules, obj)
	}
	if v.served.ToStorage != nil {
		if obj, err = v.served.ToStorage(obj); err != nil {
			return nil, nil, fmt.Errorf("convert from %v: %w", v.gvk(), err)
		}
	}
	dropped := complete(&v.Of, obj)
	if !v.ownRules() {
		problems = dropped
	}
	return obj, problems, nil
}

// complete drops the unknown fields of an object, which it returns as errors, and
// sets defaults.
func complete(rules *registry.Of[scheme.Object], obj scheme.Object) (problems []error) {
	if rules.Prune != nil {
		problems = rules.Prune(obj)
	}
	if rules.Default != nil {
		rules.Default(obj)
	}
	return problems
}

// fromStorage converts an object to the version. The result may share memory with
// obj.
func (v *version) fromStorage(obj scheme.Object) (scheme.Object, error) {
	if v.served.FromStorage == nil {
		return obj, nil
	}
	out, err := v.served.FromStorage(obj)
	if err != nil {
		return nil, fmt.Errorf("convert to %v: %w", v.gvk(), err)
	}
	return out, nil
}

// shown is an object of the storage version with its encodings.
type shown interface {
	wire.Encoded
	Object() scheme.Object
}

// show returns obj with the encodings of the version.
func (v *version) show(obj shown) shown {
	if v.served.FromStorage == nil {
		return obj
	}
	return converted{obj, v}
}

// converted encodes an object of the storage version in another version.
type converted struct {
	shown
	v *version
}

func (c converted) JSON() (pieces.Text, error) {
	obj, err := c.v.fromStorage(c.Object())
	if err != nil {
		return pieces.Text{}, err
	}
	return pieces.Result(scheme.BareJSON(obj))
}

func (c converted) Proto() (pieces.Text, error) {
	obj, err := c.v.fromStorage(c.Object())
	if err != nil {
		return pieces.Text{}, err
	}
	return pieces.Result(scheme.BareProto(obj))
}

// convertor converts between the versions of a resource, for field managers. It
// never modifies or returns its argument.
type convertor struct {
	runtime.ObjectConvertor // for Go types that are not resources
	*resource
}

// New returns an empty object of a version, with type metadata.
func (c convertor) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	v, err := c.version(gvk)
	if err != nil {
		return nil, err
	}
	obj := v.empty()
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return obj, nil
}

func (c convertor) version(gvk schema.GroupVersionKind) (*version, error) {
	for _, v := range c.versions {
		if v.gvk() == gvk {
			return v, nil
		}
	}
	return nil, runtime.NewNotRegisteredErrForKind(c.Resource, gvk)
}

// ConvertToVersion returns a copy of an object, which must have type metadata, in
// another version.
func (c convertor) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	from, err := c.version(in.GetObjectKind().GroupVersionKind())
	if err != nil {
		return nil, err
	}
	want, ok := to.KindForGroupVersionKinds(c.gvks())
	if !ok {
		return nil, runtime.NewNotRegisteredErrForTarget(c.Resource, nil, to)
	}
	v, err := c.version(want)
	if err != nil {
		return nil, err
	}
	obj, err := from.structured(in)
	if err != nil {
		return nil, err
	}
	if from != v {
		clearKind(obj)
		if from.served.ToStorage != nil {
			if obj, err = from.served.ToStorage(obj); err != nil {
				return nil, err
			}
		}
		if obj, err = v.fromStorage(obj); err != nil {
			return nil, err
		}
	}
	obj.GetObjectKind().SetGroupVersionKind(want)
	return obj, nil
}

// structured returns a copy of an object as the Go type of the version.
func (v *version) structured(in runtime.Object) (scheme.Object, error) {
	tree, untyped := in.(*unstructured.Unstructured)
	if !untyped || v.text {
		return in.DeepCopyObject().(scheme.Object), nil
	}
	obj := v.empty()
	if err := budget.QuantitiesTree(tree.Object, obj); err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree.Object, obj); err != nil {
		return nil, err
	}
	return obj, nil
}

func (r *resource) gvks() []schema.GroupVersionKind {
	var out []schema.GroupVersionKind
	for _, v := range r.versions {
		out = append(out, v.gvk())
	}
	return out
}

// offer returns the forms in which a single object can be sent.
func (v *version) offer() wire.Offer {
	return wire.Offer{As: []string{wire.Table, wire.PartialObjectMetadata}, TextOnly: v.text}
}

// listOffer returns the forms in which a list can be sent.
func (v *version) listOffer() wire.Offer {
	return wire.Offer{As: []string{wire.Table, wire.PartialObjectMetadataList}, TextOnly: v.text}
}
