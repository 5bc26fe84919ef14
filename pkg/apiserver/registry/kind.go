package registry

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// Kind defines how the API server handles one resource.
type Kind struct {
	*scheme.Kind
	Of[scheme.Object]
}

// Of holds the rules of a kind, written with its Go type. Package endpoints
// implements create, update and delete; what differs between kinds is here. A nil
// function means that the kind has no such rule. Functions must be safe for
// concurrent use.
type Of[T scheme.Object] struct {
	// Versions are further versions in which the kind is served. The rules below
	// apply to the storage version.
	Versions []*Version

	// Unserved means that the storage version is not served.
	Unserved bool

	// Convert converts between the versions, in place of the functions of Versions. Each
	// version then needs Rules of its own. See Views.
	Convert Converter

	// Schema describes the objects of a kind without a Go type, for OpenAPI and
	// server-side apply. If it is nil, the objects may have any fields. SchemaV2 is
	// what OpenAPI v2 can express of it; nil: all of it.
	Schema   *spec.Schema
	SchemaV2 *spec.Schema

	// Prune removes fields that the kind does not have from a decoded object of the
	// storage version, and returns an unknown-field error for each.
	Prune func(obj T) []error

	// Default sets the fields that the user omitted. It runs on every decoded body
	// and on every object read from the store, so it must be idempotent.
	Default func(obj T)

	// Prepare makes new ready to be stored: it resets fields that the user may not
	// set (status on create and update), updates the generation, and sets fields
	// that depend on other objects. old is nil on create. Prepare runs before
	// Validate, so it must not panic on invalid objects.
	Prepare func(ctx context.Context, b Backend, new, old T) error

	// Allocate allocates cluster-wide values that new needs and old does not have,
	// such as the addresses and node ports of a Service, and writes them into new.
	// It runs last before the write, after Validate. In a dry run it chooses and
	// checks values but allocates nothing. undo, which may be nil, releases what
	// was allocated; the caller calls it if the write does not happen.
	Allocate func(ctx context.Context, new, old T, dryRun bool) (undo func(context.Context), err error)
	// Release releases what old holds and new does not. It runs after a successful
	// update and, with a nil new, after the object is removed from the store.
	Release func(ctx context.Context, new, old T)

	// Validate validates new, and its changes against old unless old is nil. It
	// returns all errors at once, with upstream's field paths and messages. The
	// object metadata has been validated before, with ValidateName for the name.
	Validate     func(new, old T) field.ErrorList
	ValidateName func(name string, prefix bool) []string // nil: DNS-1123 subdomain
	Warnings     func(new, old T) []string

	// Review answers a review such as SubjectAccessReview. A kind with Review
	// supports only create: the object is returned to the client and not stored.
	// Defaults and admission run before. user is the user of the request, or nil.
	Review func(ctx context.Context, b Backend, user *request.User, obj T) (T, error)

	// Compute returns the objects of a kind whose objects are not stored (see
	// scheme.Kind.Computed): the one of that name or none, or all if name is "". Such a
	// kind supports only get and list.
	Compute func(ctx context.Context, name string) []T

	// Columns and Row define the Table form, which `kubectl get` prints.
	Columns []metav1.TableColumnDefinition
	Row     func(obj T, now time.Time) []any

	// Fields returns in a new map the selectable fields of the kind, besides metadata.name and
	// metadata.namespace. Indexed are those by which the watch cache indexes
	// objects and watchers.
	Fields  func(obj T) fields.Set
	Indexed []string

	// BeforeDelete may turn a delete into a graceful one by changing obj (the
	// deletion timestamp and grace period of a Pod; the phase of a Namespace). It
	// returns true if the object must remain in the store for now.
	BeforeDelete func(obj T, opts *metav1.DeleteOptions, now time.Time) (keep bool, err error)

	// AllowCreateOnUpdate makes a PUT of an absent object create it (as upstream:
	// leases, endpoints, events ...).
	AllowCreateOnUpdate bool
	// AllowUnconditionalUpdate makes a PUT without resourceVersion overwrite the
	// object.
	AllowUnconditionalUpdate bool
	// ReturnDeleted makes a delete return the last state of the object instead of a
	// Status (as upstream: pods, serviceaccounts, ...).
	ReturnDeleted bool
	// NoDeleteCollection disables DELETE of a collection (namespaces).
	NoDeleteCollection bool
	// Deprecated is sent as a warning with every response; "": no warning.
	Deprecated string
	// OrphanByDefault makes a delete without a propagation policy keep the dependents
	// (replicationcontrollers, jobs). OrphanWarning is sent with such a delete; "": no
	// warning.
	OrphanByDefault bool
	OrphanWarning   string
	// Follow receives all changes of the objects from the watch cache; see
	// watchcache.Follower. May be nil.
	Follow Follower

	// NoController means that nothing in the cluster acts on the objects yet: a create is
	// answered with a warning that says so.
	NoController bool

	Subresources []*Subresource
}

