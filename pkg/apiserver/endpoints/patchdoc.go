package endpoints

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"

	"podium/pkg/apiserver/budget"
	"podium/pkg/apiserver/jsonpatch"
	"podium/pkg/scheme"
)

// patchDoc is a parsed patch: a list of operations (JSON patch), or a tree of
// fields (merge patch and strategic merge patch). It is immutable and can be
// applied repeatedly.
type patchDoc struct {
	kind     types.PatchType
	data     []byte
	patch    jsonpatch.Patch
	fields   map[string]any
	problems []error // duplicate fields of the patch itself
}

// parsePatch decodes a patch and returns a 400 if it is malformed, or a 413 if it
// is a JSON patch with too many operations.
func parsePatch(p patchCall) (*patchDoc, error) {
	d := &patchDoc{kind: p.kind, data: p.data}
	var err error
	if p.kind == types.JSONPatchType {
		d.patch, err = jsonpatch.Parse(p.data)
		return d, err
	}
	if d.problems, err = kjson.UnmarshalStrict(p.data, &d.fields); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if d.fields == nil {
		return nil, apierrors.NewBadRequest("invalid JSON document")
	}
	return d, nil
}

// apply changes obj, a pointer to a struct of kind gvk without type metadata, and
// returns the unknown and duplicate fields that it found.
func (d *patchDoc) apply(obj runtime.Object, gvk schema.GroupVersionKind) ([]error, error) {
	if d.kind == types.JSONPatchType {
		return d.operate(obj, gvk)
	}
	return d.merge(obj, gvk)
}

