package endpoints

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"podium/pkg/apiserver/budget"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
)

// body is the undecoded body of a request, with its media type.
type body struct {
	data  []byte
	media string
}

// readBody reads the body and claims the memory for decoding it. It returns a 415
// if the media type cannot be decoded.
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

// decodeObject decodes an object of the version of the call and returns it in the
// storage version with defaults set.
func (c *call) decodeObject(b body, validation string) (scheme.Object, error) {
	if c.res.text && b.media == scheme.Protobuf {
		return nil, wire.UnsupportedMedia(wire.AcceptedMedia()[:2])
	}
	sent := c.res.empty()
	problems, err := decodeAs(b, validation, c.res.gvk(), sent)
	if err != nil {
		return nil, err
	}
	obj, unknown, err := c.res.toStorage(sent)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := c.unknownFields(b, validation, c.res.gvk(), append(problems, unknown...)); err != nil {
		return nil, err
	}
	if req := request.From(c.ctx); req != nil {
		req.Refer(request.Reference{Name: obj.GetName(), UID: string(obj.GetUID()), ResourceVersion: obj.GetResourceVersion()})
	}
	return obj, nil
}

// unknownFields handles unknown and duplicate fields as validation requires: an
// error, warnings, or nothing.
func (c *call) unknownFields(b body, validation string, gvk schema.GroupVersionKind, problems []error) error {
	switch {
	case len(problems) == 0 || validation == metav1.FieldValidationIgnore:
		return nil
	case validation == metav1.FieldValidationStrict:
		return badBody(b.data, gvk, gvk, runtime.NewStrictDecodingError(problems))
	}
	c.warn(problems)
	return nil
}

// decodeInto decodes a body that must be of the kind want into obj, and leaves the
// type metadata of obj empty. It handles unknown and duplicate fields as validation
// requires.
func (c *call) decodeInto(b body, validation string, want schema.GroupVersionKind, obj runtime.Object) error {
	problems, err := decodeAs(b, validation, want, obj)
	if err != nil {
		return err
	}
	return c.unknownFields(b, validation, want, problems)
}

// decodeAs is decodeInto, but returns the unknown and duplicate fields.
func decodeAs(b body, validation string, want schema.GroupVersionKind, obj runtime.Object) (problems []error, err error) {
	named, problems, err := decodeBody(b, validation, want, obj)
	if err != nil {
		return nil, badBody(b.data, named, want, err)
	}
	return problems, checkKind(named, want)
}

// decodeBody fills obj and returns the kind that the body names, completed from
// want, and the unknown and duplicate fields that strict validation rejects.
func decodeBody(b body, validation string, want schema.GroupVersionKind, obj runtime.Object) (named schema.GroupVersionKind, problems []error, err error) {
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
		return decodeYAML(b.data, validation, want, obj)
	}
	return decodeJSON(b.data, validation, want, obj)
}

func unmarshalProto(raw []byte, obj runtime.Object) error {
	m, ok := obj.(interface{ Unmarshal([]byte) error })
	if !ok {
		return fmt.Errorf("%T has no protobuf form", obj)
	}
	if err := budget.QuantitiesProto(raw, obj); err != nil {
		return err
	}
	return m.Unmarshal(raw)
}

// decodeJSON decodes in one pass, so that the kind in the body is known only after
// obj is filled.
func decodeJSON(data []byte, validation string, want schema.GroupVersionKind, obj runtime.Object) (named schema.GroupVersionKind, problems []error, err error) {
	if len(data) == 0 {
		return named, nil, errors.New("unexpected end of JSON input")
	}
	problems, err = unmarshalJSON(data, obj, validation != metav1.FieldValidationIgnore)
	named = obj.GetObjectKind().GroupVersionKind()
	if err != nil { // the fields may be those of another kind, which the message should name
		var meta metav1.TypeMeta
		if kjson.UnmarshalCaseSensitivePreserveInts(data, &meta) == nil {
			named = meta.GroupVersionKind()
		}
	}
	clearKind(obj)
	return fill(named, want), problems, err
}

// unmarshalJSON decodes an object with its type metadata. If strict is set, it
// returns unknown and duplicate fields as problems.
func unmarshalJSON(data []byte, obj runtime.Object, strict bool) (problems []error, err error) {
	into := any(obj)
	tree, untyped := obj.(*unstructured.Unstructured)
	if untyped {
		into = &tree.Object
	} else if err := budget.QuantitiesJSON(data, obj); err != nil {
		return nil, err
	}
	if strict {
		problems, err = kjson.UnmarshalStrict(data, into)
	} else {
		err = kjson.UnmarshalCaseSensitivePreserveInts(data, into)
	}
	if err != nil || !untyped {
		return problems, err
	}
	more, err := cleanMetadata(tree, strict)
	return append(problems, more...), err
}

// cleanMetadata decodes the metadata of an object without a Go type as ObjectMeta
// and back, which checks the types and drops unknown fields. If strict is set, it
// returns the unknown fields as problems.
func cleanMetadata(obj *unstructured.Unstructured, strict bool) (problems []error, err error) {
	if obj.Object == nil {
		return nil, errors.New("the body is not an object")
	}
	raw, err := scheme.TreeJSON(obj.Object["metadata"])
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	var meta metav1.ObjectMeta
	if problems, err = kjson.UnmarshalStrict(raw, &meta); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	clean, err := toMap(&meta)
	if err != nil {
		return nil, err
	}
	if meta.CreationTimestamp.IsZero() {
		delete(clean, "creationTimestamp")
	}
	if meta.ManagedFields != nil && len(meta.ManagedFields) == 0 {
		clean["managedFields"] = []any{} // asks for their removal
	}
	obj.Object["metadata"] = clean
	if !strict {
		return nil, nil
	}
	for i, p := range problems {
		problems[i] = errors.New(strings.Replace(p.Error(), `field "`, `field "metadata.`, 1))
	}
	return problems, nil
}

// decodeYAML converts YAML to JSON and decodes that. Duplicate keys are a problem.
func decodeYAML(data []byte, validation string, want schema.GroupVersionKind, obj runtime.Object) (named schema.GroupVersionKind, problems []error, err error) {
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return named, nil, err
	}
	named, problems, err = decodeJSON(text, validation, want, obj)
	if validation != metav1.FieldValidationIgnore && err == nil {
		if _, twice := yaml.YAMLToJSONStrict(data); twice != nil {
			problems = append([]error{twice}, problems...)
		}
	}
	return named, problems, err
}

// fill returns named with the empty parts taken from want.
func fill(named, want schema.GroupVersionKind) schema.GroupVersionKind {
	if named.Version == "" {
		named.Group, named.Version = want.Group, want.Version
	}
	if named.Kind == "" {
		named.Kind = want.Kind
	}
	return named
}

// checkKind returns a 400 if the kind in the body is not the kind of the URL.
func checkKind(named, want schema.GroupVersionKind) error {
	switch {
	case named == want:
		return nil
	case named.GroupVersion() != want.GroupVersion():
		return apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", named.GroupVersion(), want.GroupVersion()))
	}
	return badBody(nil, named, want, fmt.Errorf("converting (%s) to (%s): unknown conversion", typeOf(named), typeOf(want)))
}

// badBody returns the 400 for a body that cannot be decoded.
func badBody(data []byte, named, want schema.GroupVersionKind, err error) error {
	if named.Kind != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", named.Kind, named.Version, want.Kind, err))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", want.Kind, err, summary(data)))
}

// summary returns the first bytes of a body for an error message.
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