// Version is a further version in which a kind is served. Its objects are converted
// when they are read and written. The conversion functions must not modify their
// argument; their result may share memory with it.
type Version struct {
	*scheme.Kind // group, version, names and Go type
	Unserved     bool
	Schema       *spec.Schema
	SchemaV2     *spec.Schema

	// Rules are the rules for objects of this version, in place of those of the
	// kind: Prune, Default, Prepare, Validate, Warnings, Columns, Row, Fields,
	// Deprecated and Subresources. nil: those of the kind, which apply to objects of
	// the storage version.
	Rules *Of[scheme.Object]

	// FromStorage and ToStorage convert from and to the storage version. If both
	// are nil, the version has the same Go type under another name.
	FromStorage func(obj scheme.Object) (scheme.Object, error)
	ToStorage   func(obj scheme.Object) (scheme.Object, error)

	// Fields are the names of selectable fields in this version, besides metadata.name
	// and metadata.namespace, and their names in the storage version. nil: the same names.
	Fields map[string]string

	// Validate validates, on objects of the storage version, what only this version
	// requires of writes. May be nil.
	Validate func(new, old scheme.Object) field.ErrorList
}

// converted returns the version k of a kind whose storage version has the Go type
// S.
func converted[S, V scheme.Object](k *scheme.Kind, from func(S) V, to func(V) S, validate func(new, old S) field.ErrorList) *Version {
	return &Version{
		Kind:        k,
		FromStorage: func(obj scheme.Object) (scheme.Object, error) { return from(obj.(S)), nil },
		ToStorage:   func(obj scheme.Object) (scheme.Object, error) { return to(obj.(V)), nil },
		Validate:    pair(validate),
	}
}

// All returns all versions of the kind, the storage version first. Their Rules are
// not nil.
func (k *Kind) All() []*Version {
	out := []*Version{{Kind: k.Kind, Unserved: k.Unserved, Schema: k.Schema, SchemaV2: k.SchemaV2, Rules: &k.Of}}
	for _, v := range k.Versions {
		if v.Rules == nil {
			of := *v
			v, of.Rules = &of, &k.Of
		}
		out = append(out, v)
	}
	return out
}

// Served returns the versions in which the kind is served, in the order of All.
func (k *Kind) Served() []*Version {
	return slices.DeleteFunc(k.All(), func(v *Version) bool { return v.Unserved })
}

// Subresource is one path below an object. Exactly one of the four groups of
// functions is set.
type Subresource struct {
	Name string                  // "status", "scale", "binding", ...
	GVK  schema.GroupVersionKind // of its bodies

	// 1. A part of the object itself (status, ephemeralcontainers, resize): get,
	// update, patch. PreparePart copies from old to new everything that this part
	// does not own.
	PreparePart  func(ctx context.Context, new, old scheme.Object) error
	ValidatePart func(new, old scheme.Object) field.ErrorList

	// 2. A view of the object (scale): get, update, patch. Replicas is the field of
	// the object that spec.replicas of the view shows; nil: spec.replicas.
	View     func(obj scheme.Object) (runtime.Object, error)
	Merge    func(obj scheme.Object, view runtime.Object) error
	Replicas []string

	// 3. An action (binding, eviction, token): create.
	Act func(ctx context.Context, b Backend, namespace, name string, body runtime.Object, opts *metav1.CreateOptions) (runtime.Object, error)

	// 4. A stream (log, exec, attach, portforward, proxy): the handler owns the
	// connection. path is what follows the name of the subresource in the URL.
	// Methods are the supported HTTP methods.
	Connect Connect
	Methods []string
}

