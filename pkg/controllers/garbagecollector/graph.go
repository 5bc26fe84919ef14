package garbagecollector

import (
	"cmp"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/metadata"
)

// node is an object in the graph. It is immutable: a changed object is a new node.
type node struct {
	kind      metadata.Kind
	namespace string
	name      string
	uid       types.UID
	revision  string
	owners    []metav1.OwnerReference

	deleting   bool // has a deletion timestamp
	foreground bool // has the finalizer of foreground deletion
	orphan     bool // has the finalizer of orphaning
}

func nodeOf(k metadata.Kind, obj metav1.Object) *node {
	finalizers := obj.GetFinalizers()
	return &node{
		kind: k, namespace: obj.GetNamespace(), name: obj.GetName(), uid: obj.GetUID(), revision: obj.GetResourceVersion(),
		owners:     obj.GetOwnerReferences(),
		deleting:   obj.GetDeletionTimestamp() != nil,
		foreground: slices.Contains(finalizers, metav1.FinalizerDeleteDependents),
		orphan:     slices.Contains(finalizers, metav1.FinalizerOrphanDependents),
	}
}

// waits reports whether the object stays until its dependents are gone.
func (n *node) waits() bool { return n.deleting && n.foreground }

// is reports whether ref, in an object of this namespace, refers to n.
func (n *node) is(ref metav1.OwnerReference, namespace string) bool {
	return n.uid == ref.UID && n.name == ref.Name && n.kind.GroupVersionKind.Kind == ref.Kind && n.kind.Group == groupOf(ref) &&
		(!n.kind.Namespaced || n.namespace == namespace)
}

// blocks reports whether the owner must not be deleted before n.
func (n *node) blocks(owner types.UID) bool {
	return slices.ContainsFunc(n.owners, func(o metav1.OwnerReference) bool {
		return o.UID == owner && o.BlockOwnerDeletion != nil && *o.BlockOwnerDeletion
	})
}

func groupOf(ref metav1.OwnerReference) string {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return ref.APIVersion
	}
	return gv.Group
}

// graph holds the objects and their owner references, and the dependents of owners that are
// not in the graph, too. It is safe for concurrent use.
type graph struct {
	mu         sync.RWMutex
	nodes      map[types.UID]*node
	dependents map[types.UID]map[types.UID]*node
}

func newGraph() *graph {
	return &graph{nodes: map[types.UID]*node{}, dependents: map[types.UID]map[types.UID]*node{}}
}

// put adds or replaces an object and returns the objects that must be reconciled.
func (g *graph) put(n *node) (wake []types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.nodes[n.uid]
	g.nodes[n.uid] = n
	if old != nil {
		g.unlink(old)
	}
	for _, o := range n.owners {
		if g.dependents[o.UID] == nil {
			g.dependents[o.UID] = map[types.UID]*node{}
		}
		g.dependents[o.UID][n.uid] = n
	}
	if g.interesting(n) {
		wake = append(wake, n.uid)
	}
	if old != nil && !slices.EqualFunc(old.owners, n.owners, sameReference) {
		wake = append(wake, g.waiting(old)...)
	}
	return wake
}

// remove removes an object and returns the objects that must be reconciled.
func (g *graph) remove(uid types.UID) (wake []types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.nodes[uid]
	if old == nil {
		return nil
	}
	delete(g.nodes, uid)
	g.unlink(old)
	for dependent := range g.dependents[uid] {
		wake = append(wake, dependent)
	}
	slices.Sort(wake)
	return append(wake, g.waiting(old)...)
}

func (g *graph) unlink(n *node) {
	for _, o := range n.owners {
		delete(g.dependents[o.UID], n.uid)
		if len(g.dependents[o.UID]) == 0 {
			delete(g.dependents, o.UID)
		}
	}
}

// interesting reports whether n may need an action.
func (g *graph) interesting(n *node) bool {
	if n.deleting {
		return n.foreground || n.orphan
	}
	for _, ref := range n.owners {
		if o := g.nodes[ref.UID]; o == nil || o.waits() || !o.is(ref, n.namespace) {
			return true
		}
	}
	return false
}

// waiting returns the owners of n that wait for the deletion of their dependents.
func (g *graph) waiting(n *node) (out []types.UID) {
	for _, ref := range n.owners {
		if o := g.nodes[ref.UID]; o != nil && o.waits() {
			out = append(out, o.uid)
		}
	}
	return out
}

func (g *graph) node(uid types.UID) *node {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.nodes[uid]
}

// ofKind lists the objects of a kind.
func (g *graph) ofKind(gvr schema.GroupVersionResource) (uids []types.UID) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, n := range g.nodes {
		if n.kind.GVR() == gvr {
			uids = append(uids, n.uid)
		}
	}
	return uids
}

// ownedBy lists the objects with an owner of a kind that is not in the graph.
func (g *graph) ownedBy(kind schema.GroupKind) (uids []types.UID) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, n := range g.nodes {
		if slices.ContainsFunc(n.owners, func(o metav1.OwnerReference) bool {
			return o.Kind == kind.Kind && groupOf(o) == kind.Group && g.nodes[o.UID] == nil
		}) {
			uids = append(uids, n.uid)
		}
	}
	return uids
}

// dependentsOf lists the objects that uid owns, in a stable order.
func (g *graph) dependentsOf(uid types.UID) []*node {
	g.mu.RLock()
	defer g.mu.RUnlock()
	out := make([]*node, 0, len(g.dependents[uid]))
	for _, n := range g.dependents[uid] {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b *node) int { return cmp.Compare(a.uid, b.uid) })
	return out
}

func sameReference(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && a.Name == b.Name && (a.BlockOwnerDeletion != nil && *a.BlockOwnerDeletion) == (b.BlockOwnerDeletion != nil && *b.BlockOwnerDeletion)
}
