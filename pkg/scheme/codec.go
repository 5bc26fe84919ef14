package scheme

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	protoserializer "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/yaml"
)

// The supported media types.
const (
	JSON     = "application/json"
	YAML     = "application/yaml"
	Protobuf = "application/vnd.kubernetes.protobuf"
)

// protoMagic is the prefix of every protobuf body: "k8s" and the encoding style.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
var protoMagic = []byte{'k', '8', 's', 0}

// ErrMediaType is returned for a media type that is not supported.
type ErrMediaType struct{ MediaType string }

func (e *ErrMediaType) Error() string {
	return fmt.Sprintf("media type %q: only %s, %s and %s are understood", e.MediaType, JSON, YAML, Protobuf)
}

type codecs struct {
	lenient, strict, lenientYAML, strictYAML, proto runtime.Serializer
}

func newCodecs(s *runtime.Scheme) codecs {
	text := func(yaml, strict bool) runtime.Serializer {
		return jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, s, s,
			jsonserializer.SerializerOptions{Yaml: yaml, Strict: strict})
	}
	return codecs{
		lenient: text(false, false), strict: text(false, true),
		lenientYAML: text(true, false), strictYAML: text(true, true),
		proto: protoserializer.NewSerializer(s, s),
	}
}

// Decode decodes one object of a registered Go type. fallback is the kind of a body
// that does not name one; it may be nil. Decode returns the object without type
// metadata, and the kind that the body names. It drops unknown fields.
func (s *Scheme) Decode(data []byte, mediaType string, fallback *schema.GroupVersionKind) (runtime.Object, *schema.GroupVersionKind, error) {
	return s.decode(data, mediaType, fallback, false)
}

// DecodeStrict decodes as Decode does. For unknown and duplicate fields, it returns
// an error for which runtime.IsStrictDecodingError holds, together with the object.
func (s *Scheme) DecodeStrict(data []byte, mediaType string, fallback *schema.GroupVersionKind) (runtime.Object, *schema.GroupVersionKind, error) {
	return s.decode(data, mediaType, fallback, true)
}

func (s *Scheme) decode(data []byte, mediaType string, fallback *schema.GroupVersionKind, strict bool) (runtime.Object, *schema.GroupVersionKind, error) {
	codec, err := s.codec(mediaType, strict)
	if err != nil {
		return nil, nil, err
	}
	obj, gvk, err := codec.Decode(data, fallback, nil)
	if obj != nil {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return obj, gvk, err
}

func (c *codecs) codec(mediaType string, strict bool) (runtime.Serializer, error) {
	switch mediaType {
	case JSON:
		if strict {
			return c.strict, nil
		}
		return c.lenient, nil
	case YAML:
		if strict {
			return c.strictYAML, nil
		}
		return c.lenientYAML, nil
	case Protobuf:
		return c.proto, nil
	}
	return nil, &ErrMediaType{mediaType}
}

// Encode encodes an object of a registered Go type with its registered kind and API
// version. The type metadata of obj must be empty. Encode does not modify obj.
func (s *Scheme) Encode(obj runtime.Object, mediaType string) ([]byte, error) {
	gvk, err := s.GVKOf(obj)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	switch mediaType {
	case JSON:
		bare, err := BareJSON(obj)
		if err != nil {
			return nil, err
		}
		return TypedJSON(gvk, bare), nil
	case YAML:
		text, err := s.Encode(obj, JSON)
		if err != nil {
			return nil, err
		}
		return yaml.JSONToYAML(text)
	case Protobuf:
		raw, err := BareProto(obj)
		if err != nil {
			return nil, err
		}
		return TypedProto(gvk, raw)
	}
	return nil, &ErrMediaType{mediaType}
}

// BareJSON encodes an object as in the items of a list: without kind and API
// version. The type metadata of the object must be empty.
func BareJSON(obj runtime.Object) (data []byte, err error) {
	if u, untyped := obj.(*unstructured.Unstructured); untyped {
		data, err = TreeJSON(u.Object)
	} else {
		data, err = json.Marshal(obj)
	}
	if err != nil {
		return nil, fmt.Errorf("encode %T as JSON: %w", obj, err)
	}
	return data, nil
}

// TypedJSON returns a copy of a bare JSON object with kind and API version
// prepended.
func TypedJSON(gvk schema.GroupVersionKind, bare []byte) []byte {
	apiVersion := gvk.GroupVersion().String()
	out := make([]byte, 0, len(bare)+len(gvk.Kind)+len(apiVersion)+len(`{"kind":"","apiVersion":"",`))
	out = append(out, `{"kind":"`...)
	out = append(out, gvk.Kind...)
	out = append(out, `","apiVersion":"`...)
	out = append(out, apiVersion...)
	out = append(out, '"')
	if !bytes.Equal(bare, []byte("{}")) {
		out = append(out, ',')
	}
	return append(out, bare[1:]...)
}

// BareProto encodes an object as a protobuf message without the envelope that names
// its kind, as in the items of a list.
func BareProto(obj runtime.Object) ([]byte, error) {
	m, ok := obj.(interface{ Marshal() ([]byte, error) })
	if !ok {
		return nil, fmt.Errorf("encode %T: the type has no protobuf form", obj)
	}
	data, err := m.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode %T as protobuf: %w", obj, err)
	}
	return data, nil
}

// TypedProto wraps a bare message in the envelope that names its kind. It copies
// raw.
func TypedProto(gvk schema.GroupVersionKind, raw []byte) ([]byte, error) {
	apiVersion, kind := gvk.ToAPIVersionAndKind()
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	out := make([]byte, len(protoMagic)+unknown.Size())
	copy(out, protoMagic)
	if _, err := unknown.MarshalToSizedBuffer(out[len(protoMagic):]); err != nil {
		return nil, fmt.Errorf("encode %s envelope: %w", kind, err)
	}
	return out, nil
}
