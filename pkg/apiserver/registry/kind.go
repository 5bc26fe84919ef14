package registry

import (
	"context"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// Kind is how the apiserver treats one resource. The path of a create, update
// or delete is fixed (package endpoints); what differs per kind is here. A nil
// function means that the kind has nothing special there.
type Kind struct {
	*scheme.Kind

	// Default fills in what the user left out. Called on every decoded body,
	// and on what comes from the store.
	Default func(obj scheme.Object)

	// Prepare makes new storable: it resets what the user may not set
	// (status on create and update), counts generation, fills in what depends
	// on other objects. old is nil on create. It must bear what Validate
	// would refuse, since it runs before.
	Prepare func(ctx context.Context, b Backend, new, old scheme.Object) error

	// Allocate takes what new needs and old does not have from the cluster's
	// stock (a Service's addresses and node ports) and writes it into new. It
	// runs last before the write, after Validate. With dryRun it chooses and
	// checks but takes nothing. undo, which may be nil, gives back what was
	// taken; call it when the write did not happen.
	Allocate func(ctx context.Context, new, old scheme.Object, dryRun bool) (undo func(context.Context), err error)
	// Release gives back what old holds and new does not: after a successful
	// update, and with a nil new after the object is gone from the store.
	Release func(ctx context.Context, new, old scheme.Object)

	// Validate checks new, and against old where there is one; all errors at
	// once, with upstream's field paths and texts. Object metadata has been
	// checked already, with ValidateName for the name.
	Validate     func(new, old scheme.Object) field.ErrorList
	ValidateName func(name string, prefix bool) []string // nil: DNS-1123 subdomain
	Warnings     func(new, old scheme.Object) []string

	// Review answers a question: a kind with it serves only create, and what is
	// created is not stored but answered. Defaults, and the rules of admission,
	// come before it. user is who asks.
	Review func(ctx context.Context, b Backend, user *request.User, obj scheme.Object) (scheme.Object, error)

	// Columns and Row are the Table form: what `kubectl get` prints.
	Columns []metav1.TableColumnDefinition
	Row     func(obj scheme.Object, now time.Time) []any

	// Fields are the kind's own selectable fields, besides metadata.name and
	// metadata.namespace; Indexed are those that watches are found by.
	Fields  func(obj scheme.Object) fields.Set
	Indexed []string

	// BeforeDelete may turn a delete into a graceful one by changing obj (a
	// pod's deletion timestamp and grace period; a namespace's phase); it
	// returns true if the object must be kept for now.
	BeforeDelete func(obj scheme.Object, opts *metav1.DeleteOptions, now time.Time) (keep bool, err error)

	// AllowCreateOnUpdate: PUT of an absent object creates it (upstream's leases, endpoints, events ...).
	AllowCreateOnUpdate bool
	// AllowUnconditionalUpdate: PUT without resourceVersion overwrites.
	AllowUnconditionalUpdate bool
	// ReturnDeleted: a delete answers with the last state of the object, not
	// with a Status (upstream's pods, serviceaccounts, ...).
	ReturnDeleted bool
	// NoDeleteCollection: there is no DELETE of many at once (namespaces).
	NoDeleteCollection bool
	// Deprecated is the Warning of every request, if there is one.
	Deprecated string

	Subresources []*Subresource
}

// Subresource is one path below an object. Exactly one of the four groups of
// functions is set.
type Subresource struct {
	Name string                  // "status", "scale", "binding", ...
	GVK  schema.GroupVersionKind // of its bodies

	// 1. A part of the object itself (status, ephemeralcontainers, resize):
	// get, update, patch. PreparePart takes from old all that this part does
	// not own.
	PreparePart  func(ctx context.Context, new, old scheme.Object) error
	ValidatePart func(new, old scheme.Object) field.ErrorList

	// 2. A view of the object (scale): get, update, patch.
	View  func(obj scheme.Object) (runtime.Object, error)
	Merge func(obj scheme.Object, view runtime.Object) error

	// 3. An action (binding, eviction, token): create.
	Act func(ctx context.Context, b Backend, namespace, name string, body runtime.Object, opts *metav1.CreateOptions) (runtime.Object, error)

	// 4. A stream (log, exec, attach, portforward, proxy): the handler owns
	// the connection. path is what follows the subresource's name in the URL.
	// Methods are the HTTP methods it answers.
	Connect Connect
	Methods []string
}

// Connect makes the handler of one streaming request.
type Connect func(b Backend, namespace, name, path string) http.Handler

// Backend is what a kind's own code may ask of the server: other objects.
// Reads are consistent. Errors are *apierrors.StatusError.
type Backend interface {
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (scheme.Object, error)
	List(ctx context.Context, gvr schema.GroupVersionResource, namespace string) ([]scheme.Object, error)
	Create(ctx context.Context, gvr schema.GroupVersionResource, obj scheme.Object) (scheme.Object, error)
	// Update applies change to the present state until it is stored without a
	// conflict; validation and Prepare do not run (it is the server's own write).
	Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, change func(scheme.Object) error) (scheme.Object, error)
	Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts *metav1.DeleteOptions) error
}