// operate applies a JSON patch to obj.
func (d *patchDoc) operate(obj runtime.Object, gvk schema.GroupVersionKind) ([]error, error) {
	bare, err := scheme.BareJSON(obj)
	if err != nil {
		return nil, err
	}
	patched, err := d.patch.Apply(scheme.TypedJSON(gvk, bare))
	if _, known := err.(apierrors.APIStatus); err != nil && !known {
		err = apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	if err != nil {
		return nil, err
	}
	fresh := reflect.New(reflect.TypeOf(obj).Elem())
	problems, err := decodePatched(patched, fresh.Interface().(runtime.Object), gvk)
	if err != nil {
		return nil, err
	}
	reflect.ValueOf(obj).Elem().Set(fresh.Elem())
	return problems, nil
}

// merge encodes and decodes only those top-level fields of the object that the
// patch names.
func (d *patchDoc) merge(obj runtime.Object, gvk schema.GroupVersionKind) ([]error, error) {
	if tree, untyped := obj.(*unstructured.Unstructured); untyped {
		return d.mergeTree(tree, gvk)
	}
	whole := reflect.ValueOf(obj).Elem()
	part := reflect.New(whole.Type())
	touched := d.touched(whole.Type())
	for _, i := range touched {
		part.Elem().Field(i).Set(whole.Field(i))
	}
	restore := d.setAside(part.Interface())
	have, err := toMap(part.Interface())
	if err != nil {
		return nil, err
	}
	merged, err := d.mergeMaps(have, whole.Type())
	if err != nil {
		return nil, err
	}
	text, err := scheme.TreeJSON(merged)
	if err != nil {
		return nil, fmt.Errorf("encode the patched object: %w", err)
	}
	fresh := reflect.New(whole.Type())
	problems, err := decodePatched(text, fresh.Interface().(runtime.Object), gvk)
	if err != nil {
		return nil, err
	}
	restore(fresh.Interface())
	for _, i := range touched {
		whole.Field(i).Set(fresh.Elem().Field(i))
	}
	return append(d.problems[:len(d.problems):len(d.problems)], problems...), nil
}

// mergeTree merges the patch into an object without a Go type.
func (d *patchDoc) mergeTree(obj *unstructured.Unstructured, gvk schema.GroupVersionKind) ([]error, error) {
	restore := d.setAside(obj)
	text, err := scheme.TreeJSON(mergeInto(obj.Object, d.fields))
	if err != nil {
		return nil, fmt.Errorf("encode the patched object: %w", err)
	}
	obj.Object = nil
	problems, err := decodePatched(text, obj, gvk)
	if err == nil {
		restore(obj)
	}
	return append(d.problems[:len(d.problems):len(d.problems)], problems...), err
}

// setAside removes the managed fields from obj if the patch does not touch them, so
// that they are not encoded and decoded, and returns a function that restores them on
// the patched object.
func (d *patchDoc) setAside(obj any) (restore func(patched any)) {
	patch, ok := d.fields["metadata"].(map[string]any)
	for name := range patch {
		ok = ok && name != "managedFields" && !strings.HasPrefix(name, "$")
	}
	if _, named := d.fields["metadata"]; named && !ok {
		return func(any) {}
	}
	switch obj := obj.(type) {
	case *unstructured.Unstructured:
		field, found, _ := unstructured.NestedFieldNoCopy(obj.Object, "metadata", "managedFields")
		if !found {
			break
		}
		unstructured.RemoveNestedField(obj.Object, "metadata", "managedFields")
		return func(patched any) {
			if metadata, ok := patched.(*unstructured.Unstructured).Object["metadata"].(map[string]any); ok {
				metadata["managedFields"] = field
			}
		}
	case scheme.Object:
		fields := obj.GetManagedFields()
		obj.SetManagedFields(nil)
		return func(patched any) { patched.(scheme.Object).SetManagedFields(fields) }
	}
	return func(any) {}
}

// mergeMaps applies the merge patch to have, which it may change. t is the Go type
// of the object, whose tags define the strategic merge.
func (d *patchDoc) mergeMaps(have map[string]any, t reflect.Type) (map[string]any, error) {
	if d.kind == types.MergePatchType {
		return mergeInto(have, d.fields), nil
	}
	if err := budget.MergeWork(have, d.fields); err != nil {
		return nil, err
	}
	// The merge modifies the fields, so each attempt needs its own copy.
	patch := runtime.DeepCopyJSON(d.fields)
	merged, err := strategicpatch.StrategicMergeMapPatchUsingLookupPatchMeta(have, patch, strategicpatch.PatchMetaFromStruct{T: t})
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return merged, nil
}

// touched returns the indexes of the struct fields that the patch may change. A
// directive at the top level may change all of them.
func (d *patchDoc) touched(t reflect.Type) []int {
	all := false
	for name := range d.fields {
		all = all || strings.HasPrefix(name, "$")
	}
	var out []int
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if _, ok := d.fields[name]; (ok || all) && name != "" {
			out = append(out, i)
		}
	}
	return out
}

// toMap converts an object to the maps and lists that patches work on.
func toMap(obj any) (map[string]any, error) {
	text, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", obj, err)
	}
	var m map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &m); err != nil {
		return nil, fmt.Errorf("decode %T: %w", obj, err)
	}
	return m, nil
}

// mergeInto applies a JSON merge patch (RFC 7396). It modifies and returns target;
// it does not modify patch.
func mergeInto(target, patch map[string]any) map[string]any {
	if target == nil {
		target = map[string]any{}
	}
	for key, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(target, key)
		case map[string]any:
			inner, _ := target[key].(map[string]any)
			target[key] = mergeInto(inner, value)
		default:
			target[key] = value
		}
	}
	return target
}

// decodePatched decodes the result of a patch and leaves the type metadata empty.
func decodePatched(text []byte, obj runtime.Object, gvk schema.GroupVersionKind) ([]error, error) {
	problems, err := unmarshalJSON(text, obj, true)
	if err != nil {
		return nil, invalidPatch(text, err)
	}
	named := fill(obj.GetObjectKind().GroupVersionKind(), gvk)
	clearKind(obj)
	return problems, checkKind(named, gvk)
}
