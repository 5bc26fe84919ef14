package scheme

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	protoserializer "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/yaml"
)

// The media types an object can be read from and written as.
const (
	JSON     = "application/json"
	YAML     = "application/yaml"
	Protobuf = "application/vnd.kubernetes.protobuf"
)

// protoMagic opens every protobuf body: "k8s" and the encoding style.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
var protoMagic = []byte{'k', '8', 's', 0}

// ErrMediaType says that a body's media type is none of the three above.
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

// Decode reads one object of a registered Go type. fallback names the kind of a
// body that does not say; it may be nil. The object comes back without type
// metadata (its Go type says it), beside the kind the body named. Unknown
// fields are dropped.
func (s *Scheme) Decode(data []byte, mediaType string, fallback *schema.GroupVersionKind) (runtime.Object, *schema.GroupVersionKind, error) {
	return s.decode(data, mediaType, fallback, false)
}

// DecodeStrict is Decode, but unknown and duplicate fields give an error for
// which runtime.IsStrictDecodingError holds; the object is returned all the same.
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

// Encode writes an object of a registered Go type, with its kind and API
// version, whatever its own type metadata say. It does not touch the object.
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

// BareJSON is an object's JSON as it stands in a list: without kind and API version.
// The object's own type metadata must be empty.
func BareJSON(obj runtime.Object) ([]byte, error) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %T as JSON: %w", obj, err)
	}
	return data, nil
}

// TypedJSON puts kind and API version in front of a bare JSON object.
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

// BareProto is an object's protobuf message as it stands in a list: without
// the envelope that names its kind.
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

// TypedProto wraps a bare message in the envelope that names its kind.
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
