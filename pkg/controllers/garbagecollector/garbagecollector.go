package garbagecollector

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/informer"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
	"podium/pkg/controllers/metadata"
	"podium/pkg/controllers/ownership"
	"podium/pkg/scheme"
)

// Controller is the garbage collector. Its keys are uids.
type Controller struct {
	cfg   kit.Kit
	kinds []metadata.Kind
	graph *graph
	gone  *absentOwners
	run   []func(context.Context) error // the informers of kinds that nobody else watches
	loop  *loop.Loop
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg kit.Kit) *Controller {
	c := &Controller{cfg: cfg, graph: newGraph(), gone: &absentOwners{known: map[reference]bool{}}}
	synced := c.feeds()
	c.loop = cfg.Loop("garbage_collector", 0, c.reconcile, synced...)
	return c
}

// feeds connects the graph to an informer for each kind.
func (c *Controller) feeds() []loop.Syncer {
	v := c.cfg.Views
	shared := map[string]func(k metadata.Kind) loop.Syncer{
		"pods":            func(k metadata.Kind) loop.Syncer { return feed(c, k, v.Pods) },
		"services":        func(k metadata.Kind) loop.Syncer { return feed(c, k, v.Services) },
		"endpoints":       func(k metadata.Kind) loop.Syncer { return feed(c, k, v.Endpoints) },
		"endpointslices":  func(k metadata.Kind) loop.Syncer { return feed(c, k, v.EndpointSlices) },
		"replicasets":     func(k metadata.Kind) loop.Syncer { return feed(c, k, v.ReplicaSets) },
		"deployments":     func(k metadata.Kind) loop.Syncer { return feed(c, k, v.Deployments) },
		"nodes":           func(k metadata.Kind) loop.Syncer { return feed(c, k, v.Nodes) },
		"namespaces":      func(k metadata.Kind) loop.Syncer { return feed(c, k, v.Namespaces) },
		"serviceaccounts": func(k metadata.Kind) loop.Syncer { return feed(c, k, v.ServiceAccounts) },
	}
	var synced []loop.Syncer
	for _, sk := range c.cfg.Client.Scheme().Kinds() {
		if sk.Resource == "events" || !sk.Stored() {
			continue // they come and go by themselves, or never are
		}
		k := metadata.Of(c.cfg.Client, sk)
		c.kinds = append(c.kinds, k)
		if f := shared[sk.Resource]; f != nil {
			synced = append(synced, f(k))
			continue
		}
		i := informer.New(k, informer.Options{Log: c.cfg.Log})
		synced = append(synced, feed(c, k, i))
		c.run = append(c.run, i.Run)
	}
	return synced
}

func feed[T scheme.Object](c *Controller, k metadata.Kind, i *informer.Informer[T]) loop.Syncer {
	i.OnChange(func(old, new T) {
		var none T
		if any(new) == any(none) {
			c.wake(c.graph.remove(old.GetUID()))
		} else {
			c.wake(c.graph.put(nodeOf(k, new)))
		}
	})
	return i
}

func (c *Controller) wake(uids []types.UID) {
	for _, uid := range uids {
		c.loop.Wake(keyOf(uid))
	}
}

func keyOf(uid types.UID) loop.Key { return loop.Key{Name: string(uid)} }

// Run collects until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range c.run {
		g.Go(func() error { return run(ctx) })
	}
	g.Go(func() error { return c.loop.Run(ctx) })
	return g.Wait()
}

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	n := c.graph.node(types.UID(key.Name))
	switch {
	case n == nil:
		return loop.Done, nil
	case n.deleting && n.orphan:
		return loop.Done, c.orphan(ctx, n)
	case n.waits():
		return loop.Done, c.awaitDependents(ctx, n)
	case n.deleting:
		return loop.Done, nil // others hold it
	}
	states := make([]ownerState, len(n.owners))
	for i, ref := range n.owners {
		var err error
		if states[i], err = c.stateOf(ctx, n, ref); err != nil {
			return loop.Done, err
		}
	}
	return loop.Done, c.carryOut(ctx, n, decide(n, states, func() []*node { return c.graph.dependentsOf(n.uid) }))
}

// stateOf says what became of the owner that ref names.
func (c *Controller) stateOf(ctx context.Context, n *node, ref metav1.OwnerReference) (ownerState, error) {
	if o := c.graph.node(ref.UID); o != nil && o.is(ref, n.namespace) {
		if o.waits() {
			return waiting, nil
		}
		return solid, nil
	}
	coordinates := reference{ref.UID, ref.APIVersion, ref.Kind, n.namespace, ref.Name}
	if c.gone.has(coordinates) {
		return absent, nil
	}
	k, ok := c.kindOf(ref)
	if !ok || k.Namespaced && n.namespace == "" {
		return solid, nil // a kind that is not served, or a reference that can mean nothing
	}
	namespace := ""
	if k.Namespaced {
		namespace = n.namespace
	}
	live, err := k.Get(ctx, namespace, ref.Name)
	if apierrors.IsNotFound(err) || err == nil && live.UID != ref.UID {
		c.gone.add(coordinates)
		return absent, nil
	}
	if err != nil {
		return solid, fmt.Errorf("look for owner %s %s: %w", ref.Kind, ref.Name, err)
	}
	if nodeOf(k, live).waits() {
		return waiting, nil
	}
	return solid, nil
}

