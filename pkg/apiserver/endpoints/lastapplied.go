package endpoints

import (
	"bytes"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"podium/pkg/scheme"
)

// The managers of fields that were written while nobody kept account:
// kubectl's, when it applies on its own side, and everybody else.
const (
	clientSideApply  = "kubectl-client-side-apply"
	beforeFirstApply = "before-first-apply"
)

// bookLastApplied gives an object that so far was only applied on the client's
// side the owners that it would have, had its fields been tracked from the
// start: the last configuration's fields belong to who applied it. A client
// that turns to server-side apply takes over all that this owner has and drops
// what its configuration no longer says; were the server's own additions among
// it, such as a pod's token volume, it would drop them, too.
func bookLastApplied(f *managedfields.FieldManager, live scheme.Object, r *resource) error {
	text := live.GetAnnotations()[corev1.LastAppliedConfigAnnotation]
	if text == "" || len(live.GetManagedFields()) > 0 {
		return nil
	}
	last := &unstructured.Unstructured{}
	if json.Unmarshal([]byte(text), &last.Object) != nil || last.GroupVersionKind() != r.gvk() {
		return nil // an annotation of somebody else's: all is of before the first apply
	}
	annotations := map[string]any{corev1.LastAppliedConfigAnnotation: text}
	for key, value := range last.GetAnnotations() {
		annotations[key] = value
	}
	if unstructured.SetNestedMap(last.Object, annotations, "metadata", "annotations") != nil {
		return nil
	}
	empty := r.New()
	empty.SetName(live.GetName())
	empty.SetNamespace(live.GetNamespace())
	applied, err := ownersAfter(f, empty, last, r)
	if err != nil || len(applied) != 1 {
		return nil // it cannot be read as the kind it says it is
	}
	nothing := &unstructured.Unstructured{}
	nothing.SetGroupVersionKind(r.gvk())
	nothing.SetName(live.GetName())
	all, err := ownersAfter(f, live.DeepCopyObject().(scheme.Object), nothing, r)
	if err != nil {
		return err
	}
	for i := range all {
		if all[i].Manager != beforeFirstApply {
			continue
		}
		applied[0].Operation = metav1.ManagedFieldsOperationUpdate
		applied[0].Time = all[i].Time
		if err := without(&all[i], &applied[0]); err != nil {
			return err
		}
		live.SetManagedFields([]metav1.ManagedFieldsEntry{applied[0], all[i]})
	}
	return nil
}

// ownersAfter are the owners of live's fields once config is applied to it.
func ownersAfter(f *managedfields.FieldManager, live scheme.Object, config *unstructured.Unstructured, r *resource) ([]metav1.ManagedFieldsEntry, error) {
	live.GetObjectKind().SetGroupVersionKind(r.gvk())
	next, err := f.Apply(live, config, clientSideApply, true)
	if err != nil {
		return nil, err
	}
	return next.(scheme.Object).GetManagedFields(), nil
}

// without takes b's fields out of a.
func without(a, b *metav1.ManagedFieldsEntry) error {
	var of, take fieldpath.Set
	for _, e := range []struct {
		entry *metav1.ManagedFieldsEntry
		set   *fieldpath.Set
	}{{a, &of}, {b, &take}} {
		if err := e.set.FromJSON(bytes.NewReader(e.entry.FieldsV1.Raw)); err != nil {
			return fmt.Errorf("read the fields of %s: %w", e.entry.Manager, err)
		}
	}
	raw, err := of.Difference(&take).ToJSON()
	if err != nil {
		return fmt.Errorf("write the fields of %s: %w", a.Manager, err)
	}
	a.FieldsV1 = &metav1.FieldsV1{Raw: raw}
	return nil
}
