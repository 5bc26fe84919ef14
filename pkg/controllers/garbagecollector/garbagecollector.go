package garbagecollector

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/controller"
	"podium/pkg/controller/loop"
	"podium/pkg/controller/ownership"
)

// Spec describes the garbage collector.
func Spec(workers int) controller.Spec {
	return controller.Spec{
		Name: "garbage-collector-controller", Account: "generic-garbage-collector", Component: "garbage-collector-controller",
		Workers: workers, New: build,
	}
}

// reconciler's keys are UIDs.
type reconciler struct {
	controller.Context
	loop     *loop.Loop
	graph    *graph
	absent   *absentOwners
	monitors *monitors
}

func build(c controller.Context) (controller.Runner, error) {
	r := &reconciler{Context: c, graph: newGraph(), absent: &absentOwners{known: map[reference]bool{}}}
	r.monitors = newMonitors(c, r.graph, r.wake)
	r.loop = c.NewLoop("garbage_collector", 0, r.reconcile, r.monitors)
	return r, nil
}

func (r *reconciler) wake(uids []types.UID) {
	for _, uid := range uids {
		r.loop.Wake(keyOf(uid))
	}
}

func keyOf(uid types.UID) loop.Key { return loop.Key{Name: string(uid)} }

// Run runs the monitors and the loop until ctx ends.
func (r *reconciler) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.monitors.run(ctx) })
	g.Go(func() error { return r.loop.Run(ctx) })
	return g.Wait()
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	n := r.graph.node(types.UID(key.Name))
	switch {
	case n == nil:
		return loop.Done, nil
	case n.deleting && n.orphan:
		return loop.Done, r.orphan(ctx, n)
	case n.waits():
		return loop.Done, r.awaitDependents(ctx, n)
	case n.deleting:
		return loop.Done, nil // other finalizers hold it
	}
	states := make([]ownerState, len(n.owners))
	for i, ref := range n.owners {
		var err error
		if states[i], err = r.stateOf(ctx, n, ref); err != nil {
			return loop.Done, err
		}
	}
	return loop.Done, r.carryOut(ctx, n, decide(n, states, func() []*node { return r.graph.dependentsOf(n.uid) }))
}

// stateOf returns the state of the owner that ref refers to.
func (r *reconciler) stateOf(ctx context.Context, n *node, ref metav1.OwnerReference) (ownerState, error) {
	o := r.graph.node(ref.UID)
	switch {
	case o == nil:
	case o.is(ref, n.namespace) && o.waits():
		return waiting, nil
	case o.is(ref, n.namespace):
		return solid, nil
	case n.namespace != "" && o.kind.Namespaced && o.namespace != n.namespace:
		r.misplaced(n, ref)
	}
	coordinates := reference{ref.UID, ref.APIVersion, ref.Kind, n.namespace, ref.Name}
	if r.absent.has(coordinates) {
		return absent, nil
	}
	k, ok := r.monitors.kindOf(ref)
	if !ok {
		return solid, nil // the kind is not served
	}
	if k.Namespaced && n.namespace == "" {
		r.misplaced(n, ref)
		return solid, nil
	}
	namespace := ""
	if k.Namespaced {
		namespace = n.namespace
	}
	live, err := k.Get(ctx, namespace, ref.Name)
	if apierrors.IsNotFound(err) || err == nil && live.UID != ref.UID {
		r.absent.add(coordinates)
		return absent, nil
	}
	if err != nil {
		return solid, fmt.Errorf("get owner %s %s: %w", ref.Kind, ref.Name, err)
	}
	if nodeOf(k, live).waits() {
		return waiting, nil
	}
	return solid, nil
}

// misplaced tells that an owner reference cannot be to what it names: an object in another
// namespace, or, in a cluster-scoped object, one in any namespace.
func (r *reconciler) misplaced(n *node, ref metav1.OwnerReference) {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(n.kind.GroupVersionKind)
	obj.SetNamespace(n.namespace)
	obj.SetName(n.name)
	obj.SetUID(n.uid)
	r.Events.Eventf(obj, corev1.EventTypeWarning, "OwnerRefInvalidNamespace", "ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
		ref.APIVersion, ref.Kind, n.namespace, ref.Name, ref.UID, n.namespace)
}

