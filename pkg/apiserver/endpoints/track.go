package endpoints

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"podium/pkg/apiserver/managed"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// serverManager is the field manager of writes of the server itself.
const serverManager = "kube-apiserver"

// track sets the managed fields of next, the successor of old or, if old is nil, a new
// object: the writer manages the fields that it sets. As upstream, it runs before
// admission, so that what admission and the server add has no manager. Objects of kinds
// without a schema have no managed fields. The error is a 413 if the client sent too
// many.
//
// times reports whether the managed fields now differ from those of old, and only in
// their times.
func (r *resource) track(old, next scheme.Object, o writeOptions) (times bool, err error) {
	var live []metav1.ManagedFieldsEntry
	if old != nil {
		live = entriesOf(old)
	}
	if o.applied {
		return managed.OnlyTimes(live, entriesOf(next)), nil
	}
	in, sub := o.in, ""
	if in == nil {
		in = r.versions[0]
	}
	if o.sub != nil {
		sub = o.sub.Name
	}
	if t, err := in.tracked(); t == nil || err != nil {
		next.SetManagedFields(nil)
		return false, err
	}
	w := managed.Write{
		Manager: o.manager, APIVersion: in.gvk().GroupVersion().String(), Subresource: sub, Create: old == nil,
		Time: metav1.NewTime(r.api.Now().UTC()), Untracked: in.untracked(sub),
		Pair: func(apiVersion string) (managed.Pair, error) { return r.pair(apiVersion, old, next) },
	}
	fields, err := w.Fields(live, entriesOf(next))
	if _, refused := err.(apierrors.APIStatus); err == nil || refused {
		setEntries(next, fields)
		return managed.OnlyTimes(live, fields), err
	}
	if !errors.Is(err, managed.ErrTooLarge) {
		r.api.Log.Error("track managed fields failed", "resource", r.group(), "namespace", next.GetNamespace(), "name", next.GetName(), "err", err)
	}
	next.SetManagedFields(nil) // as upstream
	return false, nil
}

// entriesOf returns the managed fields of an object, which may share memory with it.
func entriesOf(obj scheme.Object) []metav1.ManagedFieldsEntry {
	if u, untyped := obj.(*unstructured.Unstructured); untyped {
		return managed.Entries(u)
	}
	return obj.GetManagedFields()
}

// heads is the metadata of an object without a Go type for validation, which does not
// read the FieldsV1 of managed fields.
type heads struct{ *unstructured.Unstructured }

func (h heads) GetManagedFields() []metav1.ManagedFieldsEntry { return managed.Heads(h.Unstructured) }

// metaOf returns the metadata of an object for validation.
func metaOf(obj scheme.Object) metav1.Object {
	if u, untyped := obj.(*unstructured.Unstructured); untyped {
		return heads{u}
	}
	return obj
}

func setEntries(obj scheme.Object, entries []metav1.ManagedFieldsEntry) {
	if u, untyped := obj.(*unstructured.Unstructured); untyped {
		managed.SetEntries(u, entries)
		return
	}
	obj.SetManagedFields(entries)
}

// pair returns two objects of the storage version in another version. old may be nil.
func (r *resource) pair(apiVersion string, old, next scheme.Object) (p managed.Pair, err error) {
	for _, v := range r.versions {
		if v.gvk().GroupVersion().String() != apiVersion {
			continue
		}
		if p.Type, err = v.tracked(); err != nil {
			return p, err
		}
		if next, err = v.fromStorage(next); err != nil {
			return p, err
		}
		if old == nil {
			old = v.empty()
		} else if old, err = v.fromStorage(old); err != nil {
			return p, err
		}
		p.Old, p.New = fieldsOf(old), fieldsOf(next)
		return p, nil
	}
	return p, nil
}

// fieldsOf returns the struct or the map that holds the fields of an object.
func fieldsOf(obj scheme.Object) reflect.Value {
	if u, untyped := obj.(*unstructured.Unstructured); untyped {
		return reflect.ValueOf(&u.Object).Elem()
	}
	return reflect.ValueOf(obj).Elem()
}

// tracker is what tracks the fields of a version, made on first use.
type tracker struct {
	once sync.Once
	typ  *managed.Type // nil: the kind has no schema
	err  error
	main managed.Untracked            // of the object itself
	subs map[string]managed.Untracked // of subresources
}

// tracked returns the type of the version for field managers, or nil if the kind has
// no schema.
func (v *version) tracked() (*managed.Type, error) {
	t := &v.tracker
	t.once.Do(func() {
		t.main, t.subs = managed.Without(v.resets("")...), map[string]managed.Untracked{}
		for name := range v.subs {
			t.subs[name] = managed.Without(v.resets(name)...)
		}
		if v.text && v.api.OpenAPI != nil {
			t.typ, t.err = managed.TypeOf(v.served.Schema)
		} else if !v.text {
			t.typ, t.err = v.api.schemas.typeOf(v.gvk())
		}
		if t.err != nil {
			t.err = fmt.Errorf("track fields of %s: %w", v.Resource, t.err)
		}
	})
	return t.typ, t.err
}

// untracked returns the fields that a write through sub ("": the object itself) does
// not manage.
func (v *version) untracked(sub string) managed.Untracked {
	if sub == "" {
		return v.tracker.main
	}
	return v.tracker.subs[sub]
}

// resets returns the fields that a write through sub ("": the object itself) never
// changes, and that its manager therefore does not manage.
func (v *version) resets(sub string) []string {
	switch {
	case sub == "" && v.subs["status"] != nil:
		return []string{"status"}
	case sub != "status":
		return nil
	case v.text:
		return []string{"metadata", "spec"}
	}
	return append(statusResets[v.group().String()], "spec")
}

// statusResets are fields besides the spec that a write of the status never changes.
var statusResets = map[string][]string{
	"apiservices.apiregistration.k8s.io":       {"metadata"},
	"deployments.apps":                         {"metadata.labels"},
	"flowschemas.flowcontrol.apiserver.k8s.io": {"metadata"},
	"pods": {"metadata.deletionTimestamp", "metadata.ownerReferences"},
	"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": {"metadata"},
	"volumeattachments.storage.k8s.io":                         {"metadata"},
}

// invalidAfterAdmission is upstream's warning about a webhook that breaks managed
// fields.
const invalidAfterAdmission = ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: %v"

// guard returns a function for after the mutating admission plugins: it restores the
// managed fields of obj, with a warning, if a plugin made them invalid.
func guard(ctx context.Context, obj scheme.Object) func() {
	before, list := managedList(obj)
	return func() {
		if _, now := managedList(obj); now == list {
			return
		}
		if err := managedfields.ValidateManagedFields(obj.GetManagedFields()); err != nil {
			obj.SetManagedFields(before())
			request.Warn(ctx, fmt.Sprintf(invalidAfterAdmission, err))
		}
	}
}

// managedList returns a function that decodes the present managed fields of an object,
// and what tells that list from any other.
func managedList(obj scheme.Object) (decode func() []metav1.ManagedFieldsEntry, list any) {
	u, untyped := obj.(*unstructured.Unstructured)
	if !untyped {
		entries := obj.GetManagedFields()
		if len(entries) > 0 {
			list = &entries[0]
		}
		return func() []metav1.ManagedFieldsEntry { return entries }, list
	}
	field, _, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", "managedFields")
	entries, _ := field.([]any)
	if len(entries) > 0 {
		list = &entries[0]
	}
	return func() []metav1.ManagedFieldsEntry {
		of := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"managedFields": field}}}
		return of.GetManagedFields()
	}, list
}
