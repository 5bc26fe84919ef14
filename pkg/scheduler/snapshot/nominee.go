package snapshot

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// nominee is a pending pod for which a node is being freed.
type nominee struct {
	pod *Pod
	row int
}

// Nominate reserves a node for a pending pod: pods of the same or a lower priority do not take
// the room that it needs there. It replaces an earlier nomination of the pod.
func (s *Snapshot) Nominate(pod *Pod, node string) {
	s.Unnominate(pod.UID)
	row := s.rowOf(node)
	pod.shared = s.terms.add(pod.Terms)
	s.nominees[row] = append(s.nominees[row], pod)
	s.nominated[pod.UID] = nominee{pod, row}
	s.journal.note(row)
}

// Unnominate removes a pod's nomination. It reports whether there was one.
func (s *Snapshot) Unnominate(uid types.UID) bool {
	n, ok := s.nominated[uid]
	if !ok {
		return false
	}
	delete(s.nominated, uid)
	s.nominees[n.row] = slices.DeleteFunc(s.nominees[n.row], func(p *Pod) bool { return p.UID == uid })
	s.terms.remove(n.pod.shared)
	s.journal.note(n.row)
	s.release(n.row)
	return true
}

// Nominated returns the node that is reserved for a pending pod. The node may not exist.
func (s *Snapshot) Nominated(uid types.UID) (n Node, ok bool) {
	nominee, ok := s.nominated[uid]
	return Node{s, nominee.row}, ok
}

// Nominees returns the pods that the node is reserved for. Callers must not modify the list.
func (n Node) Nominees() []*Pod { return n.s.nominees[n.row] }

// HasNominees reports whether any node is reserved for a pod.
func (s *Snapshot) HasNominees() bool { return len(s.nominated) > 0 }
