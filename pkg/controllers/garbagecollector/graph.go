package garbagecollector

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/controllers/metadata"
)

// node is one object of the graph. It is never changed: a changed object is a new node.
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

// waits says that the object stays until its dependents are gone.
func (n *node) waits() bool { return n.deleting && n.foreground }

// is says that ref, found in an object of this namespace, means n.
func (n *node) is(ref metav1.OwnerReference, namespace string) bool {
	return n.uid == ref.UID && n.name == ref.Name && n.kind.GroupVersionKind.Kind == ref.Kind && n.kind.Group == groupOf(ref) &&
		(!n.kind.Namespaced || n.namespace == namespace)
}

// blocks says that the owner must not go before n.
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

// graph is who owns whom. An owner need not be a node for its dependents to be known.
type graph struct {
	mu         sync.RWMutex
	nodes      map[types.UID]*node
	dependents map[types.UID]map[types.UID]*node
}

func newGraph() *graph {
	return &graph{nodes: map[types.UID]*node{}, dependents: map[types.UID]map[types.UID]*node{}}
}

// put notes that an object appeared or changed and names those that have to be
// looked at because of it.
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

// remove notes that an object is gone and names those that have to be looked at.
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

// interesting says that something may have to be done about n.
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

// waiting are the owners of n that wait for their dependents to be gone.
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

// dependentsOf lists what names uid as an owner, in a stable order.
func (g *graph) dependentsOf(uid types.UID) []*node {
	g.mu.RLock()
	defer g.mu.RUnlock()
	out := make([]*node, 0, len(g.dependents[uid]))
	for _, n := range g.dependents[uid] {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b *node) int {
		if a.uid < b.uid {
			return -1
		}
		return 1
	})
	return out
}

func sameReference(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && a.Name == b.Name && (a.BlockOwnerDeletion != nil && *a.BlockOwnerDeletion) == (b.BlockOwnerDeletion != nil && *b.BlockOwnerDeletion)
}
