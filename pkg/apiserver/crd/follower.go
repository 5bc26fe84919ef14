package crd

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/apiserver/crd/conversion"
	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/webhook"
	"podium/pkg/backoff"
	"podium/pkg/conditions"
	"podium/pkg/scheme"
)

// Resource is the resource of the definitions.
var Resource = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// Server is the API server that serves the custom resources.
type Server interface {
	// ChangeKinds serves the kinds of add, in place of those with the same resource,
	// and stops to serve those of remove.
	ChangeKinds(ctx context.Context, add []*registry.Kind, remove []schema.GroupResource) error
	Backend() registry.Backend
	// Stored returns all objects of a resource without converting them.
	Stored(ctx context.Context, gvr schema.GroupVersionResource) ([]scheme.Object, error)
}

// Config configures a Follower. All fields are required.
type Config struct {
	Server  Server
	BuiltIn []*scheme.Kind // the kinds that the server has without definitions
	Now     func() time.Time
	Log     *slog.Logger

	Dial    webhook.Dial        // connects conversion webhooks to the endpoints of Services
	Metrics *conversion.Metrics // of conversion webhooks
}

// Follower serves the kinds of all definitions and maintains their status. It is a
// watch cache follower of the definitions. It is safe for concurrent use.
type Follower struct {
	cfg     Config
	changed chan struct{} // has an element if known has changed since the last pass
	ready   atomic.Bool

	mu      sync.Mutex
	known   map[string]*apiextensionsv1.CustomResourceDefinition // by name; shared objects
	changes uint64                                               // of known
	done    uint64                                               // the changes whose kinds are served
	passed  chan struct{}                                        // closed when done increases

	// Only Run uses these.
	served   map[string]*served // by name of the definition
	cleaning sync.WaitGroup
	cleaned  map[types.UID]chan struct{} // closed when the deletion of instances ends
}

// served is a definition whose kind is served.
type served struct {
	uid         types.UID
	generation  int64
	names       apiextensionsv1.CustomResourceDefinitionNames
	resource    schema.GroupResource
	terminating *atomic.Bool
	converter   *conversion.Converter // nil: the versions differ only in their names
}

// NewFollower returns a Follower that does nothing before Run.
func NewFollower(cfg Config) *Follower {
	return &Follower{
		cfg: cfg, changed: make(chan struct{}, 1), passed: make(chan struct{}), known: map[string]*apiextensionsv1.CustomResourceDefinition{},
		served: map[string]*served{}, cleaned: map[types.UID]chan struct{}{},
	}
}

// Replace implements watchcache.Follower.
func (f *Follower) Replace(all []scheme.Object) {
	known := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, obj := range all {
		known[obj.GetName()] = obj.(*apiextensionsv1.CustomResourceDefinition)
	}
	f.update(func() { f.known = known })
}

// Put implements watchcache.Follower.
func (f *Follower) Put(obj scheme.Object) {
	f.update(func() { f.known[obj.GetName()] = obj.(*apiextensionsv1.CustomResourceDefinition) })
}

// Remove implements watchcache.Follower.
func (f *Follower) Remove(_, name string) {
	f.update(func() { delete(f.known, name) })
}

// update changes known and starts a pass.
func (f *Follower) update(change func()) {
	f.mu.Lock()
	change()
	f.changes++
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// Ready returns nil once the kinds of all definitions that existed at the start are
// served.
func (f *Follower) Ready() error {
	if f.ready.Load() {
		return nil
	}
	return errors.New("the kinds of the CustomResourceDefinitions are not served yet")
}

// awaitTimeout limits the time that Await blocks.
const awaitTimeout = 5 * time.Second

// Await blocks until the kinds of all definitions that are stored by now are served. It
// gives up when ctx ends or after awaitTimeout.
func (f *Follower) Await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, awaitTimeout)
	defer cancel()
	// A consistent read: afterwards, known includes all writes before.
	if _, err := f.cfg.Server.Backend().List(ctx, Resource, ""); err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for wanted := f.changes; f.done < wanted; {
		passed := f.passed
		f.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-passed:
		}
		f.mu.Lock()
		if ctx.Err() != nil {
			return
		}
	}
}

// passedUpTo records that the kinds of the first changes are served.
func (f *Follower) passedUpTo(changes uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = changes
	close(f.passed)
	f.passed = make(chan struct{})
}

// Run follows the definitions until ctx ends. It may be called once.
func (f *Follower) Run(ctx context.Context) {
	defer f.cleaning.Wait()
	retry := backoff.Backoff{Initial: 20 * time.Millisecond, Max: 5 * time.Second, Jitter: 1}
	for ctx.Err() == nil {
		// The first read waits until the watch cache, and with it f.known, is filled.
		if _, err := f.cfg.Server.Backend().List(ctx, Resource, ""); err == nil {
			break
		}
		_ = retry.Wait(ctx) // the loop condition checks ctx
	}
	retry.Reset()
	for ctx.Err() == nil {
		if err := f.pass(ctx); err != nil {
			if ctx.Err() == nil {
				f.cfg.Log.Warn("serve custom resources", "err", err)
			}
			_ = retry.Wait(ctx) // the loop condition checks ctx
			continue
		}
		retry.Reset()
		select {
		case <-ctx.Done():
		case <-f.changed:
		}
	}
}