// Connect returns the handler for one streaming request.
type Connect func(b Backend, namespace, name, path string) http.Handler

// Follower is watchcache.Follower.
type Follower interface {
	Replace(all []scheme.Object)
	Put(obj scheme.Object)
	Remove(namespace, name string)
}

// Backend gives the code of a kind access to other objects. Get and List are
// consistent reads. Errors are *apierrors.StatusError. Implementations are safe for
// concurrent use.
type Backend interface {
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (scheme.Object, error)
	List(ctx context.Context, gvr schema.GroupVersionResource, namespace string) ([]scheme.Object, error)
	Create(ctx context.Context, gvr schema.GroupVersionResource, obj scheme.Object) (scheme.Object, error)
	// Update applies change to the present state and stores the result, and repeats
	// both after a conflict. It runs neither Prepare nor validation, because the
	// server itself makes the change.
	Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, change func(scheme.Object) error) (scheme.Object, error)
	Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts *metav1.DeleteOptions) error
	// DeleteAdmitted is Delete as a part of a request that admission has let pass: no
	// plugin is asked about the deletion.
	DeleteAdmitted(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts *metav1.DeleteOptions) error
}

// Kind returns the rules without their Go type. k is the entry of T in the scheme.
func (o Of[T]) Kind(k *scheme.Kind) *Kind {
	return &Kind{k, Of[scheme.Object]{
		Versions: o.Versions,
		Unserved: o.Unserved,
		Convert:  o.Convert,
		Schema:   o.Schema,
		SchemaV2: o.SchemaV2,
		Prune:    when(o.Prune, func(obj scheme.Object) []error { return o.Prune(typed[T](obj)) }),
		Default:  when(o.Default, func(obj scheme.Object) { o.Default(typed[T](obj)) }),
		Prepare: when(o.Prepare, func(ctx context.Context, b Backend, new, old scheme.Object) error {
			return o.Prepare(ctx, b, typed[T](new), typed[T](old))
		}),
		Allocate: when(o.Allocate, func(ctx context.Context, new, old scheme.Object, dryRun bool) (func(context.Context), error) {
			return o.Allocate(ctx, typed[T](new), typed[T](old), dryRun)
		}),
		Release:  when(o.Release, func(ctx context.Context, new, old scheme.Object) { o.Release(ctx, typed[T](new), typed[T](old)) }),
		Validate: pair(o.Validate),
		Warnings: pair(o.warnings(k)),
		Review: when(o.Review, func(ctx context.Context, b Backend, user *request.User, obj scheme.Object) (scheme.Object, error) {
			return o.Review(ctx, b, user, typed[T](obj))
		}),
		Compute: when(o.Compute, func(ctx context.Context, name string) (out []scheme.Object) {
			for _, obj := range o.Compute(ctx, name) {
				out = append(out, obj)
			}
			return out
		}),
		Row:    when(o.Row, func(obj scheme.Object, now time.Time) []any { return o.Row(typed[T](obj), now) }),
		Fields: when(o.Fields, func(obj scheme.Object) fields.Set { return o.Fields(typed[T](obj)) }),
		BeforeDelete: when(o.BeforeDelete, func(obj scheme.Object, opts *metav1.DeleteOptions, now time.Time) (bool, error) {
			return o.BeforeDelete(typed[T](obj), opts, now)
		}),

		ValidateName: o.ValidateName, Columns: o.Columns, Indexed: o.Indexed, Subresources: o.Subresources, Deprecated: o.Deprecated,
		AllowCreateOnUpdate: o.AllowCreateOnUpdate, AllowUnconditionalUpdate: o.AllowUnconditionalUpdate,
		ReturnDeleted: o.ReturnDeleted, NoDeleteCollection: o.NoDeleteCollection, NoController: o.NoController, Follow: o.Follow,
		OrphanByDefault: o.OrphanByDefault, OrphanWarning: o.OrphanWarning,
	}}
}

