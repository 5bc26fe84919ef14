package snapshot

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Node is one row, as plugins see it. It is good until the snapshot changes.
type Node struct {
	s   *Snapshot
	row int
}

// Exists is false for rows that are nobody's.
func (n Node) Exists() bool { return n.s.nodes[n.row] != nil }

// Name is the node's name.
func (n Node) Name() string { return n.s.names[n.row] }

// Object is the node as the API has it.
func (n Node) Object() *corev1.Node { return n.s.nodes[n.row] }

// Labels are the node's labels.
func (n Node) Labels() map[string]string { return n.s.nodes[n.row].Labels }

// Taints are the node's taints.
func (n Node) Taints() []corev1.Taint { return n.s.nodes[n.row].Spec.Taints }

// Ports are the host's ports that pods have.
func (n Node) Ports() []Port { return n.s.ports[n.row] }

// Amounts are what the node can give to pods and what its pods asked for. Not
// to be modified.
func (n Node) Amounts() (alloc, used *Amounts) { return &n.s.alloc[n.row], &n.s.used[n.row] }

// Pods are the node's pods, ordered by namespace and name.
func (n Node) Pods() []*Pod {
	out := make([]*Pod, 0, len(n.s.pods[n.row]))
	for _, p := range n.s.pods[n.row] {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *Pod) int {
		if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out
}