// pass serves the kinds of all definitions as they are now, and then writes their
// status: a client that sees a definition as established finds its kind served.
func (f *Follower) pass(ctx context.Context) error {
	f.mu.Lock()
	all, changes := slices.Collect(maps.Values(f.known)), f.changes
	f.mu.Unlock()
	wanted := decide(all, f.cfg.BuiltIn, metav1.NewTime(f.cfg.Now().Truncate(time.Second)))
	if err := f.serve(ctx, all, wanted); err != nil {
		return err
	}
	f.passedUpTo(changes)
	f.ready.Store(true)
	maps.DeleteFunc(f.cleaned, func(uid types.UID, _ chan struct{}) bool {
		return !slices.ContainsFunc(all, func(c *apiextensionsv1.CustomResourceDefinition) bool { return c.UID == uid })
	})
	var errs []error
	for i, c := range all {
		if !apiequality.Semantic.DeepEqual(c.Status, wanted[i]) {
			errs = append(errs, f.writeStatus(ctx, c, &wanted[i]))
		}
		if c.DeletionTimestamp != nil {
			f.clean(ctx, c)
		}
	}
	return errors.Join(errs...)
}

// serve starts, replaces and stops the kinds of definitions, all at once.
func (f *Follower) serve(ctx context.Context, all []*apiextensionsv1.CustomResourceDefinition, wanted []apiextensionsv1.CustomResourceDefinitionStatus) error {
	next := map[string]*served{}
	var add []*registry.Kind
	for i, c := range all {
		if !conditions.IsTrue(wanted[i].Conditions, apiextensionsv1.Established) {
			continue
		}
		have := f.served[c.Name]
		if have == nil || have.uid != c.UID || have.generation != c.Generation || !apiequality.Semantic.DeepEqual(have.names, wanted[i].AcceptedNames) {
			accepted := *c
			accepted.Status.AcceptedNames = wanted[i].AcceptedNames
			var kind *registry.Kind
			have, kind = f.newServed(&accepted)
			add = append(add, kind)
		}
		have.terminating.Store(c.DeletionTimestamp != nil)
		next[c.Name] = have
	}
	var remove []schema.GroupResource
	for name, have := range f.served {
		if next[name] == nil {
			remove = append(remove, have.resource)
		}
	}
	if len(add) > 0 || len(remove) > 0 {
		if err := f.cfg.Server.ChangeKinds(ctx, add, remove); err != nil {
			return err
		}
	}
	for name, have := range f.served {
		if have.converter != nil && next[name] != have {
			have.converter.Close()
		}
	}
	f.served = next
	return nil
}

// newServed returns how to serve a definition.
func (f *Follower) newServed(c *apiextensionsv1.CustomResourceDefinition) (*served, *registry.Kind) {
	names := c.Status.AcceptedNames
	out := &served{uid: c.UID, generation: c.Generation, names: names, resource: schema.GroupResource{Group: c.Spec.Group, Resource: names.Plural}, terminating: &atomic.Bool{}}
	var convert registry.Converter
	if s := c.Spec.Conversion; s != nil && s.Strategy == apiextensionsv1.WebhookConverter && len(c.Spec.Versions) > 1 {
		out.converter = conversion.New(conversion.Config{Objects: f.cfg.Server.Backend(), Dial: f.cfg.Dial, Metrics: f.cfg.Metrics, Now: f.cfg.Now}, c)
		convert = out.converter.Convert
	}
	return out, Kind(c, out.terminating, convert)
}

// errStale means that a definition has changed since the pass began; the next pass
// looks at it again.
var errStale = errors.New("the definition has changed")

// writeStatus stores the names and conditions that a pass has decided.
func (f *Follower) writeStatus(ctx context.Context, c *apiextensionsv1.CustomResourceDefinition, wanted *apiextensionsv1.CustomResourceDefinitionStatus) error {
	return f.change(ctx, c, func(now *apiextensionsv1.CustomResourceDefinition) {
		now.Status.AcceptedNames = wanted.AcceptedNames
		for _, condition := range wanted.Conditions {
			if condition.Type != apiextensionsv1.Terminating {
				now.Status.Conditions = conditions.Set(now.Status.Conditions, condition)
			}
		}
	})
}

// change updates a definition, unless its spec has changed since c or it is gone.
func (f *Follower) change(ctx context.Context, c *apiextensionsv1.CustomResourceDefinition, change func(*apiextensionsv1.CustomResourceDefinition)) error {
	_, err := f.cfg.Server.Backend().Update(ctx, Resource, "", c.Name, func(obj scheme.Object) error {
		now := obj.(*apiextensionsv1.CustomResourceDefinition)
		if now.UID != c.UID || !apiequality.Semantic.DeepEqual(now.Spec, c.Spec) {
			return errStale
		}
		change(now)
		return nil
	})
	if errors.Is(err, errStale) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