// warnings returns Warnings, with the one that NoController demands.
func (o Of[T]) warnings(k *scheme.Kind) func(new, old T) []string {
	if !o.NoController {
		return o.Warnings
	}
	return func(new, old T) (out []string) {
		if reflect.ValueOf(old).IsNil() {
			out = append(out, k.GVR().GroupResource().String()+": this cluster has no controller for this resource: the object is stored, and nothing acts on it")
		}
		if o.Warnings != nil {
			out = append(out, o.Warnings(new, old)...)
		}
		return out
	}
}

// when returns erased, which calls rule, or nil if rule is nil.
func when[R, E any](rule R, erased E) E {
	if reflect.ValueOf(rule).IsNil() {
		var none E
		return none
	}
	return erased
}

// pair erases the type of a rule that compares an object with its previous state.
func pair[T scheme.Object, R any](rule func(new, old T) R) func(new, old scheme.Object) R {
	return when(rule, func(new, old scheme.Object) R { return rule(typed[T](new), typed[T](old)) })
}

// typed returns obj as a T, or the zero T if obj is nil because the object does not
// exist.
func typed[T scheme.Object](obj scheme.Object) T {
	if obj == nil {
		var none T
		return none
	}
	return obj.(T)
}

// part returns a subresource that is a part of the object itself.
func part[T scheme.Object](k *scheme.Kind, name string, prepare func(new, old T), validate func(new, old T) field.ErrorList) *Subresource {
	return &Subresource{
		Name: name, GVK: k.GroupVersionKind,
		PreparePart: func(_ context.Context, new, old scheme.Object) error {
			prepare(typed[T](new), typed[T](old))
			return nil
		},
		ValidatePart: pair(validate),
	}
}

// lifecycle implements Prepare and the status subresource of a kind with a spec and
// a status.
type lifecycle[T scheme.Object, Spec, Status any] struct {
	parts   func(T) (*Spec, *Status)
	revises func(new, old T) bool // reports other changes that increment the generation; may be nil

	uncounted bool // objects have no generation
}

// prepare implements Prepare: a create starts with an empty status and generation
// 1; an update keeps the status and increments the generation if the spec has
// changed.
func (l lifecycle[T, Spec, Status]) prepare(_ context.Context, _ Backend, obj, old T) error {
	spec, status := l.parts(obj)
	if reflect.ValueOf(old).IsNil() {
		*status = *new(Status)
		if !l.uncounted {
			obj.SetGeneration(1)
		}
		return nil
	}
	before, kept := l.parts(old)
	*status = *kept
	obj.SetGeneration(old.GetGeneration())
	revised := !apiequality.Semantic.DeepEqual(spec, before) || l.revises != nil && l.revises(obj, old)
	if revised && !l.uncounted {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
	return nil
}

// status returns the status subresource. keep restores further fields that a status
// update must not change; it may be nil.
func (l lifecycle[T, Spec, Status]) status(k *scheme.Kind, keep func(new, old T), validate func(new, old T) field.ErrorList) *Subresource {
	return part(k, "status", func(new, old T) {
		spec, _ := l.parts(new)
		before, _ := l.parts(old)
		*spec = *before
		new.SetGeneration(old.GetGeneration())
		if keep != nil {
			keep(new, old)
		}
	}, validate)
}

// counted implements Prepare of a kind without a status: a create starts with
// generation 1, and an update increments it if the part that spec returns has
// changed.
func counted[T scheme.Object, Spec any](spec func(T) *Spec) func(context.Context, Backend, T, T) error {
	return func(_ context.Context, _ Backend, obj, old T) error {
		if reflect.ValueOf(old).IsNil() {
			obj.SetGeneration(1)
			return nil
		}
		obj.SetGeneration(old.GetGeneration())
		if !apiequality.Semantic.DeepEqual(spec(obj), spec(old)) {
			obj.SetGeneration(old.GetGeneration() + 1)
		}
		return nil
	}
}
