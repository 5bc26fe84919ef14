package endpoints

import (
	"fmt"
	"strconv"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
	"podium/pkg/storage"
	"podium/pkg/storage/watchcache"
)

// resource is one kind as it is served: its rules, its cache, its place in the
// store.
type resource struct {
	*registry.Kind
	api        *API
	cache      *watchcache.Cache // nil: the kind is asked, not stored
	prefix     string            // of its keys
	listGVK    schema.GroupVersionKind
	selectable map[string]bool // field selectors it knows
	subs       map[string]*registry.Subresource
	gates      bool // what other requests may do depends on its state: namespaces, roles and bindings
}

func newResource(a *API, k *registry.Kind) *resource {
	r := &resource{
		Kind:       k,
		api:        a,
		prefix:     Prefix(k.Kind),
		listGVK:    k.GroupVersion().WithKind(k.Kind.Kind + "List"),
		selectable: map[string]bool{"metadata.name": true},
		subs:       map[string]*registry.Subresource{},
		gates:      k.Group == "" && k.Resource == "namespaces" || k.Group == rbacv1.GroupName,
	}
	if k.Namespaced {
		r.selectable["metadata.namespace"] = true
	}
	if k.Fields != nil {
		for name := range k.Fields(k.New()) {
			r.selectable[name] = true
		}
	}
	for _, s := range k.Subresources {
		r.subs[s.Name] = s
	}
	if !k.Stored() {
		return r
	}
	r.cache = a.Feed.Cache(watchcache.Config{
		Kind: k.Kind, Prefix: r.prefix, Decode: r.decode, Revive: r.revive, Fields: r.fields, Indexed: k.Indexed,
		Follow: a.Followers[r.group()],
	})
	return r
}

// Prefix is where a kind's objects are in the store.
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

func (r *resource) subresource(name string) *registry.Subresource { return r.subs[name] }

// key is where one object is in the store.
func (r *resource) key(namespace, name string) string {
	if r.Namespaced {
		return r.prefix + namespace + "/" + name
	}
	return r.prefix + name
}

// scope is the prefix of the keys of a namespace, or of all.
func (r *resource) scope(namespace string) string {
	if r.Namespaced && namespace != "" {
		return r.prefix + namespace + "/"
	}
	return r.prefix
}

// fields are what field selectors see of an object.
func (r *resource) fields(obj scheme.Object) fields.Set {
	set := fields.Set{}
	if r.Fields != nil {
		set = r.Fields(obj)
	}
	set["metadata.name"] = obj.GetName()
	if r.Namespaced {
		set["metadata.namespace"] = obj.GetNamespace()
	}
	return set
}

// decode reads a stored value.
func (r *resource) decode(kv storage.KV) (scheme.Object, error) {
	gvk, bare, err := scheme.OpenProto(kv.Value)
	if err != nil {
		return nil, fmt.Errorf("%s at revision %d: %w", kv.Key, kv.Revision, err)
	}
	if gvk != r.gvk() {
		return nil, fmt.Errorf("%s at revision %d is a %v", kv.Key, kv.Revision, gvk)
	}
	obj := r.New()
	if err := obj.(protoMessage).Unmarshal(bare); err != nil {
		return nil, fmt.Errorf("%s at revision %d: %w", kv.Key, kv.Revision, err)
	}
	if r.Default != nil {
		r.Default(obj)
	}
	obj.SetResourceVersion(strconv.FormatInt(kv.Revision, 10))
	return obj, nil
}

// revive reads an object's message, resourceVersion and all.
func (r *resource) revive(proto []byte) (scheme.Object, error) {
	obj := r.New()
	if err := obj.(protoMessage).Unmarshal(proto); err != nil {
		return nil, err
	}
	if r.Default != nil { // what the message cannot tell: an empty list from none
		r.Default(obj)
	}
	return obj, nil
}

// protoMessage is what the generated code of every API type has.
type protoMessage interface {
	runtime.Object
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
	Unmarshal([]byte) error
}

// encode makes the value to store: the envelope around the object without its
// resourceVersion. bare is the message within.
func (r *resource) encode(obj scheme.Object) (value, bare []byte, err error) {
	if rv := obj.GetResourceVersion(); rv != "" {
		obj.SetResourceVersion("")
		defer obj.SetResourceVersion(rv)
	}
	m := obj.(protoMessage)
	size := m.Size()
	value = make([]byte, 0, 64+len(r.Kind.Kind.Kind)+len(r.Group)+size)
	value = wire.AppendProtoHead(value, r.gvk(), size)
	head := len(value)
	value = append(value, make([]byte, size)...)
	bare = value[head : head+size : head+size]
	if _, err := m.MarshalToSizedBuffer(bare); err != nil {
		return nil, nil, fmt.Errorf("encode %s: %w", r.Kind.Kind.Kind, err)
	}
	return append(value, wire.ProtoTail...), bare, nil
}

// stored is an object as a write left it in the store.
type stored struct {
	obj  scheme.Object // resourceVersion is set
	bare []byte        // its message without resourceVersion; nil: not at hand
}

func (s *stored) object() scheme.Object { return s.obj }

func (s *stored) JSON() ([]byte, error) { return scheme.BareJSON(s.obj) }

func (s *stored) Proto() ([]byte, error) {
	if s.bare == nil {
		return scheme.BareProto(s.obj)
	}
	return scheme.WithRevision(s.bare, s.obj.GetResourceVersion())
}
