package admission

import (
	"errors"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	kjson "sigs.k8s.io/json"

	"podium/pkg/scheme"
)

// Form is how clients see the objects of a request: a version in which the
// resource is served, or the view that a subresource gives. Webhooks and
// policies see objects in a form; the other plugins see the storage version.
type Form struct {
	Resource schema.GroupVersionResource
	Kind     schema.GroupVersionKind

	// Show returns the form of a stored object, without type metadata; the two may
	// share memory. Replace makes obj what the changed form says, with defaults; it
	// takes over the form. If both are nil, the form is the object itself.
	Show    func(obj runtime.Object) (runtime.Object, error)
	Replace func(obj, changed runtime.Object) error

	// Types returns the schema of the form, for merges; nil: it has none.
	Types func() (managedfields.TypeConverter, error)
}

// InForms returns the forms of the request, its own first. There is at least
// one.
func (a *Attributes) InForms() []Form {
	if len(a.Forms) > 0 {
		return a.Forms
	}
	return []Form{{Resource: a.Resource, Kind: a.Kind}}
}

// Subject returns the object of the request or the body of an action; nil if
// there is neither.
func (a *Attributes) Subject() runtime.Object {
	if a.Object != nil {
		return a.Object
	}
	return a.Body
}

// shown returns obj in the form.
func (f *Form) shown(obj runtime.Object) (runtime.Object, error) {
	if f.Show == nil {
		return obj, nil
	}
	return f.Show(obj)
}

// JSON returns the form of obj as JSON, with type metadata; nil if obj is nil.
func (f *Form) JSON(obj runtime.Object) ([]byte, error) {
	if obj == nil || reflect.ValueOf(obj).IsNil() {
		return nil, nil
	}
	shown, err := f.shown(obj)
	if err != nil {
		return nil, err
	}
	bare, err := scheme.BareJSON(shown)
	if err != nil {
		return nil, err
	}
	return scheme.TypedJSON(f.Kind, bare), nil
}

// Tree returns the form of obj as maps and lists, with type metadata; nil if obj
// is nil.
func (f *Form) Tree(obj runtime.Object) (map[string]any, error) {
	if obj == nil || reflect.ValueOf(obj).IsNil() {
		return nil, nil
	}
	shown, err := f.shown(obj)
	if err != nil {
		return nil, err
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(shown)
	if err != nil {
		return nil, err
	}
	tree["apiVersion"], tree["kind"] = f.Kind.GroupVersion().String(), f.Kind.Kind
	return tree, nil
}

// Set replaces obj by its changed form, which is JSON. It leaves obj unchanged
// if the JSON does not decode.
func (f *Form) Set(obj runtime.Object, text []byte) error {
	shown, err := f.shown(obj)
	if err != nil {
		return err
	}
	if _, untyped := shown.(*unstructured.Unstructured); untyped {
		changed := &unstructured.Unstructured{}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &changed.Object); err != nil {
			return err
		}
		if changed.Object == nil {
			return errors.New("the patched document is not an object")
		}
		delete(changed.Object, "apiVersion")
		delete(changed.Object, "kind")
		return f.replace(obj, changed)
	}
	changed := reflect.New(reflect.TypeOf(shown).Elem()).Interface().(runtime.Object)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, changed); err != nil {
		return err
	}
	changed.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return f.replace(obj, changed)
}

func (f *Form) replace(obj, changed runtime.Object) error {
	if f.Replace != nil {
		return f.Replace(obj, changed)
	}
	Overwrite(obj, changed)
	return nil
}

// Overwrite makes obj a shallow copy of changed, which must have the same type.
func Overwrite(obj, changed runtime.Object) {
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(changed).Elem())
}
