package endpoints

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/registry"
)

// fillers is the number of caches that a change fills at the same time.
const fillers = 16

// table is an immutable set of served resources. A request uses the table that it
// loaded first.
type table struct {
	resources []*resource // in discovery order
	versions  map[schema.GroupVersionResource]*version
}

// resource returns what is served for gvr, or nil.
func (a *API) resource(gvr schema.GroupVersionResource) *version {
	return a.table.Load().versions[gvr]
}

// Count returns the number of stored objects of a resource, 0 if it is not served.
func (a *API) Count(gvr schema.GroupVersionResource) int {
	if r := a.resource(gvr); r != nil && r.cache != nil {
		return r.cache.Len()
	}
	return 0
}

// Add starts to serve all served versions of a kind, which must not be served yet.
// See Change.
func (a *API) Add(ctx context.Context, k *registry.Kind) error {
	if a.kind(k.GVR().GroupResource()) != nil {
		return fmt.Errorf("add %v: it is served already", k.GVR())
	}
	return a.Change(ctx, []*registry.Kind{k}, nil)
}

// Remove stops serving a kind. See Change.
func (a *API) Remove(gr schema.GroupResource) {
	_ = a.Change(context.Background(), nil, []schema.GroupResource{gr}) // only filling a cache may fail
}

// kind returns the kind of a resource, or nil if it is not served.
func (a *API) kind(gr schema.GroupResource) *registry.Kind {
	for _, r := range a.table.Load().resources {
		if r.group() == gr {
			return r.Kind
		}
	}
	return nil
}

// Change starts to serve the kinds of add, in place of those with the same resource,
// and stops to serve those of remove, all at once. When it returns, requests, watches
// and discovery include the new kinds, and the objects that are already stored are in
// their caches. It may be called before the feed runs and at any later time, and
// blocks until the caches are filled. On error, nothing changes.
//
// Watches of the kinds that were served before end. Stored objects remain, and
// requests in flight may still write. Create a kind without a Go type with
// scheme.Untyped and a registry.Of[*unstructured.Unstructured], whose functions may
// for instance interpret a schema.
func (a *API) Change(ctx context.Context, add []*registry.Kind, remove []schema.GroupResource) error {
	a.changing.Lock()
	defer a.changing.Unlock()
	fresh := make([]*resource, len(add))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(fillers)
	for i, k := range add {
		g.Go(func() (err error) {
			if fresh[i], err = newResource(ctx, a, k); err != nil {
				err = fmt.Errorf("add %s: %w", k.GVR().GroupResource(), err)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		a.drop(fresh)
		return err
	}
	a.drop(a.exchange(fresh, remove))
	return nil
}

// exchange publishes the table with the resources of fresh and without those of
// remove, and returns the resources that it no longer has. The caller holds
// a.changing.
func (a *API) exchange(fresh []*resource, remove []schema.GroupResource) (gone []*resource) {
	ends := map[schema.GroupResource]*resource{}
	for _, gr := range remove {
		ends[gr] = nil
	}
	for _, r := range fresh {
		ends[r.group()] = r
	}
	now := a.table.Load()
	next := &table{versions: maps.Clone(now.versions)}
	for _, r := range now.resources {
		successor, ended := ends[r.group()]
		if !ended {
			next.resources = append(next.resources, r)
			continue
		}
		gone = append(gone, r)
		maps.DeleteFunc(next.versions, func(_ schema.GroupVersionResource, v *version) bool { return v.stored == r })
		if successor != nil {
			next.resources = append(next.resources, successor)
			delete(ends, r.group())
		}
	}
	for _, r := range fresh {
		if ends[r.group()] == r {
			next.resources = append(next.resources, r)
		}
		for _, v := range r.entrances() {
			if !v.served.Unserved {
				next.versions[v.served.GVR()] = v
			}
		}
	}
	a.table.Store(next)
	a.report()
	return gone
}

// drop releases the caches of resources that are not served. Elements may be nil.
func (a *API) drop(resources []*resource) {
	for _, r := range resources {
		if r != nil && r.cache != nil {
			a.Feed.Remove(r.cache)
		}
	}
}

// report calls Changed with the present kinds. The caller holds a.changing, or is
// New.
func (a *API) report() {
	if a.Changed == nil {
		return
	}
	var kinds []*registry.Kind
	for _, r := range a.table.Load().resources {
		kinds = append(kinds, r.Kind)
	}
	a.Changed(slices.Clip(kinds))
}
