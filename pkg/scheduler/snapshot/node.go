package snapshot

import (
	"iter"
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// Node is one row of the snapshot. It is valid until the snapshot changes.
type Node struct {
	s   *Snapshot
	row int
}

// Exists reports whether the row has a node object. If not, only Row may be called.
func (n Node) Exists() bool { return n.s.nodes[n.row] != nil }

// Row returns the node's index, which is less than Snapshot.Rows. It does not change while the
// node exists; another node may get it afterwards.
func (n Node) Row() int { return n.row }

// Name returns the node's name.
func (n Node) Name() string { return n.s.names[n.row] }

// Object returns the API object. Callers must not modify it.
func (n Node) Object() *corev1.Node { return n.s.nodes[n.row] }

// Labels returns the node's labels. Callers must not modify them.
func (n Node) Labels() map[string]string { return n.s.nodes[n.row].Labels }

// Taints returns the node's taints. Callers must not modify them.
func (n Node) Taints() []corev1.Taint { return n.s.nodes[n.row].Spec.Taints }

// Ports returns the host ports that the node's pods use.
func (n Node) Ports() []Port { return n.s.ports[n.row] }

// Amounts returns the node's allocatable resources and the sum of its pods' requests. Callers
// must not modify them.
func (n Node) Amounts() (alloc, used *Amounts) { return &n.s.alloc[n.row], &n.s.used[n.row] }

// AmountsOf is Amounts for the rows from from until before until; zero for those without a node.
func (s *Snapshot) AmountsOf(from, until int) (alloc, used []Amounts) {
	return s.alloc[from:until:until], s.used[from:until:until]
}

// Pods iterates over the node's pods, including assumed ones, in no particular order.
func (n Node) Pods() iter.Seq[*Pod] { return maps.Values(n.s.pods[n.row]) }
