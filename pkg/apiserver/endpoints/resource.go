package endpoints

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
	"podium/pkg/storage"
	"podium/pkg/storage/pieces"
	"podium/pkg/storage/watchcache"
)

// resource serves one kind: its rules, its cache and its prefix in the store.
type resource struct {
	*registry.Kind
	api      *API
	versions []*version // the storage version first
	codec    codec
	text     bool              // the kind has no protobuf form
	cache    *watchcache.Cache // nil: the kind is not stored, such as SubjectAccessReview
	prefix   string            // of the keys in the store
	gates    bool              // other requests depend on its state: namespaces, their limits and quotas, roles, webhooks, policies, bindings
	managers managers

	// A kind with a Converter has a resource for each version; see registry.Kind.Views.
	// All share the cache of the storage version's, whose objects are of the versions in
	// which they are stored, and have type metadata. Other kinds have only stored, the
	// resource itself.
	stored *resource
	views  []*resource // on stored only: of all versions, stored first
	raw    *resource   // its objects are as those of the cache: nothing is converted
}

// newResource builds a resource and adds its cache to the feed, which blocks until
// the cache is filled or ctx ends.
func newResource(ctx context.Context, a *API, k *registry.Kind) (*resource, error) {
	if k.Convert == nil {
		r := resourceOf(a, k)
		return r, r.addCache(ctx)
	}
	var views []*resource
	for _, view := range k.Views() {
		views = append(views, resourceOf(a, view))
	}
	r := views[0]
	r.views = views
	return r, r.addCache(ctx)
}

// resourceOf returns a resource without a cache.
func resourceOf(a *API, k *registry.Kind) *resource {
	r := &resource{
		Kind:   k,
		api:    a,
		codec:  codecOf(k.Kind),
		text:   k.IsUntyped(),
		prefix: Prefix(k.Kind),
		gates: k.Group == "" && slices.Contains([]string{"limitranges", "namespaces", "resourcequotas"}, k.Resource) ||
			k.Group == rbacv1.GroupName || k.Group == admissionregistrationv1.GroupName,
	}
	for _, v := range k.All() {
		r.versions = append(r.versions, newVersion(r, v))
	}
	r.makeForms()
	r.stored = r
	return r
}

// addCache adds the cache of a resource that is stored to the feed, for all its views.
func (r *resource) addCache(ctx context.Context) error {
	if !r.Stored() {
		return nil
	}
	cfg := watchcache.Config{
		Kind: r.Kind.Kind, Prefix: r.prefix, Decode: r.decode, Restore: r.restore, Text: r.text, Fields: r.fields, Indexed: r.Indexed,
		Follow: r.api.Followers[r.group()],
	}
	if r.Follow != nil {
		cfg.Follow = r.Follow
	}
	if r.converts() {
		cfg.Restore, cfg.Fields = restoreTyped, nil
	}
	cache, err := r.api.Feed.Add(ctx, cfg)
	if err != nil {
		return err
	}
	r.cache = cache
	if !r.converts() {
		return nil
	}
	raw := resourceOf(r.api, r.Kind)
	for _, view := range append(r.views, raw) {
		view.cache, view.stored, view.raw = cache, r, raw
	}
	return nil
}

// Prefix returns the prefix of the keys of a kind in the store.
func Prefix(k *scheme.Kind) string {
	if k.Group == "" {
		return "/registry/" + k.Resource + "/"
	}
	return "/registry/" + k.Resource + "." + k.Group + "/"
}

func (r *resource) group() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Resource}
}

func (r *resource) gvk() schema.GroupVersionKind { return r.GroupVersionKind }

func (v *version) subresource(name string) *registry.Subresource { return v.subs[name] }

// key returns the key of an object in the store.
func (r *resource) key(namespace, name string) string {
	if r.Namespaced {
		return r.prefix + namespace + "/" + name
	}
	return r.prefix + name
}

// scope returns the prefix of the keys of a namespace, or of all objects if
// namespace is "" or the kind is cluster-scoped.
func (r *resource) scope(namespace string) string {
	if r.Namespaced && namespace != "" {
		return r.prefix + namespace + "/"
	}
	return r.prefix
}

