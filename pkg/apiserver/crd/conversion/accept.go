package conversion

import (
	"fmt"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// invalidObject says what is wrong with a converted object.
type invalidObject struct {
	metadata bool // the error is about the metadata that may be changed
	err      error
}

// at returns the error for the object i of n.
func (e *invalidObject) at(i, n int) error {
	switch {
	case e.metadata && n == 1:
		return fmt.Errorf("metadata: %w", e.err)
	case e.metadata:
		return fmt.Errorf("metadata in object at index %d: %w", i, e.err)
	case n == 1:
		return fmt.Errorf("object: %w", e.err)
	}
	return fmt.Errorf("converted object at index %d: %w", i, e.err)
}

// accept decodes and checks a converted object. Of the metadata, a webhook may change
// only labels and annotations: all other fields are those of the original.
func accept(original *unstructured.Unstructured, text []byte, to schema.GroupVersionKind) (*unstructured.Unstructured, *invalidObject) {
	out := &unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &out.Object); err != nil {
		return nil, &invalidObject{err: err}
	}
	if err := sameObject(original, out, to); err != nil {
		return nil, &invalidObject{err: err}
	}
	if err := restoreMetadata(original, out); err != nil {
		return nil, &invalidObject{true, err}
	}
	return out, nil
}

// sameObject checks that out is the original in the version to.
func sameObject(original, out *unstructured.Unstructured, to schema.GroupVersionKind) error {
	got := out.GroupVersionKind()
	if got.GroupVersion() != to.GroupVersion() {
		return fmt.Errorf("invalid groupVersion (expected %v, received %v)", to.GroupVersion(), got.GroupVersion())
	}
	if want := original.GetKind(); got.Kind != want {
		return fmt.Errorf("invalid kind (expected %v, received %v)", want, got.Kind)
	}
	for _, same := range []struct{ name, want, got string }{
		{"name", original.GetName(), out.GetName()},
		{"namespace", original.GetNamespace(), out.GetNamespace()},
		{"UID", string(original.GetUID()), string(out.GetUID())},
	} {
		if same.want != same.got {
			return fmt.Errorf("must have the same %s: %v != %v", same.name, same.want, same.got)
		}
	}
	return nil
}

// restoreMetadata makes the metadata of out that of the original, with the labels and
// annotations of out.
func restoreMetadata(original, out *unstructured.Unstructured) error {
	value, ok := out.Object["metadata"]
	if !ok {
		return fmt.Errorf("missing metadata in converted object")
	}
	changed, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("invalid metadata of type %T in converted object", value)
	}
	kept, _ := runtime.DeepCopyJSONValue(original.Object["metadata"]).(map[string]any)
	if kept == nil {
		kept = map[string]any{}
	}
	out.Object["metadata"] = kept
	for _, name := range []string{"labels", "annotations"} {
		if changed[name] == nil {
			delete(kept, name)
			continue
		}
		texts, ok := changed[name].(map[string]any)
		if !ok {
			return fmt.Errorf("invalid metadata.%s of type %T in converted object", name, changed[name])
		}
		if err := validateTexts(name, texts, kept[name]); err != nil {
			return err
		}
		kept[name] = texts
	}
	return nil
}

// validateTexts validates labels or annotations, unless they are as before.
func validateTexts(name string, texts map[string]any, before any) error {
	old, _ := before.(map[string]any)
	same, plain := len(old) == len(texts), make(map[string]string, len(texts))
	for key, value := range texts {
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("metadata.%s[%s] must be a string, but is %T in converted object", name, key, value)
		}
		plain[key], same = text, same && old[key] == value
	}
	if same {
		return nil
	}
	if name == "labels" {
		return metavalidation.ValidateLabels(plain, field.NewPath("metadata", "labels")).ToAggregate()
	}
	return apivalidation.ValidateAnnotations(plain, field.NewPath("metadata", "annotation")).ToAggregate()
}
