package endpoints

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
	"podium/pkg/storage/pieces"
)

var statusGVK = schema.GroupVersionKind{Version: "v1", Kind: "Status"}

// objectFrame encodes an event with an object, or with its metadata if the client
// requested PartialObjectMetadata.
func (s *stream) objectFrame(event watch.EventType, obj shown) ([]byte, error) {
	if s.f.As != nil {
		return eventFrame(s.f.Media, event, s.f.As.GroupVersion().WithKind(wire.PartialObjectMetadata), partial{obj, s.res.text})
	}
	return eventFrame(s.f.Media, event, s.res.gvk(), obj)
}

// tableFrame encodes an event with a table of one row. Only the first table of a
// stream has column definitions.
func (s *stream) tableFrame(event watch.EventType, r shown) ([]byte, error) {
	t, err := s.table(s.f, []shown{r}, metav1.ListMeta{ResourceVersion: r.Object().GetResourceVersion()}, !s.columns)
	if err != nil {
		return nil, err
	}
	s.columns = true
	text, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encode table: %w", err)
	}
	return appendJSONEvent(nil, event, text), nil
}

// eventFrame encodes one event for the wire: a line of JSON, or a protobuf
// WatchEvent with a length prefix.
func eventFrame(media string, event watch.EventType, gvk schema.GroupVersionKind, obj wire.Encoded) ([]byte, error) {
	if media != scheme.Protobuf {
		bare, err := obj.JSON()
		if err != nil {
			return nil, err
		}
		b := appendJSONEventHead(make([]byte, 0, bare.Len()+128), event, gvk, bare)
		return append(bare.AppendTo(b, 1), jsonEventTail...), nil
	}
	bare, err := obj.Proto()
	if err != nil {
		return nil, err
	}
	return protoEvent(event, gvk, bare), nil
}

const jsonEventTail = "}\n"

// appendJSONEventHead appends the beginning of an event. The caller appends the
// bare object without its opening brace, and jsonEventTail.
func appendJSONEventHead(b []byte, event watch.EventType, gvk schema.GroupVersionKind, bare pieces.Text) []byte {
	b = append(b, `{"type":"`...)
	b = append(b, event...)
	b = append(b, `","object":`...)
	b = wire.AppendJSONHead(b, gvk)
	if bare.Len() == len("{}") {
		b = b[:len(b)-1] // no comma before the brace
	}
	return b
}

func appendJSONEvent(b []byte, event watch.EventType, object []byte) []byte {
	b = append(b, `{"type":"`...)
	b = append(b, event...)
	b = append(b, `","object":`...)
	b = append(b, object...)
	return append(b, jsonEventTail...)
}

// protoEvent encodes a protobuf watch frame. It nests, from the outside in: the
// length of the frame, the WatchEvent, the RawExtension of the object, the envelope
// of the object, its message.
func protoEvent(event watch.EventType, gvk schema.GroupVersionKind, bare pieces.Text) []byte {
	head := wire.AppendProtoHead(make([]byte, 0, 96), gvk, bare.Len())
	object := len(head) + bare.Len() + len(wire.ProtoTail)
	extension := wire.SizeBytes(object)
	size := wire.SizeBytes(len(event)) + wire.SizeBytes(extension)

	b := make([]byte, 4, 4+size)
	binary.BigEndian.PutUint32(b, uint32(size))
	b = append(b, 1<<3|2)
	b = binary.AppendUvarint(b, uint64(len(event)))
	b = append(b, event...)
	b = append(b, 2<<3|2)
	b = binary.AppendUvarint(b, uint64(extension))
	b = append(b, 1<<3|2)
	b = binary.AppendUvarint(b, uint64(object))
	b = append(b, head...)
	b = bare.AppendTo(b, 0)
	return append(b, wire.ProtoTail...)
}
