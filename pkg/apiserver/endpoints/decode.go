package endpoints

import (
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
)

// body is a request's body as it came.
type body struct {
	data  []byte
	media string
}

// readBody reads the body and checks that its media type can be decoded.
func (c *call) readBody() (body, error) {
	media := wire.ContentType(c.r)
	switch media {
	case "", "*/*":
		media = scheme.JSON
	case scheme.JSON, scheme.YAML, scheme.Protobuf:
	default:
		return body{}, wire.UnsupportedMedia(wire.AcceptedMedia())
	}
	data, err := wire.ReadBody(c.w, c.r)
	if err == nil {
		err = c.claim(data, media)
	}
	return body{data, media}, err
}

// decodeObject reads an object of the call's kind, defaulted.
func (c *call) decodeObject(b body, validation string) (scheme.Object, error) {
	obj := c.res.New()
	if err := c.decodeInto(b, validation, c.res.gvk(), obj); err != nil {
		return nil, err
	}
	if req := request.From(c.ctx); req != nil {
		req.Refer(request.Reference{Name: obj.GetName(), UID: string(obj.GetUID()), ResourceVersion: obj.GetResourceVersion()})
	}
	if c.res.Default != nil {
		c.res.Default(obj)
	}
	return obj, nil
}

// decodeInto reads a body that must be of the kind want into obj, and leaves
// obj's type metadata empty. What validation says is done with unknown and
// duplicate fields.
func (c *call) decodeInto(b body, validation string, want schema.GroupVersionKind, obj runtime.Object) error {
	named, problems, err := decodeBody(c.res.api.Scheme, b, validation, want, obj)
	if err == nil {
		err = checkKind(named, want)
	} else {
		err = badBody(b.data, named, want, err)
	}
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		if validation == metav1.FieldValidationStrict {
			return badBody(b.data, named, want, runtime.NewStrictDecodingError(problems))
		}
		c.warn(problems)
	}
	return nil
}

// decodeBody fills obj and returns the kind the body names, with want's parts
// where it names none, and what a strict reader would not accept.
func decodeBody(s *scheme.Scheme, b body, validation string, want schema.GroupVersionKind, obj runtime.Object) (named schema.GroupVersionKind, problems []error, err error) {
	switch b.media {
	case scheme.Protobuf:
		named, raw, err := scheme.OpenProto(b.data)
		if err != nil {
			return named, nil, err
		}
		if named = fill(named, want); named != want {
			return named, nil, nil
		}
		return named, nil, unmarshalProto(raw, obj)
	case scheme.YAML:
		return decodeYAML(s, b, validation, want, obj)
	}
	return decodeJSON(b.data, validation, want, obj)
}

func unmarshalProto(raw []byte, obj runtime.Object) error {
	m, ok := obj.(interface{ Unmarshal([]byte) error })
	if !ok {
		return fmt.Errorf("%T has no protobuf form", obj)
	}
	return m.Unmarshal(raw)
}

// decodeJSON decodes in one pass: which kind the body names is seen when it is
// done.
func decodeJSON(data []byte, validation string, want schema.GroupVersionKind, obj runtime.Object) (named schema.GroupVersionKind, problems []error, err error) {
	if len(data) == 0 {
		return named, nil, errors.New("unexpected end of JSON input")
	}
	if validation == metav1.FieldValidationIgnore {
		err = kjson.UnmarshalCaseSensitivePreserveInts(data, obj)
	} else {
		problems, err = kjson.UnmarshalStrict(data, obj)
	}
	named = obj.GetObjectKind().GroupVersionKind()
	if err != nil { // may be another kind's fields; the message should name the kind
		var meta metav1.TypeMeta
		if kjson.UnmarshalCaseSensitivePreserveInts(data, &meta) == nil {
			named = meta.GroupVersionKind()
		}
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return fill(named, want), problems, err
}

func decodeYAML(s *scheme.Scheme, b body, validation string, want schema.GroupVersionKind, obj runtime.Object) (named schema.GroupVersionKind, problems []error, err error) {
	decode := s.DecodeStrict
	if validation == metav1.FieldValidationIgnore {
		decode = s.Decode
	}
	got, gvk, err := decode(b.data, b.media, &want)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		problems, err = strict.Errors(), nil
	}
	if gvk != nil {
		named = *gvk
	}
	if err != nil {
		return named, nil, err
	}
	if reflect.TypeOf(got) == reflect.TypeOf(obj) {
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(got).Elem())
	}
	return fill(named, want), problems, nil
}

// fill completes what a body says of its kind.
func fill(named, want schema.GroupVersionKind) schema.GroupVersionKind {
	if named.Version == "" {
		named.Group, named.Version = want.Group, want.Version
	}
	if named.Kind == "" {
		named.Kind = want.Kind
	}
	return named
}

// checkKind compares the kind a body names with the one the URL wants.
func checkKind(named, want schema.GroupVersionKind) error {
	switch {
	case named == want:
		return nil
	case named.GroupVersion() != want.GroupVersion():
		return apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", named.GroupVersion(), want.GroupVersion()))
	}
	return badBody(nil, named, want, fmt.Errorf("converting (%s) to (%s): unknown conversion", typeOf(named), typeOf(want)))
}

// badBody is the 400 of a body that cannot be decoded.
func badBody(data []byte, named, want schema.GroupVersionKind, err error) error {
	if named.Kind != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", named.Kind, named.Version, want.Kind, err))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", want.Kind, err, summary(data)))
}

// summary shows the beginning of a body in an error message.
func summary(data []byte) string {
	const most = 30
	switch {
	case len(data) == 0:
		return "<empty>"
	case !printable(data[:min(len(data), most)]):
		return hex.EncodeToString(data[:min(len(data), most)]) + " ..."
	case len(data) > most:
		return string(data[:most]) + " ..."
	}
	return string(data)
}

func printable(data []byte) bool {
	for _, b := range data {
		if b < ' ' && b != '\n' && b != '\t' && b != '\r' || b >= 0x7f {
			return false
		}
	}
	return true
}
