package endpoints

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"

	"podium/pkg/apiserver/budget"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
)

// These bound the work of one JSON patch: an operation may move the elements
// of a list that is as long as the object.
const (
	maxPatchOperations = 10000
	maxPatchWork       = 1 << 30 // operations by bytes of the object
)

// patchDoc is a parsed patch: a list of operations (JSON patch), or a tree of
// fields (merge and strategic merge patch).
type patchDoc struct {
	kind     types.PatchType
	data     []byte
	ops      jsonpatch.Patch
	fields   map[string]any
	problems []error // what a strict reader would not accept in the patch itself
}

func parsePatch(p patchCall) (*patchDoc, error) {
	d := &patchDoc{kind: p.kind, data: p.data}
	var err error
	if p.kind == types.JSONPatchType {
		if d.ops, err = jsonpatch.DecodePatch(p.data); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if len(d.ops) > maxPatchOperations {
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxPatchOperations, len(d.ops)))
		}
		return d, nil
	}
	if d.problems, err = kjson.UnmarshalStrict(p.data, &d.fields); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if d.fields == nil {
		return nil, apierrors.NewBadRequest("invalid JSON document")
	}
	return d, nil
}

// apply changes obj, a pointer to a struct of kind gvk without type metadata,
// and returns the unknown and duplicate fields it met.
func (d *patchDoc) apply(obj runtime.Object, gvk schema.GroupVersionKind) ([]error, error) {
	if d.kind == types.JSONPatchType {
		return d.operate(obj, gvk)
	}
	return d.merge(obj, gvk)
}

// patchOptions bound what copies may add up to: each can double what is there.
func patchOptions() *jsonpatch.ApplyOptions {
	o := jsonpatch.NewApplyOptions()
	o.AccumulatedCopySizeLimit = wire.MaxBody
	return o
}

func (d *patchDoc) operate(obj runtime.Object, gvk schema.GroupVersionKind) ([]error, error) {
	bare, err := scheme.BareJSON(obj)
	if err != nil {
		return nil, err
	}
	if len(d.ops)*len(bare) > maxPatchWork {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("%d operations on an object of %d bytes are too many for one JSON patch", len(d.ops), len(bare)))
	}
	patched, err := d.ops.ApplyWithOptions(scheme.TypedJSON(gvk, bare), patchOptions())
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	fresh := reflect.New(reflect.TypeOf(obj).Elem())
	problems, err := decodePatched(patched, fresh.Interface().(runtime.Object), gvk)
	if err != nil {
		return nil, err
	}
	reflect.ValueOf(obj).Elem().Set(fresh.Elem())
	return problems, nil
}

// merge goes field by field of the object's top level: what the patch does not
// name is neither encoded nor decoded.
func (d *patchDoc) merge(obj runtime.Object, gvk schema.GroupVersionKind) ([]error, error) {
	whole := reflect.ValueOf(obj).Elem()
	part := reflect.New(whole.Type())
	touched := d.touched(whole.Type())
	for _, i := range touched {
		part.Elem().Field(i).Set(whole.Field(i))
	}
	have, err := toMap(part.Interface())
	if err != nil {
		return nil, err
	}
	merged, err := d.mergeMaps(have, whole.Type())
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(merged)
	if err != nil {
		return nil, fmt.Errorf("encode the patched object: %w", err)
	}
	fresh := reflect.New(whole.Type())
	problems, err := decodePatched(text, fresh.Interface().(runtime.Object), gvk)
	if err != nil {
		return nil, err
	}
	for _, i := range touched {
		whole.Field(i).Set(fresh.Elem().Field(i))
	}
	return append(d.problems[:len(d.problems):len(d.problems)], problems...), nil
}

func (d *patchDoc) mergeMaps(have map[string]any, t reflect.Type) (map[string]any, error) {
	if d.kind == types.MergePatchType {
		return mergeInto(have, d.fields), nil
	}
	if err := budget.MergeWork(have, d.fields); err != nil {
		return nil, err
	}
	// The fields are changed by the merge: each attempt needs its own.
	patch := runtime.DeepCopyJSON(d.fields)
	merged, err := strategicpatch.StrategicMergeMapPatchUsingLookupPatchMeta(have, patch, strategicpatch.PatchMetaFromStruct{T: t})
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return merged, nil
}

// touched are the struct fields the patch may change, by index. Directives at
// the top level reach all of them.
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

// toMap is an object as the maps and lists that patches work on.
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

// mergeInto is JSON merge patch (RFC 7396). The target is changed, the patch
// is not.
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

// decodePatched reads what a patch made, and leaves the type metadata empty.
func decodePatched(text []byte, obj runtime.Object, gvk schema.GroupVersionKind) ([]error, error) {
	problems, err := kjson.UnmarshalStrict(text, obj)
	if err != nil {
		return nil, invalidPatch(text, err)
	}
	named := fill(obj.GetObjectKind().GroupVersionKind(), gvk)
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return problems, checkKind(named, gvk)
}
