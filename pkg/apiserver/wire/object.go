package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"podium/pkg/scheme"
	"podium/pkg/storage/pieces"
)

// Encoded is an object with its encodings, without type metadata; they may be
// cached. The results are shared and must not be modified.
type Encoded interface {
	JSON() (pieces.Text, error)
	Proto() (pieces.Text, error)
}

// Bare returns an Encoded of an object, whose type metadata must be empty.
func Bare(obj runtime.Object) Encoded { return bare{obj} }

type bare struct{ obj runtime.Object }

func (b bare) JSON() (pieces.Text, error)  { return pieces.Result(scheme.BareJSON(b.obj)) }
func (b bare) Proto() (pieces.Text, error) { return pieces.Result(scheme.BareProto(b.obj)) }

// WriteObject writes one object as the response. If it returns an error, either
// nothing has been written or the connection is broken.
func WriteObject(w http.ResponseWriter, r *http.Request, code int, f Format, gvk schema.GroupVersionKind, obj Encoded) error {
	switch f.Media {
	case scheme.Protobuf:
		raw, err := obj.Proto()
		if err != nil {
			return err
		}
		head := AppendProtoHead(nil, gvk, raw.Len())
		o := Begin(w, r, code, scheme.Protobuf, len(head)+raw.Len()+len(ProtoTail))
		o.Write(head)
		raw.Write(o, 0)
		o.Write([]byte(ProtoTail))
		return o.Close()
	case scheme.YAML:
		raw, err := obj.JSON()
		if err != nil {
			return err
		}
		text, err := yaml.JSONToYAML(scheme.TypedJSON(gvk, raw.Bytes()))
		if err != nil {
			return err
		}
		o := Begin(w, r, code, scheme.YAML, len(text))
		o.Write(text)
		return o.Close()
	}
	raw, err := obj.JSON()
	if err != nil {
		return err
	}
	if f.Pretty {
		var b bytes.Buffer
		if err := json.Indent(&b, scheme.TypedJSON(gvk, raw.Bytes()), "", "  "); err != nil {
			return err
		}
		o := Begin(w, r, code, scheme.JSON, b.Len())
		o.Write(b.Bytes())
		return o.Close()
	}
	head := AppendJSONHead(nil, gvk)
	if raw.Len() == len("{}") {
		head = head[:len(head)-1] // no comma before the brace
	}
	o := Begin(w, r, code, scheme.JSON, len(head)+raw.Len()-1+1)
	o.Write(head)
	raw.Write(o, 1)
	o.Write([]byte{'\n'})
	return o.Close()
}

// WriteText writes an encoded body as the response.
func WriteText(w http.ResponseWriter, r *http.Request, code int, contentType string, body []byte) error {
	o := Begin(w, r, code, contentType, len(body))
	o.Write(body)
	return o.Close()
}

// AppendJSONHead appends the beginning of a JSON object with its kind and API
// version, including the comma that precedes further fields.
func AppendJSONHead(b []byte, gvk schema.GroupVersionKind) []byte {
	b = append(b, `{"kind":"`...)
	b = append(b, gvk.Kind...)
	b = append(b, `","apiVersion":"`...)
	b = appendAPIVersion(b, gvk)
	return append(b, `",`...)
}

func appendAPIVersion(b []byte, gvk schema.GroupVersionKind) []byte {
	if gvk.Group != "" {
		b = append(b, gvk.Group...)
		b = append(b, '/')
	}
	return append(b, gvk.Version...)
}

// ProtoTail ends the envelope that AppendProtoHead begins: an empty content
// encoding and content type.
const ProtoTail = "\x1a\x00\x22\x00"

// AppendProtoHead appends the beginning of the envelope of a protobuf message of
// size bytes.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
func AppendProtoHead(b []byte, gvk schema.GroupVersionKind, size int) []byte {
	b = append(b, "k8s\x00"...)
	apiVersion := len(gvk.Version)
	if gvk.Group != "" {
		apiVersion += len(gvk.Group) + 1
	}
	b = append(b, 1<<3|2)
	b = binary.AppendUvarint(b, uint64(SizeBytes(apiVersion)+SizeBytes(len(gvk.Kind))))
	b = append(b, 1<<3|2)
	b = binary.AppendUvarint(b, uint64(apiVersion))
	b = appendAPIVersion(b, gvk)
	b = append(b, 2<<3|2)
	b = binary.AppendUvarint(b, uint64(len(gvk.Kind)))
	b = append(b, gvk.Kind...)
	b = append(b, 2<<3|2)
	return binary.AppendUvarint(b, uint64(size))
}

// SizeBytes returns the size of a length-delimited protobuf field with n bytes of
// content and a number below 16.
func SizeBytes(n int) int {
	size := 2 + n
	for v := n >> 7; v > 0; v >>= 7 {
		size++
	}
	return size
}
