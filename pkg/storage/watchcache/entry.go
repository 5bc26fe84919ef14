package watchcache

import (
	"fmt"
	"reflect"
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/scheme"
	"podium/pkg/storage"
)

// Entry is one object at one revision. It is immutable and shared: the object,
// Labels, Fields and the encodings must never be modified.
type Entry struct {
	Key      string // storage key
	Revision int64
	Labels   labels.Set // of the object
	Fields   fields.Set // what field selectors see: metadata.name, metadata.namespace and the kind's own

	cache *Cache
	// An entry always has its object or its message. Where the kind can be
	// revived, it has the message, and the object only while it is in use.
	object atomic.Pointer[decoded]
	json   encoding
	proto  encoding
}

// decoded is an object in the form the program works with.
type decoded struct{ scheme.Object }

// Object is the entry's object: resourceVersion is set, type metadata is empty.
func (e *Entry) Object() scheme.Object {
	if d := e.object.Load(); d != nil {
		return d.Object
	}
	obj, err := e.cache.cfg.Revive(*e.proto.data.Load())
	if err != nil {
		panic(fmt.Sprintf("watchcache: %s at revision %d was encoded here and cannot be decoded: %v", e.Key, e.Revision, err))
	}
	e.object.Store(&decoded{obj})
	e.cache.hot.add(e)
	return obj
}

// drop forgets the object if it can be made again.
func (e *Entry) drop() {
	if e.cache.cfg.Revive != nil && e.proto.data.Load() != nil {
		e.object.Store(nil)
	}
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
	if now := e.cache.age.Load(); enc.used.Load() != now { // a plain store would bounce the cache line between readers
		enc.used.Store(now)
	}
	if p := enc.data.Load(); p != nil {
		return *p, nil
	}
	data, err := encode(e.Object())
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

// cool drops the encodings that were not used since the sweep before last. The
// message of an object that can be revived stays.
func (e *Entry) cool(now uint32) {
	if now-e.json.used.Load() > 1 && e.json.data.Load() != nil {
		e.json.data.Store(nil)
	}
	if e.cache.cfg.Revive == nil && now-e.proto.used.Load() > 1 && e.proto.data.Load() != nil {
		e.proto.data.Store(nil)
	}
}

// newEntry decodes a stored value.
func (c *Cache) newEntry(kv storage.KV) (*Entry, error) {
	obj, err := c.cfg.Decode(kv)
	if err != nil {
		return nil, err
	}
	e := c.entryOf(kv.Key, kv.Revision, obj)
	if c.cfg.Revive != nil {
		if _, err := e.Proto(); err != nil {
			return nil, err
		}
		c.hot.add(e)
	}
	return e, nil
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
	e := &Entry{Key: key, Revision: rev, Labels: obj.GetLabels(), Fields: set, cache: c}
	e.object.Store(&decoded{obj})
	return e
}

// at is the same object as it is shown by a deletion: under a later revision.
func (e *Entry) at(rev int64) *Entry {
	obj := shallow(e.Object())
	obj.SetResourceVersion(strconv.FormatInt(rev, 10))
	gone := &Entry{Key: e.Key, Revision: rev, Labels: e.Labels, Fields: e.Fields, cache: e.cache}
	gone.object.Store(&decoded{obj})
	return gone
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
