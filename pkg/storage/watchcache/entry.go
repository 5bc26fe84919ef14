package watchcache

import (
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/scheme"
	"podium/pkg/storage"
	"podium/pkg/storage/pieces"
)

// Entry is one object at one revision. It is immutable, shared and safe for
// concurrent use: the object, Labels, Fields and the encodings must never be
// modified.
type Entry struct {
	Key      string // storage key
	Revision int64
	Labels   Set // of the object
	Fields   Set // for field selectors: metadata.name, metadata.namespace and the kind's own

	cache *Cache
	// An entry always has its object or its message, the encoding that Restore
	// decodes. If Config.Restore is set, it always has the message, and the object
	// only while the object is in use.
	object atomic.Pointer[decoded]
	json   encoding
	proto  encoding

	deriving sync.Mutex // guards forms
	forms    *derived   // see Derive
}

// decoded is an object decoded from its encoding.
type decoded struct{ scheme.Object }

// Object returns the object, decoding it if necessary. Its resourceVersion is set
// and its type metadata is empty.
func (e *Entry) Object() scheme.Object {
	if d := e.object.Load(); d != nil {
		return d.Object
	}
	obj, err := e.cache.cfg.Restore(e.message().data.Load().Bytes())
	if err != nil {
		panic(fmt.Sprintf("watchcache: %s at revision %d was encoded here and cannot be decoded: %v", e.Key, e.Revision, err))
	}
	e.object.Store(&decoded{obj})
	e.cache.hot.add(e)
	return obj
}

// message returns the encoding that is never dropped.
func (e *Entry) message() *encoding {
	if e.cache.cfg.Text {
		return &e.json
	}
	return &e.proto
}

// Message returns the encoding that the entry always keeps, without type metadata:
// protobuf, or JSON if the kind has no protobuf encoding.
func (e *Entry) Message() (pieces.Text, error) {
	if e.cache.cfg.Text {
		return e.JSON()
	}
	return e.Proto()
}

// drop releases the object if it can be decoded again.
func (e *Entry) drop() {
	if e.cache.cfg.Restore != nil && e.message().data.Load() != nil {
		e.object.Store(nil)
	}
}

// An encoding of more than largeEncoding bytes, beside the message, is kept only while all such
// encodings of the cache have at most largeEncodings bytes: lists of large objects would otherwise double
// the memory that these take.
const (
	largeEncoding  = 32 << 10
	largeEncodings = 64 << 20
)

// encoding is one encoding of an object. It is made on first use, and a sweep drops
// it if it has not been used for a while.
type encoding struct {
	data atomic.Pointer[pieces.Text]
	used atomic.Uint32 // age of the cache at the last use
}

// JSON returns the object encoded as in the items of a list (scheme.BareJSON).
func (e *Entry) JSON() (pieces.Text, error) { return e.encoded(&e.json, scheme.BareJSON) }

// Proto returns the protobuf message of the object, without envelope
// (scheme.BareProto).
func (e *Entry) Proto() (pieces.Text, error) { return e.encoded(&e.proto, scheme.BareProto) }

func (e *Entry) encoded(enc *encoding, encode func(runtime.Object) ([]byte, error)) (pieces.Text, error) {
	if now := e.cache.age.Load(); enc.used.Load() != now { // an unconditional store would bounce the cache line between readers
		enc.used.Store(now)
	}
	if p := enc.data.Load(); p != nil {
		return *p, nil
	}
	data, err := encode(e.Object())
	if err != nil {
		return pieces.Text{}, err
	}
	large := len(data) > largeEncoding && enc != e.message() && e.message().data.Load() != nil
	if large && e.cache.large.Load() > largeEncodings {
		return pieces.Whole(data), nil
	}
	text := e.cache.bases.Pack(data)
	if !enc.data.CompareAndSwap(nil, &text) {
		if p := enc.data.Load(); p != nil {
			return *p, nil
		}
	}
	if large {
		e.cache.large.Add(int64(len(data)))
	}
	return text, nil
}

// large returns how many bytes the entry keeps that count against largeEncodings.
func (e *Entry) large() (sum int64) {
	for _, enc := range [...]*encoding{&e.json, &e.proto} {
		if p := enc.data.Load(); p != nil && p.Len() > largeEncoding && enc != e.message() {
			sum += int64(p.Len())
		}
	}
	return sum
}

// cool drops encodings and forms that were not used since the sweep before last. It
// keeps the message of an object that can be restored.
func (e *Entry) cool(now uint32) {
	e.forget(func(d *derived) bool { return now-d.used.Load() > 1 })
	for _, enc := range [...]*encoding{&e.json, &e.proto} {
		if now-enc.used.Load() > 1 && enc.data.Load() != nil && (e.cache.cfg.Restore == nil || enc != e.message()) {
			enc.data.Store(nil)
		}
	}
}

// newEntry decodes a stored value. If Config.Restore is set, it also encodes the
// message.
func (c *Cache) newEntry(kv storage.KV) (*Entry, error) {
	obj, err := c.cfg.Decode(kv)
	if err != nil {
		return nil, err
	}
	e := c.entryOf(kv.Key, kv.Revision, obj)
	if c.cfg.Restore != nil {
		if _, err := e.Message(); err != nil {
			return nil, err
		}
		c.hot.add(e)
	}
	return e, nil
}

// entryOf returns an entry for obj, with the fields for selectors.
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
	e := &Entry{Key: key, Revision: rev, Labels: c.texts.set(key, obj.GetLabels()), Fields: c.texts.set(key, set), cache: c}
	e.object.Store(&decoded{obj})
	return e
}

// At returns the object as a Deleted event shows it: with rev as resourceVersion.
func (e *Entry) At(rev int64) *Entry {
	obj := shallow(e.Object())
	obj.SetResourceVersion(strconv.FormatInt(rev, 10))
	gone := &Entry{Key: e.Key, Revision: rev, Labels: e.Labels, Fields: e.Fields, cache: e.cache}
	gone.object.Store(&decoded{obj})
	return gone
}

// shallow returns a copy of an object whose metadata can be set without changing
// obj.
func shallow(obj scheme.Object) scheme.Object {
	if _, ok := obj.(runtime.Unstructured); ok { // a shallow copy would share the metadata map
		return obj.DeepCopyObject().(scheme.Object)
	}
	from := reflect.ValueOf(obj).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	return to.Interface().(scheme.Object)
}
