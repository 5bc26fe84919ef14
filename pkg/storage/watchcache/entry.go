package watchcache

import (
	"reflect"
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/scheme"
	"podium/pkg/storage"
)

// Entry is one object at one revision. It is immutable and shared: Object,
// Labels, Fields and the encodings must never be modified.
type Entry struct {
	Key      string // storage key
	Revision int64
	Object   scheme.Object // resourceVersion is set; type metadata is empty
	Labels   labels.Set    // of the object
	Fields   fields.Set    // what field selectors see: metadata.name, metadata.namespace and the kind's own

	age   *atomic.Uint32 // the cache's age, counted in sweeps
	json  encoding
	proto encoding
}

// encoding is one form of an object, made when first asked for and dropped by
// a sweep when nobody asked for a while.
type encoding struct {
	data atomic.Pointer[[]byte]
	used atomic.Uint32 // age of the cache at the last use
}

// JSON is the object as it stands in a list (scheme.BareJSON).
func (e *Entry) JSON() ([]byte, error) { return e.encoded(&e.json, scheme.BareJSON) }

// Proto is the object's bare protobuf message (scheme.BareProto).
func (e *Entry) Proto() ([]byte, error) { return e.encoded(&e.proto, scheme.BareProto) }

func (e *Entry) encoded(enc *encoding, encode func(runtime.Object) ([]byte, error)) ([]byte, error) {
	if now := e.age.Load(); enc.used.Load() != now { // a plain store would bounce the cache line between readers
		enc.used.Store(now)
	}
	if p := enc.data.Load(); p != nil {
		return *p, nil
	}
	data, err := encode(e.Object)
	if err != nil {
		return nil, err
	}
	if !enc.data.CompareAndSwap(nil, &data) {
		if p := enc.data.Load(); p != nil {
			return *p, nil
		}
	}
	return data, nil
}

// cool drops the encodings that were not used since the sweep before last.
func (e *Entry) cool(now uint32) {
	for _, enc := range []*encoding{&e.json, &e.proto} {
		if now-enc.used.Load() > 1 && enc.data.Load() != nil {
			enc.data.Store(nil)
		}
	}
}

// newEntry decodes a stored value.
func (c *Cache) newEntry(kv storage.KV) (*Entry, error) {
	obj, err := c.cfg.Decode(kv)
	if err != nil {
		return nil, err
	}
	return c.entryOf(kv.Key, kv.Revision, obj), nil
}

func (c *Cache) entryOf(key string, rev int64, obj scheme.Object) *Entry {
	var set fields.Set
	if c.cfg.Fields != nil {
		set = c.cfg.Fields(obj)
	}
	if set == nil {
		set = make(fields.Set, 2)
	}
	if _, ok := set["metadata.name"]; !ok {
		set["metadata.name"] = obj.GetName()
	}
	if _, ok := set["metadata.namespace"]; !ok && c.cfg.Kind.Namespaced {
		set["metadata.namespace"] = obj.GetNamespace()
	}
	return &Entry{Key: key, Revision: rev, Object: obj, Labels: obj.GetLabels(), Fields: set, age: &c.age}
}

// at is the same object as it is shown by a deletion: under a later revision.
func (e *Entry) at(rev int64) *Entry {
	obj := shallow(e.Object)
	obj.SetResourceVersion(strconv.FormatInt(rev, 10))
	return &Entry{Key: e.Key, Revision: rev, Object: obj, Labels: e.Labels, Fields: e.Fields, age: e.age}
}

// shallow copies an object so far that its metadata can be set.
func shallow(obj scheme.Object) scheme.Object {
	if _, ok := obj.(runtime.Unstructured); ok { // its metadata lie in a map that a copy would share
		return obj.DeepCopyObject().(scheme.Object)
	}
	from := reflect.ValueOf(obj).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	return to.Interface().(scheme.Object)
}
