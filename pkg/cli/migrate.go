package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"podium/pkg/cli/rest"
	"podium/pkg/scheme"
)

// Fields that a client-side apply has set belong to its manager by updates. A
// server-side apply would never remove them, and be in conflict about their values.
// They are therefore moved to the manager that applies, as if it had applied them.

// lastApplied is the field that only a client-side apply sets.
var lastApplied = fieldpath.MakePathOrDie("metadata", "annotations", corev1.LastAppliedConfigAnnotation)

// migrateAttempts is how often a migration is tried when others change the object.
const migrateAttempts = 5

// applyOver is serverSideApply for an object with the state live; nil: it does not
// exist. It first migrates what a client-side apply has set. With a dry run it
// returns what the migration and the apply would make of the object.
func applyOver(ctx context.Context, c *rest.Cluster, t target, live *rest.Object, body []byte, q url.Values, force bool) (*rest.Object, error) {
	if live != nil {
		fields, err := migrated(live.GetManagedFields(), q.Get("fieldManager"))
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: read its managed fields: %w", t, err)
		case fields == nil:
		case q.Get("dryRun") != "":
			return previewMigrated(ctx, c, t, live, body, q)
		default:
			if err := migrate(ctx, c, t, live, q.Get("fieldManager")); err != nil {
				return nil, fmt.Errorf("%s: take over the fields of its client-side apply: %w", t, err)
			}
		}
	}
	return serverSideApply(ctx, c, t, body, q, force)
}

// migrated returns managed fields in which manager has applied what client-side
// applies have set. It returns nil if there was none.
func migrated(entries []metav1.ManagedFieldsEntry, manager string) ([]metav1.ManagedFieldsEntry, error) {
	var names []string
	for _, e := range entries {
		set, err := fieldsOf(e)
		if err != nil {
			return nil, err
		}
		if isUpdate(e) && set.Has(lastApplied) {
			names = append(names, e.Manager)
		}
	}
	if names == nil {
		return nil, nil
	}
	var kept, moved []metav1.ManagedFieldsEntry
	for _, e := range entries {
		if isUpdate(e) && slices.Contains(names, e.Manager) {
			moved = append(moved, e)
		} else {
			kept = append(kept, e)
		}
	}
	at := slices.IndexFunc(kept, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
	})
	if at < 0 {
		own := moved[0] // the latest
		own.Manager, own.Operation = manager, metav1.ManagedFieldsOperationApply
		kept, at = append(kept, own), len(kept)
	}
	return kept, join(&kept[at], moved)
}

// isUpdate reports whether an entry is of updates of the object itself.
func isUpdate(e metav1.ManagedFieldsEntry) bool {
	return e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == ""
}

// join adds the fields of others to those of an entry. It leaves out fields of other
// API versions, whose names may have another meaning.
func join(into *metav1.ManagedFieldsEntry, others []metav1.ManagedFieldsEntry) error {
	all, err := fieldsOf(*into)
	if err != nil {
		return err
	}
	for _, e := range others {
		set, err := fieldsOf(e)
		if err != nil {
			return err
		}
		if e.APIVersion == into.APIVersion {
			all = all.Union(set)
		}
	}
	text, err := all.ToJSON()
	into.FieldsV1 = &metav1.FieldsV1{Raw: text}
	return err
}

func fieldsOf(e metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	set := fieldpath.NewSet()
	if e.FieldsV1 == nil {
		return set, nil
	}
	return set, set.FromJSON(bytes.NewReader(e.FieldsV1.Raw))
}

// migrate writes the migrated managed fields of an object, of which live is the last
// known state.
func migrate(ctx context.Context, c *rest.Cluster, t target, live *rest.Object, manager string) error {
	for attempt := 1; ; attempt++ {
		fields, err := migrated(live.GetManagedFields(), manager)
		if err != nil || fields == nil {
			return err
		}
		patch, err := json.Marshal([]map[string]any{
			{"op": "replace", "path": "/metadata/managedFields", "value": fields},
			{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
		})
		if err != nil {
			return err
		}
		_, err = c.Patch(ctx, t.Kind, t.Namespace, t.Name, types.JSONPatchType, patch, rest.WriteQuery(false, manager))
		if !apierrors.IsConflict(err) || attempt == migrateAttempts {
			return err
		}
		if live, err = c.Get(ctx, t.Kind, t.Namespace, t.Name); err != nil {
			return err
		}
	}
}

// previewMigrated returns what a migration followed by an apply would make of live. A
// dry run cannot show it, for the migration is not stored: it is the result of the
// client-side apply's own patch, which compares with the annotation.
func previewMigrated(ctx context.Context, c *rest.Cluster, t target, live *rest.Object, wanted []byte, q url.Values) (*rest.Object, error) {
	earlier := &rest.Object{}
	if err := earlier.UnmarshalJSON([]byte(live.GetAnnotations()[corev1.LastAppliedConfigAnnotation])); err != nil {
		return nil, fmt.Errorf("%s: annotation %s: %w", t, corev1.LastAppliedConfigAnnotation, err)
	}
	if err := annotateConfig(earlier); err != nil { // the apply removes the annotation, too
		return nil, err
	}
	from, err := earlier.MarshalJSON()
	if err != nil {
		return nil, err
	}
	now, err := live.MarshalJSON()
	if err != nil {
		return nil, err
	}
	if wanted, err = withMaps(wanted); err != nil {
		return nil, err
	}
	pt, patch, err := changeSince(t, from, wanted, now)
	if err != nil {
		return nil, fmt.Errorf("%s: compare with the earlier apply: %w", t, err)
	}
	return c.Patch(ctx, t.Kind, t.Namespace, t.Name, pt, patch, q)
}

// withMaps returns an object with labels and annotations, if only empty ones: a patch would
// remove the whole map, with what others have set, where an apply removes its own entries.
func withMaps(text []byte) ([]byte, error) {
	obj := &rest.Object{}
	if err := obj.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	if obj.GetLabels() == nil {
		obj.SetLabels(map[string]string{})
	}
	if obj.GetAnnotations() == nil {
		obj.SetAnnotations(map[string]string{})
	}
	return obj.MarshalJSON()
}

// changeSince returns the patch that brings an object, now, to the wanted state, and
// removes what an earlier apply had set and is not wanted any more.
func changeSince(t target, earlier, wanted, now []byte) (pt types.PatchType, patch []byte, err error) {
	kind := scheme.New().ByKind(t.Kind.GroupVersionKind)
	if kind == nil {
		patch, err = jsonmergepatch.CreateThreeWayJSONMergePatch(earlier, wanted, now)
		return types.MergePatchType, patch, err
	}
	meta, err := strategicpatch.NewPatchMetaFromStruct(kind.New())
	if err != nil {
		return "", nil, err
	}
	patch, err = strategicpatch.CreateThreeWayMergePatch(earlier, wanted, now, meta, true)
	return types.StrategicMergePatchType, patch, err
}
