// Package storagemigration writes all objects of a resource again for a
// StorageVersionMigration. The API server thereby stores them in the present storage
// version, encrypted with the present key.
// https://kubernetes.io/docs/tasks/manage-kubernetes-objects/storage-version-migration/
package storagemigration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	migrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/client"
	"podium/pkg/client/discovery"
	"podium/pkg/client/informer"
	"podium/pkg/client/metadata"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

// Spec describes the storage version migrator. Its one worker migrates one resource at a
// time.
func Spec() controller.Spec {
	return controller.Spec{Name: "storage-version-migrator-controller", Workers: 1, New: build}
}

// The reasons of the conditions are upstream's.
const (
	reasonRunning   = "StorageVersionMigrationInProgress"
	reasonSucceeded = "StorageVersionMigrationSucceeded"
	reasonFailed    = "StorageVersionMigrationFailed"
)

// settling is the time in which all API servers learn of a new storage version and read a new
// configuration of their encryption.
const settling = 15 * time.Second

type migration = migrationv1.StorageVersionMigration

type reconciler struct {
	*loop.Loop
	client     *client.Client
	discovery  *discovery.Client
	migrations *informer.Informer[*migration]
	writer     controller.Writer[*migration]
	now        func() time.Time

	at map[loop.Key]*progress // of migrations that an error has interrupted; for the one worker only
}

func build(c controller.Context) (controller.Runner, error) {
	r := &reconciler{
		client: c.Client, discovery: discovery.New(c.Client), at: map[loop.Key]*progress{}, now: time.Now,
		migrations: informers.For[*migration](c.Informers),
	}
	r.Loop = c.NewLoop("storagemigration", 0, r.reconcile, r.migrations)
	r.writer = controller.NewWriter(c, r.Loop, r.migrations)
	loop.WakeOn(r.Loop, r.migrations, r.sameResource)
	return r, nil
}

// sameResource returns the keys of a migration and of the others of its resource, which
// may wait for it.
func (r *reconciler) sameResource(changed *migration) []loop.Key {
	keys := loop.Self(changed)
	for _, m := range r.migrations.List() {
		if m.Name != changed.Name && m.Spec.Resource == changed.Spec.Resource && !ended(m) {
			keys = append(keys, loop.KeyOf(m))
		}
	}
	return keys
}

func ended(m *migration) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(migrationv1.MigrationSucceeded)) ||
		meta.IsStatusConditionTrue(m.Status.Conditions, string(migrationv1.MigrationFailed))
}

// before orders migrations by age.
func before(a, b *migration) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// reconcile runs a migration from its beginning, or from the object at which it was
// interrupted by an error. To begin again is safe: objects that are migrated do not change.
func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	m, ok := r.migrations.Get("", key.Name)
	if !ok || m.DeletionTimestamp != nil || ended(m) || r.waits(m) {
		delete(r.at, key)
		return loop.Done, nil
	}
	kind, problem, err := r.kindOf(ctx, m.Spec.Resource)
	if err != nil {
		return loop.Done, err
	}
	if problem != "" {
		return loop.Done, r.end(ctx, key, m, migrationv1.MigrationFailed, reasonFailed, problem)
	}
	if m.Status.ResourceVersion == "" {
		return loop.Done, r.begin(ctx, key, m, kind)
	}
	if left := settling - r.now().Sub(m.CreationTimestamp.Time); left > 0 {
		return loop.After(left), nil
	}
	problem, err = r.progressOf(key, m).run(ctx, kind)
	switch {
	case err != nil:
		return loop.Done, fmt.Errorf("migrate %s: %w", m.Spec.Resource.String(), err)
	case problem != "":
		return loop.Done, r.end(ctx, key, m, migrationv1.MigrationFailed, reasonFailed, problem)
	}
	return loop.Done, r.end(ctx, key, m, migrationv1.MigrationSucceeded, reasonSucceeded, "")
}

// waits reports whether an older migration of the same resource has not ended.
func (r *reconciler) waits(m *migration) bool {
	return slices.ContainsFunc(r.migrations.List(), func(other *migration) bool {
		return other.Spec.Resource == m.Spec.Resource && other.DeletionTimestamp == nil && !ended(other) && before(other, m) < 0
	})
}

// kindOf returns the client of a resource, or why the resource cannot be migrated.
func (r *reconciler) kindOf(ctx context.Context, of metav1.GroupResource) (kind metadata.Kind, problem string, err error) {
	catalog, err := r.discovery.Catalog(ctx)
	if err != nil {
		return metadata.Kind{}, "", err
	}
	at := slices.IndexFunc(catalog.Resources, func(have discovery.Resource) bool {
		return have.Group == of.Group && have.Kind.Resource == of.Resource
	})
	switch {
	case at < 0 && slices.ContainsFunc(catalog.Failed, func(gv schema.GroupVersion) bool { return gv.Group == of.Group }):
		return metadata.Kind{}, "", catalog.Err()
	case at < 0:
		return metadata.Kind{}, fmt.Sprintf("the server does not serve the resource %s", of.String()), nil
	case !catalog.Resources[at].Supports("list", "patch"):
		return metadata.Kind{}, fmt.Sprintf("the resource %s does not support list and patch", of.String()), nil
	}
	return metadata.Of(r.client, catalog.Resources[at].Kind), "", nil
}

// begin records that the migration runs, and the resource version at which it began.
func (r *reconciler) begin(ctx context.Context, key loop.Key, m *migration, kind metadata.Kind) error {
	list, err := kind.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("list %s: %w", m.Spec.Resource.String(), err)
	}
	m = m.DeepCopy()
	m.Status.ResourceVersion = list.ResourceVersion
	set(m, migrationv1.MigrationRunning, metav1.ConditionTrue, reasonRunning, "")
	_, err = r.writer.UpdateStatus(ctx, key, m)
	return err
}

// end records how the migration ended.
func (r *reconciler) end(ctx context.Context, key loop.Key, m *migration, how migrationv1.MigrationConditionType, reason, message string) error {
	m = m.DeepCopy()
	set(m, migrationv1.MigrationRunning, metav1.ConditionFalse, reason, "")
	set(m, how, metav1.ConditionTrue, reason, message)
	_, err := r.writer.UpdateStatus(ctx, key, m)
	return err
}

func set(m *migration, t migrationv1.MigrationConditionType, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: string(t), Status: status, Reason: reason, Message: message})
}