func (r *reconciler) carryOut(ctx context.Context, n *node, v verdict) error {
	if len(v.Forget) > 0 {
		return r.release(ctx, n, v.Forget...)
	}
	if v.Delete == "" {
		return nil
	}
	if v.Unblock {
		if err := r.unblock(ctx, n); err != nil {
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
		r.Log.Debug("object deleted", "resource", n.kind.Resource, "namespace", n.namespace, "name", n.name, "propagation", v.Delete)
	}
	r.loop.Wait(keyOf(n.uid), func() bool {
		now := r.graph.node(n.uid)
		return now == nil || now.revision != n.revision
	})
	return nil
}

// awaitDependents removes the foreground finalizer once no dependent blocks the owner. Until
// then it enqueues the dependents, which are then deleted.
func (r *reconciler) awaitDependents(ctx context.Context, n *node) error {
	if !r.blocked(n) {
		if err := r.monitors.refresh(ctx); err != nil { // dependents may be of a new kind
			return fmt.Errorf("discover kinds: %w", err)
		}
	}
	if !r.blocked(n) {
		return r.removeFinalizer(ctx, n, metav1.FinalizerDeleteDependents)
	}
	for _, d := range r.graph.dependentsOf(n.uid) {
		if !d.waits() {
			r.loop.Wake(keyOf(d.uid))
		}
	}
	return nil
}

func (r *reconciler) blocked(n *node) bool {
	return slices.ContainsFunc(r.graph.dependentsOf(n.uid), func(d *node) bool { return d.blocks(n.uid) })
}

// orphan removes the dependents' references to n and then n's finalizer. The graph may lack
// dependents that were created just before, which would be deleted with the owner; so orphan
// also lists the dependents from the API.
func (r *reconciler) orphan(ctx context.Context, n *node) error {
	if err := r.forget(ctx, n, r.graph.dependentsOf(n.uid)); err != nil {
		return err
	}
	if err := r.monitors.refresh(ctx); err != nil {
		return fmt.Errorf("discover kinds: %w", err)
	}
	for _, k := range r.monitors.all() {
		if n.kind.Namespaced && !k.Namespaced {
			continue
		}
		objects, err := k.In(ctx, n.namespace)
		if err != nil {
			return fmt.Errorf("list dependents: %w", err)
		}
		var late []*node
		for _, o := range objects {
			if slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == n.uid }) {
				late = append(late, nodeOf(k.Kind, o))
			}
		}
		if err := r.forget(ctx, n, late); err != nil {
			return err
		}
	}
	return r.removeFinalizer(ctx, n, metav1.FinalizerOrphanDependents)
}

func (r *reconciler) forget(ctx context.Context, owner *node, dependents []*node) error {
	return loop.Parallel(ctx, len(dependents), func(ctx context.Context, i int) error {
		return r.release(ctx, dependents[i], owner.uid)
	})
}

// release removes references from an object.
func (r *reconciler) release(ctx context.Context, n *node, owners ...types.UID) error {
	kept := slices.DeleteFunc(slices.Clone(n.owners), func(o metav1.OwnerReference) bool { return slices.Contains(owners, o.UID) })
	return r.patch(ctx, n, ownership.ReleasePatch(owners...), kept)
}

// unblock clears blockOwnerDeletion of all owner references of n.
func (r *reconciler) unblock(ctx context.Context, n *node) error {
	refs, owners := make([]map[string]any, len(n.owners)), slices.Clone(n.owners)
	for i := range owners {
		refs[i] = map[string]any{"uid": owners[i].UID, "blockOwnerDeletion": false}
		owners[i].BlockOwnerDeletion = new(false)
	}
	return r.patch(ctx, n, map[string]any{"metadata": map[string]any{"ownerReferences": refs}}, owners)
}

// patch changes the owner references of an object, unless it no longer exists or another
// object of the same name has replaced it. Custom resources do not support strategic merge
// patch: the whole list is replaced, if the object has not changed.
func (r *reconciler) patch(ctx context.Context, n *node, strategic map[string]any, owners []metav1.OwnerReference) error {
	strategic["metadata"].(map[string]any)["uid"] = n.uid
	_, err := n.kind.Patch(ctx, n.namespace, n.name, types.StrategicMergePatchType, strategic)
	if apierrors.IsConflict(err) {
		return nil
	}
	if apierrors.IsUnsupportedMediaType(err) {
		_, err = n.kind.Patch(ctx, n.namespace, n.name, types.MergePatchType, map[string]any{"metadata": map[string]any{
			"uid": n.uid, "resourceVersion": n.revision, "ownerReferences": owners,
		}})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch %s %s/%s: %w", n.kind.Resource, n.namespace, n.name, err)
	}
	return nil
}

func (r *reconciler) removeFinalizer(ctx context.Context, n *node, finalizer string) error {
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
	_, err = n.kind.Patch(ctx, n.namespace, n.name, types.MergePatchType, map[string]any{"metadata": map[string]any{
		"uid": live.UID, "resourceVersion": live.ResourceVersion, "finalizers": left,
	}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove finalizer %s: %w", finalizer, err)
	}
	return nil
}

// reference is an owner reference in the namespace of its dependent.
type reference struct {
	uid                               types.UID
	apiVersion, kind, namespace, name string
}

// absentOwners caches owners that do not exist, so that many dependents of one owner cause a
// single request. A UID is never reused.
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
