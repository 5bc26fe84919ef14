package policies

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/jsonpatch"
)

// applyConfiguration merges an apply configuration, the value of an expression,
// into the subject, of which tree is the form. Unlike server-side apply, it
// tracks no ownership.
func applyConfiguration(v ref.Val, form *admission.Form, subject runtime.Object, tree map[string]any) error {
	configuration, ok := v.(*dynamic.ObjectVal)
	if !ok {
		return fmt.Errorf("unsupported return type from ApplyConfiguration expression: %v", v.Type())
	}
	if err := configuration.CheckTypeNamesMatchFieldPathNames(); err != nil {
		return fmt.Errorf("type mismatch: %w", err)
	}
	fields, ok := configuration.Value().(map[string]any)
	if !ok {
		return fmt.Errorf("invalid return type: %T", v)
	}
	if form.Types == nil {
		return errors.New("type converter must not be nil")
	}
	types, err := form.Types()
	if err != nil {
		return err
	}
	patch := &unstructured.Unstructured{Object: fields}
	patch.SetGroupVersionKind(form.Kind)
	changed, err := types.ObjectToTyped(patch)
	if err != nil {
		return fmt.Errorf("error applying patch: failed to convert patch object to typed object: %w", err)
	}
	if found := atomics(nil, changed.Schema(), changed.TypeRef(), changed.AsValue()); len(found) > 0 {
		return fmt.Errorf("error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: %v", strings.Join(found, ", "))
	}
	live, err := types.ObjectToTyped(&unstructured.Unstructured{Object: tree}, typed.AllowDuplicates)
	if err != nil {
		return fmt.Errorf("error applying patch: failed to convert original object to typed object: %w", err)
	}
	merged, err := live.Merge(changed)
	if err != nil {
		return fmt.Errorf("error applying patch: failed to merge patch: %w", err)
	}
	text, err := json.Marshal(merged.AsValue().Unstructured())
	if err != nil {
		return fmt.Errorf("error applying patch: %w", err)
	}
	return form.Set(subject, text)
}

// atomics returns the paths of the atomic lists and maps in a value: a merge
// would drop their present contents.
func atomics(at fieldpath.Path, s *schema.Schema, t schema.TypeRef, v value.Value) (out []string) {
	atom, ok := s.Resolve(t)
	switch {
	case !ok:
	case v.IsMap() && atom.Map != nil:
		if atom.Map.ElementRelationship == schema.Atomic {
			out = append(out, at.String())
		}
		v.AsMap().Iterate(func(key string, field value.Value) bool {
			if f, ok := atom.Map.FindField(key); ok {
				out = append(out, atomics(append(at.Copy(), fieldpath.PathElement{FieldName: &key}), s, f.Type, field)...)
			}
			return true
		})
	case v.IsList() && atom.List != nil:
		if atom.List.ElementRelationship == schema.Atomic {
			out = append(out, at.String())
		}
		for i := range v.AsList().Length() {
			out = append(out, atomics(append(at.Copy(), fieldpath.PathElement{Index: &i}), s, atom.List.ElementType, v.AsList().At(i))...)
		}
	}
	return out
}

// operation is one operation of a JSON patch.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	From  string          `json:"from,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// applyPatch applies a JSON patch, the value of an expression, to the subject. A
// patch whose test operation fails changes nothing.
func applyPatch(v ref.Val, form *admission.Form, subject runtime.Object) error {
	operations, err := operationsOf(v)
	if err != nil || len(operations) == 0 {
		return err
	}
	data, err := json.Marshal(operations)
	if err != nil {
		return err
	}
	patch, err := jsonpatch.Parse(data)
	if err != nil {
		return fmt.Errorf("JSON Patch: %s", err)
	}
	text, err := form.JSON(subject)
	if err != nil {
		return err
	}
	patched, err := patch.Apply(text)
	if errors.Is(err, jsonpatch.ErrTest) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("JSON Patch: %s", err)
	}
	return form.Set(subject, patched)
}

// operationsOf returns the operations of a patch, the value of an expression.
func operationsOf(v ref.Val) (out []operation, err error) {
	list, ok := v.(traits.Lister)
	if !ok {
		return nil, errors.New("type mismatch: JSONPatchType.expression should evaluate to array")
	}
	for it := list.Iterator(); it.HasNext() == types.True; {
		native, err := it.Next().ConvertToNative(reflect.TypeFor[*mutation.JSONPatchVal]())
		if err != nil {
			return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch: %w", err)
		}
		p, ok := native.(*mutation.JSONPatchVal)
		if !ok {
			return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of %T", native)
		}
		op := operation{Op: p.Op, Path: p.Path, From: p.From}
		if p.Val != nil {
			if op.Value, err = jsonOf(p.Val); err != nil {
				return nil, err
			}
		}
		out = append(out, op)
	}
	return out, nil
}

// jsonOf returns the value of a CEL expression as JSON.
func jsonOf(v ref.Val) ([]byte, error) {
	if obj, ok := v.(*dynamic.ObjectVal); ok {
		if err := obj.CheckTypeNamesMatchFieldPathNames(); err != nil {
			return nil, fmt.Errorf("type mismatch: %w", err)
		}
	}
	const failed = "JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w"
	native, err := v.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err != nil {
		return nil, fmt.Errorf(failed, err)
	}
	text, err := json.Marshal(native)
	if err != nil {
		return nil, fmt.Errorf(failed, err)
	}
	return text, nil
}