// fields returns the fields of an object that field selectors can use.
func (r *resource) fields(obj scheme.Object) fields.Set {
	set, versions := fields.Set(nil), r.versions
	if r.converts() {
		versions = versions[:1]
	}
	for _, v := range versions {
		switch {
		case v.rules.Fields == nil:
		case len(set) == 0:
			set = v.rules.Fields(obj)
		case v.ownRules():
			maps.Copy(set, v.rules.Fields(obj))
		}
	}
	if set == nil {
		set = make(fields.Set, 2)
	}
	set["metadata.name"] = obj.GetName()
	if r.Namespaced {
		set["metadata.namespace"] = obj.GetNamespace()
	}
	return set
}

// decode decodes a stored value, which may be of any version, sets defaults and the
// resourceVersion. If the kind has a Converter, the object remains in its version and has
// type metadata.
func (r *resource) decode(kv storage.KV) (scheme.Object, error) {
	v, obj, err := r.open(kv)
	if err == nil && r.converts() {
		complete(v.rules, obj)
		obj.GetObjectKind().SetGroupVersionKind(v.gvk())
	} else if err == nil {
		obj, _, err = v.toStorage(obj)
	}
	if err != nil {
		return nil, fmt.Errorf("%s at revision %d: %w", kv.Key, kv.Revision, err)
	}
	obj.SetResourceVersion(strconv.FormatInt(kv.Revision, 10))
	return obj, nil
}

// open decodes a stored value as an object of its version.
func (r *resource) open(kv storage.KV) (*version, scheme.Object, error) {
	gvk, message, err := r.codec.open(kv.Value)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(r.versions, func(v *version) bool { return v.gvk() == gvk })
	if i < 0 {
		return nil, nil, fmt.Errorf("it is a %v", gvk)
	}
	obj := r.versions[i].empty()
	return r.versions[i], obj, r.codec.decode(message, obj)
}

// restore decodes the message of a cache entry, which includes the resourceVersion.
func (r *resource) restore(message []byte) (scheme.Object, error) {
	obj := r.New()
	if err := r.codec.decode(message, obj); err != nil {
		return nil, err
	}
	r.setDefaults(obj) // protobuf does not distinguish empty lists from absent ones
	return obj, nil
}

// setDefaults sets the defaults of an object of the storage version.
func (r *resource) setDefaults(obj scheme.Object) {
	if r.Default != nil {
		r.Default(obj)
	}
}

// encode encodes obj for the store, without its resourceVersion. bare is the
// message for stored.bare. obj must not be shared: encode changes it for a moment.
func (r *resource) encode(ctx context.Context, obj scheme.Object) (value, bare []byte, err error) {
	if rv := obj.GetResourceVersion(); rv != "" {
		obj.SetResourceVersion("")
		defer obj.SetResourceVersion(rv)
	}
	switch {
	case r == r.raw:
		gvk := obj.GetObjectKind().GroupVersionKind()
		clearKind(obj)
		defer obj.GetObjectKind().SetGroupVersionKind(gvk)
		return r.codec.encode(gvk, obj)
	case r != r.stored:
		out, err := r.stored.fromVersion(ctx, r.gvk(), obj)
		if err != nil {
			return nil, nil, err
		}
		return r.codec.encode(r.stored.gvk(), out)
	}
	return r.codec.encode(r.gvk(), obj)
}

// stored is an object as a write left it in the store.
type stored struct {
	obj  scheme.Object // resourceVersion is set
	bare []byte        // the protobuf message without resourceVersion; nil: not encoded yet
}

// Object returns the object, which the caller must not modify.
func (s *stored) Object() scheme.Object { return s.obj }

// JSON encodes the object without type metadata, as in the items of a list.
func (s *stored) JSON() (pieces.Text, error) { return pieces.Result(scheme.BareJSON(s.obj)) }

// Proto returns the protobuf message of the object, without the envelope.
func (s *stored) Proto() (pieces.Text, error) {
	if s.bare == nil {
		return pieces.Result(scheme.BareProto(s.obj))
	}
	return pieces.Result(scheme.WithRevision(s.bare, s.obj.GetResourceVersion()))
}