// Of is a Kind written with its Go type. Kind erases the type.
type Of[T scheme.Object] struct {
	Default      func(obj T)
	Prepare      func(ctx context.Context, b Backend, new, old T) error
	Allocate     func(ctx context.Context, new, old T, dryRun bool) (undo func(context.Context), err error)
	Release      func(ctx context.Context, new, old T)
	Validate     func(new, old T) field.ErrorList
	ValidateName func(name string, prefix bool) []string
	Warnings     func(new, old T) []string
	Review       func(ctx context.Context, b Backend, user *request.User, obj T) (T, error)
	Columns      []metav1.TableColumnDefinition
	Row          func(obj T, now time.Time) []any
	Fields       func(obj T) fields.Set
	Indexed      []string
	BeforeDelete func(obj T, opts *metav1.DeleteOptions, now time.Time) (bool, error)

	AllowCreateOnUpdate      bool
	AllowUnconditionalUpdate bool
	ReturnDeleted            bool
	NoDeleteCollection       bool
	Deprecated               string
	Subresources             []*Subresource
}

// Kind erases the Go type: k is the entry of T in the scheme's table.
func (o Of[T]) Kind(k *scheme.Kind) *Kind {
	return &Kind{
		Kind:                     k,
		Default:                  erase1(o.Default),
		Prepare:                  erasePrepare(o.Prepare),
		Allocate:                 eraseAllocate(o.Allocate),
		Release:                  eraseRelease(o.Release),
		Validate:                 erase2(o.Validate),
		ValidateName:             o.ValidateName,
		Warnings:                 erase2(o.Warnings),
		Review:                   eraseReview(o.Review),
		Columns:                  o.Columns,
		Row:                      eraseRow(o.Row),
		Fields:                   eraseFields(o.Fields),
		Indexed:                  o.Indexed,
		BeforeDelete:             eraseBeforeDelete(o.BeforeDelete),
		AllowCreateOnUpdate:      o.AllowCreateOnUpdate,
		AllowUnconditionalUpdate: o.AllowUnconditionalUpdate,
		NoDeleteCollection:       o.NoDeleteCollection,
		ReturnDeleted:            o.ReturnDeleted,
		Deprecated:               o.Deprecated,
		Subresources:             o.Subresources,
	}
}

// typed is obj as a T; the zero T for the nil that stands for "there is none".
func typed[T scheme.Object](obj scheme.Object) T {
	if obj == nil {
		var none T
		return none
	}
	return obj.(T)
}

func erase1[T scheme.Object](f func(T)) func(scheme.Object) {
	if f == nil {
		return nil
	}
	return func(obj scheme.Object) { f(typed[T](obj)) }
}

func erase2[T scheme.Object, R any](f func(new, old T) R) func(new, old scheme.Object) R {
	if f == nil {
		return nil
	}
	return func(new, old scheme.Object) R { return f(typed[T](new), typed[T](old)) }
}

func erasePrepare[T scheme.Object](f func(context.Context, Backend, T, T) error) func(context.Context, Backend, scheme.Object, scheme.Object) error {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, b Backend, new, old scheme.Object) error {
		return f(ctx, b, typed[T](new), typed[T](old))
	}
}

func eraseAllocate[T scheme.Object](f func(context.Context, T, T, bool) (func(context.Context), error)) func(context.Context, scheme.Object, scheme.Object, bool) (func(context.Context), error) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, new, old scheme.Object, dryRun bool) (func(context.Context), error) {
		return f(ctx, typed[T](new), typed[T](old), dryRun)
	}
}

func eraseRelease[T scheme.Object](f func(context.Context, T, T)) func(context.Context, scheme.Object, scheme.Object) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, new, old scheme.Object) { f(ctx, typed[T](new), typed[T](old)) }
}

func eraseReview[T scheme.Object](f func(context.Context, Backend, *request.User, T) (T, error)) func(context.Context, Backend, *request.User, scheme.Object) (scheme.Object, error) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, b Backend, user *request.User, obj scheme.Object) (scheme.Object, error) {
		out, err := f(ctx, b, user, typed[T](obj))
		if err != nil {
			return nil, err
		}
		return out, nil
	}
}

func eraseRow[T scheme.Object](f func(T, time.Time) []any) func(scheme.Object, time.Time) []any {
	if f == nil {
		return nil
	}
	return func(obj scheme.Object, now time.Time) []any { return f(typed[T](obj), now) }
}

func eraseFields[T scheme.Object](f func(T) fields.Set) func(scheme.Object) fields.Set {
	if f == nil {
		return nil
	}
	return func(obj scheme.Object) fields.Set { return f(typed[T](obj)) }
}

func eraseBeforeDelete[T scheme.Object](f func(T, *metav1.DeleteOptions, time.Time) (bool, error)) func(scheme.Object, *metav1.DeleteOptions, time.Time) (bool, error) {
	if f == nil {
		return nil
	}
	return func(obj scheme.Object, opts *metav1.DeleteOptions, now time.Time) (bool, error) {
		return f(typed[T](obj), opts, now)
	}
}

// part is the subresource of T that is a part of the object itself.
func part[T scheme.Object](k *scheme.Kind, name string, prepare func(new, old T), validate func(new, old T) field.ErrorList) *Subresource {
	return &Subresource{
		Name: name, GVK: k.GroupVersionKind,
		PreparePart: func(_ context.Context, new, old scheme.Object) error {
			prepare(typed[T](new), typed[T](old))
			return nil
		},
		ValidatePart: erase2(validate),
	}
}
