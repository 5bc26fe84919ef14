package endpoints

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"podium/pkg/apiserver/budget"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
)

// codec is the encoding of a kind in the store. Only codecs depend on it. They are
// stateless and safe for concurrent use.
type codec interface {
	// encode returns the value to store for obj, which has no resourceVersion, and
	// the bare message for stored.bare (nil if the codec has none).
	encode(gvk schema.GroupVersionKind, obj scheme.Object) (value, bare []byte, err error)
	// open splits a stored value into the kind that it names and its message.
	open(value []byte) (schema.GroupVersionKind, []byte, error)
	// decode reads a message from open, or from a cache entry, into an empty obj.
	decode(message []byte, obj scheme.Object) error
	// same reports whether next, encoded as bare, equals the cached object in have.
	same(next scheme.Object, bare []byte, have *present) (bool, error)
	// size returns the encoded size of an object in bytes.
	size(obj scheme.Object) int
	// trackWork returns an error if an object has so many fields that tracking
	// their managers takes too long.
	trackWork(obj scheme.Object) error
}

// codecOf returns the codec of a kind: protobuf for the kinds with a Go type, JSON
// for the others.
func codecOf(k *scheme.Kind) codec {
	if k.IsUntyped() {
		return jsonCodec{}
	}
	return protoCodec{}
}

// protoCodec stores protobuf messages in the Kubernetes envelope, which names their
// kind.
type protoCodec struct{}

// protoMessage is implemented by the generated code of every API type.
type protoMessage interface {
	runtime.Object
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
	Unmarshal([]byte) error
}

func (protoCodec) encode(gvk schema.GroupVersionKind, obj scheme.Object) (value, bare []byte, err error) {
	m := obj.(protoMessage)
	size := m.Size()
	value = make([]byte, 0, 64+len(gvk.Kind)+len(gvk.Group)+size)
	value = wire.AppendProtoHead(value, gvk, size)
	head := len(value)
	value = append(value, make([]byte, size)...)
	bare = value[head : head+size : head+size]
	if _, err := m.MarshalToSizedBuffer(bare); err != nil {
		return nil, nil, fmt.Errorf("encode %s: %w", gvk.Kind, err)
	}
	return append(value, wire.ProtoTail...), bare, nil
}

func (protoCodec) open(value []byte) (schema.GroupVersionKind, []byte, error) {
	return scheme.OpenProto(value)
}

func (protoCodec) decode(message []byte, obj scheme.Object) error {
	return obj.(protoMessage).Unmarshal(message)
}

func (c protoCodec) same(next scheme.Object, bare []byte, have *present) (bool, error) {
	if c.size(next) != c.size(have.obj) {
		return false, nil
	}
	message, err := have.entry.Proto()
	if err != nil {
		return false, err
	}
	want, err := scheme.WithRevision(bare, have.obj.GetResourceVersion())
	return err == nil && message.Equal(want), err
}

func (protoCodec) size(obj scheme.Object) int { return obj.(protoMessage).Size() }

func (protoCodec) trackWork(obj scheme.Object) error {
	bare, err := scheme.BareProto(obj)
	if err != nil {
		return err
	}
	return budget.TrackWork(bare)
}

// jsonCodec stores objects without a Go type as JSON.
type jsonCodec struct{}

func (jsonCodec) encode(gvk schema.GroupVersionKind, obj scheme.Object) (value, bare []byte, err error) {
	if bare, err = scheme.BareJSON(obj); err != nil {
		return nil, nil, err
	}
	return scheme.TypedJSON(gvk, bare), nil, nil
}

func (jsonCodec) open(value []byte) (schema.GroupVersionKind, []byte, error) {
	var named struct{ Kind, APIVersion string }
	if err := json.Unmarshal(value, &named); err != nil {
		return schema.GroupVersionKind{}, nil, err
	}
	return schema.FromAPIVersionAndKind(named.APIVersion, named.Kind), value, nil
}

func (jsonCodec) decode(message []byte, obj scheme.Object) error {
	u := obj.(*unstructured.Unstructured)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(message, &u.Object); err != nil {
		return err
	}
	clearKind(u)
	return nil
}

func (jsonCodec) same(next scheme.Object, _ []byte, have *present) (bool, error) {
	message, err := have.entry.JSON()
	if err != nil {
		return false, err
	}
	want, err := scheme.BareJSON(next)
	return err == nil && message.Equal(want), err
}

// size returns 0 for an object that cannot be encoded as JSON: the write that
// follows reports the error.
func (jsonCodec) size(obj scheme.Object) int {
	text, _ := scheme.BareJSON(obj)
	return len(text)
}

func (jsonCodec) trackWork(obj scheme.Object) error {
	return budget.TrackTreeWork(obj.(*unstructured.Unstructured).Object)
}

// clearKind removes the type metadata of an object. Inside the API server, the kind
// follows from the resource.
func clearKind(obj runtime.Object) {
	if u, untyped := obj.(*unstructured.Unstructured); untyped {
		delete(u.Object, "apiVersion")
		delete(u.Object, "kind")
		return
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
}