func (c *Controller) kindOf(ref metav1.OwnerReference) (metadata.Kind, bool) {
	for _, k := range c.kinds {
		if k.GroupVersionKind.Kind == ref.Kind && k.Group == groupOf(ref) {
			return k, true
		}
	}
	return metadata.Kind{}, false
}

func (c *Controller) carryOut(ctx context.Context, n *node, v verdict) error {
	if len(v.Forget) > 0 {
		return c.patch(ctx, n, ownership.ReleasePatch(n.uid, v.Forget...))
	}
	if v.Delete == "" {
		return nil
	}
	if v.Unblock {
		if err := c.patch(ctx, n, unblockPatch(n)); err != nil {
			return err
		}
	}
	opts := metav1.DeleteOptions{PropagationPolicy: &v.Delete, Preconditions: &metav1.Preconditions{UID: &n.uid}}
	if !v.Unblock { // which changed the resourceVersion
		opts.Preconditions.ResourceVersion = &n.revision
	}
	err := n.kind.Delete(ctx, n.namespace, n.name, opts)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s/%s: %w", n.kind.Resource, n.namespace, n.name, err)
	}
	if err == nil {
		c.cfg.Log.Debug("deleted", "resource", n.kind.Resource, "namespace", n.namespace, "name", n.name, "propagation", v.Delete)
	}
	c.loop.Wait(keyOf(n.uid), func() bool {
		now := c.graph.node(n.uid)
		return now == nil || now.revision != n.revision
	})
	return nil
}

// awaitDependents lets an owner go once nothing blocks it, and until then has
// its dependents deleted.
func (c *Controller) awaitDependents(ctx context.Context, n *node) error {
	blocked := false
	for _, d := range c.graph.dependentsOf(n.uid) {
		blocked = blocked || d.blocks(n.uid)
	}
	if !blocked {
		return c.removeFinalizer(ctx, n, metav1.FinalizerDeleteDependents)
	}
	for _, d := range c.graph.dependentsOf(n.uid) {
		if !d.waits() {
			c.loop.Wake(keyOf(d.uid))
		}
	}
	return nil
}

// orphan has the dependents forget their owner and then lets it go. The graph
// may lack dependents that were made just before, and these would be deleted
// as soon as the owner is gone: so the API is asked once more.
func (c *Controller) orphan(ctx context.Context, n *node) error {
	if err := c.forget(ctx, n, c.graph.dependentsOf(n.uid)); err != nil {
		return err
	}
	for _, k := range c.kinds {
		if n.kind.Namespaced && !k.Namespaced {
			continue
		}
		objects, err := k.In(ctx, n.namespace)
		if err != nil {
			return fmt.Errorf("look for dependents: %w", err)
		}
		var late []*node
		for _, o := range objects {
			if slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == n.uid }) {
				late = append(late, nodeOf(k, o))
			}
		}
		if err := c.forget(ctx, n, late); err != nil {
			return err
		}
	}
	return c.removeFinalizer(ctx, n, metav1.FinalizerOrphanDependents)
}

func (c *Controller) forget(ctx context.Context, owner *node, dependents []*node) error {
	return loop.Parallel(ctx, len(dependents), func(ctx context.Context, i int) error {
		return c.patch(ctx, dependents[i], ownership.ReleasePatch(dependents[i].uid, owner.uid))
	})
}

// patch changes an object; one that is gone, or has a namesake's uid, is no concern.
func (c *Controller) patch(ctx context.Context, n *node, patch []byte) error {
	_, err := n.kind.Patch(ctx, n.namespace, n.name, types.StrategicMergePatchType, patch)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("patch %s %s/%s: %w", n.kind.Resource, n.namespace, n.name, err)
	}
	return nil
}

func (c *Controller) removeFinalizer(ctx context.Context, n *node, finalizer string) error {
	live, err := n.kind.Get(ctx, n.namespace, n.name)
	if apierrors.IsNotFound(err) || err == nil && live.UID != n.uid {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove finalizer %s: %w", finalizer, err)
	}
	left := slices.DeleteFunc(slices.Clone(live.Finalizers), func(f string) bool { return f == finalizer })
	if len(left) == len(live.Finalizers) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": live.UID, "resourceVersion": live.ResourceVersion, "finalizers": left,
	}})
	if err != nil {
		return err
	}
	_, err = n.kind.Patch(ctx, n.namespace, n.name, types.MergePatchType, patch)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove finalizer %s: %w", finalizer, err)
	}
	return nil
}

// unblockPatch lets all of n's owners go before n.
func unblockPatch(n *node) []byte {
	refs := make([]map[string]any, len(n.owners))
	for i, o := range n.owners {
		refs[i] = map[string]any{"uid": o.UID, "blockOwnerDeletion": false}
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": n.uid, "ownerReferences": refs}})
	if err != nil {
		panic(fmt.Sprintf("garbagecollector: %v", err)) // strings and booleans always encode
	}
	return data
}

// reference is an owner as a dependent names it.
type reference struct {
	uid                               types.UID
	apiVersion, kind, namespace, name string
}

// absentOwners remembers owners that are gone for good: a thousand dependents
// of one owner need not ask a thousand times. A uid never comes back.
type absentOwners struct {
	mu    sync.Mutex
	known map[reference]bool
}

const maxAbsent = 10_000

func (a *absentOwners) has(r reference) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known[r]
}

func (a *absentOwners) add(r reference) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) >= maxAbsent {
		clear(a.known)
	}
	a.known[r] = true
}
