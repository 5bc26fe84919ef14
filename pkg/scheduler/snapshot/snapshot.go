package snapshot

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Snapshot is the cluster. Rows are reused: a row without a node object is
// free, or belongs to a node that pods name and nobody has shown us yet.
type Snapshot struct {
	// The columns, all of the same length.
	names []string
	nodes []*corev1.Node
	alloc []Amounts
	used  []Amounts
	ports [][]Port
	pods  []map[types.UID]*Pod

	rows  map[string]int
	free  []int // rows that belong to nobody
	count int   // rows with a node object

	assigned map[types.UID]placed
	journal  journal
}

// Amounts are one node's numbers: what it can give, or what its pods have.
type Amounts struct {
	Resources
	Pods int64

	// NonZeroCPU and NonZeroMemory are what its pods have, with a guess for
	// those that asked for nothing. Not set in what it can give.
	NonZeroCPU, NonZeroMemory int64
}

type placed struct {
	pod     *Pod
	row     int
	assumed bool
}

// New is an empty cluster.
func New() *Snapshot {
	return &Snapshot{rows: map[string]int{}, assigned: map[types.UID]placed{}}
}

// Rows is one more than the greatest row. Not every row is a node.
func (s *Snapshot) Rows() int { return len(s.names) }

// Nodes counts the nodes.
func (s *Snapshot) Nodes() int { return s.count }

// Pods counts the pods on nodes, and of those the ones that are only assumed.
func (s *Snapshot) Pods() (all, assumed int) {
	for _, p := range s.assigned {
		if p.assumed {
			assumed++
		}
	}
	return len(s.assigned), assumed
}

// At is the node of a row, which must be in use: see Node.Exists.
func (s *Snapshot) At(row int) Node { return Node{s, row} }

// Find is the node of that name.
func (s *Snapshot) Find(name string) (Node, bool) {
	row, ok := s.rows[name]
	if !ok || s.nodes[row] == nil {
		return Node{}, false
	}
	return Node{s, row}, true
}

// SetNode adds a node or replaces what is known of it.
func (s *Snapshot) SetNode(node *corev1.Node) {
	row := s.rowOf(node.Name)
	if s.nodes[row] == nil {
		s.count++
	}
	s.nodes[row] = node
	pods := node.Status.Allocatable[corev1.ResourcePods]
	s.alloc[row] = Amounts{Resources: resourcesOf(node.Status.Allocatable), Pods: pods.Value()}
	s.journal.note(row)
}

// RemoveNode takes a node out. Pods that still name it stay counted, should it
// come back.
func (s *Snapshot) RemoveNode(name string) {
	row, ok := s.rows[name]
	if !ok || s.nodes[row] == nil {
		return
	}
	s.nodes[row] = nil
	s.alloc[row] = Amounts{}
	s.count--
	s.journal.note(row)
	s.release(row)
}

// Assign counts a pod on the node it names. It replaces what was known of the
// pod, assumed or not.
func (s *Snapshot) Assign(pod *corev1.Pod) {
	if old, ok := s.assigned[pod.UID]; ok && !old.assumed && s.names[old.row] == pod.Spec.NodeName && sameNeeds(old.pod.Pod, pod) {
		return
	}
	s.Remove(pod.UID)
	s.place(NewPod(pod), pod.Spec.NodeName, false)
}

// sameNeeds compares two versions of one pod: without a new generation its spec is the same.
func sameNeeds(a, b *corev1.Pod) bool {
	return a.Generation == b.Generation && a.Generation != 0 || a == b
}

// Assume counts a pod on a node that it does not name yet. The undo takes it
// off again, unless Assign or Remove has been called for it since.
func (s *Snapshot) Assume(pod *Pod, node string) (undo func()) {
	s.Remove(pod.UID)
	s.place(pod, node, true)
	return func() {
		if s.Assumed(pod.UID) {
			s.Remove(pod.UID)
		}
	}
}

// Assumed holds between an Assume and the Assign or Remove that follows it.
func (s *Snapshot) Assumed(uid types.UID) bool { return s.assigned[uid].assumed }

// Remove takes a pod off its node; it reports whether the pod was on one.
func (s *Snapshot) Remove(uid types.UID) bool {
	p, ok := s.assigned[uid]
	if !ok {
		return false
	}
	delete(s.assigned, uid)
	delete(s.pods[p.row], uid)
	s.tally(p.row, p.pod, -1)
	s.journal.note(p.row)
	s.release(p.row)
	return true
}

func (s *Snapshot) place(pod *Pod, node string, assumed bool) {
	row := s.rowOf(node)
	if s.pods[row] == nil {
		s.pods[row] = map[types.UID]*Pod{}
	}
	s.pods[row][pod.UID] = pod
	s.assigned[pod.UID] = placed{pod, row, assumed}
	s.tally(row, pod, 1)
	s.journal.note(row)
}

// tally adds a pod's needs to a row, or with sign -1 takes them away.
func (s *Snapshot) tally(row int, pod *Pod, sign int64) {
	u := &s.used[row]
	u.CPU += sign * pod.Requests.CPU
	u.Memory += sign * pod.Requests.Memory
	u.Ephemeral += sign * pod.Requests.Ephemeral
	u.NonZeroCPU += sign * pod.NonZero.CPU
	u.NonZeroMemory += sign * pod.NonZero.Memory
	u.Pods += sign
	for name, v := range pod.Requests.Extended {
		if u.Extended == nil {
			u.Extended = map[corev1.ResourceName]int64{}
		}
		u.Extended[name] += sign * v
	}
	if len(pod.Ports) == 0 {
		return
	}
	if sign > 0 {
		s.ports[row] = append(s.ports[row], pod.Ports...)
		return
	}
	var left []Port // two pods may hold the same port when somebody else bound them
	for _, other := range s.pods[row] {
		left = append(left, other.Ports...)
	}
	s.ports[row] = left
}

func (s *Snapshot) rowOf(name string) int {
	if row, ok := s.rows[name]; ok {
		return row
	}
	var row int
	if n := len(s.free); n > 0 {
		row = s.free[n-1]
		s.free = s.free[:n-1]
	} else {
		row = len(s.names)
		s.names = append(s.names, "")
		s.nodes = append(s.nodes, nil)
		s.alloc = append(s.alloc, Amounts{})
		s.used = append(s.used, Amounts{})
		s.ports = append(s.ports, nil)
		s.pods = append(s.pods, nil)
	}
	s.names[row] = name
	s.rows[name] = row
	return row
}

// release frees a row that has neither a node nor pods.
func (s *Snapshot) release(row int) {
	if s.nodes[row] != nil || len(s.pods[row]) > 0 {
		return
	}
	delete(s.rows, s.names[row])
	s.names[row], s.alloc[row], s.used[row], s.ports[row], s.pods[row] = "", Amounts{}, Amounts{}, nil, nil
	s.free = append(s.free, row)
}
