package snapshot

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Snapshot is the state of the cluster. Rows are reused. A row without a node object is free, or
// belongs to a node that pods are bound to and whose object the watch has not delivered yet.
type Snapshot struct {
	// Columns, all of the same length.
	names []string
	nodes []*corev1.Node
	alloc []Amounts
	used  []Amounts
	ports [][]Port
	pods  []map[types.UID]*Pod

	nominees [][]*Pod

	rows  map[string]int
	free  []int // unused rows
	count int   // rows with a node object

	assigned  map[types.UID]placed
	nominated map[types.UID]nominee
	leaving   map[types.UID]bool // pods whose deletion has begun; see Evict
	journal   journal

	siblings
	terms         termIndex
	namespaces    map[string]map[string]string  // labels by name
	budgets       map[string]map[string]*Budget // by namespace and name
	budgetVersion int64
}

// Amounts are the allocatable resources of a node, or the sum of its pods' requests.
type Amounts struct {
	Resources
	Pods int64

	// NonZeroCPU and NonZeroMemory sum up Pod.NonZero; 0 in allocatable.
	NonZeroCPU, NonZeroMemory int64
}

type placed struct {
	pod     *Pod
	row     int
	assumed bool
}

// New returns an empty snapshot.
func New() *Snapshot {
	return &Snapshot{
		rows: map[string]int{}, assigned: map[types.UID]placed{}, nominated: map[types.UID]nominee{}, leaving: map[types.UID]bool{},
		siblings: newSiblings(), terms: newTermIndex(), namespaces: map[string]map[string]string{}, budgets: map[string]map[string]*Budget{},
	}
}

// Rows returns the number of rows. Some may have no node.
func (s *Snapshot) Rows() int { return len(s.names) }

// Nodes returns the number of nodes.
func (s *Snapshot) Nodes() int { return s.count }

// At returns the node of a row; see Node.Exists.
func (s *Snapshot) At(row int) Node { return Node{s, row} }

// SetNode adds or replaces a node.
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

// RemoveNode removes a node. Its pods stay counted, in case the node returns.
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

// Assign counts a pod on the node in its spec. It replaces an earlier version of the pod,
// assumed or not.
func (s *Snapshot) Assign(pod *corev1.Pod) {
	if old, ok := s.assigned[pod.UID]; ok && !old.assumed && s.names[old.row] == pod.Spec.NodeName && sameNeeds(old.pod.Pod, pod) {
		return
	}
	if pod.DeletionTimestamp != nil {
		delete(s.leaving, pod.UID)
	} else if s.leaving[pod.UID] {
		pod = terminating(pod)
	}
	s.take(pod.UID)
	s.place(NewPod(pod), pod.Spec.NodeName, false)
}

// sameNeeds reports whether two versions of one pod look the same to plugins.
// A changed spec has a new generation. Pods have container statuses here only while they
// are resized, which changes what they need without one.
func sameNeeds(a, b *corev1.Pod) bool {
	return a == b || a.Generation == b.Generation && a.Generation != 0 &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) && a.Status.StartTime.Equal(b.Status.StartTime) &&
		maps.Equal(a.Labels, b.Labels) && !resizing(a) && !resizing(b)
}

func resizing(p *corev1.Pod) bool {
	return len(p.Status.ContainerStatuses)+len(p.Status.InitContainerStatuses) > 0
}

// Assume counts a pod on a node before the pod is bound to it. undo removes it, unless Assign or
// Remove has been called for it since.
func (s *Snapshot) Assume(pod *Pod, node string) (undo func()) {
	s.take(pod.UID)
	s.place(pod, node, true)
	return func() {
		if s.assigned[pod.UID].assumed {
			s.Remove(pod.UID)
		}
	}
}

// Assumed reports whether a pod counts on a node that it is not bound to yet.
func (s *Snapshot) Assumed(uid types.UID) bool { return s.assigned[uid].assumed }

// PodOn returns a pod on a node, nil if it is not there.
func (s *Snapshot) PodOn(node string, uid types.UID) *Pod {
	if p, ok := s.assigned[uid]; ok && s.names[p.row] == node {
		return p.pod
	}
	return nil
}

// Remove removes a pod from its node. It reports whether the pod was on one.
func (s *Snapshot) Remove(uid types.UID) bool {
	delete(s.leaving, uid)
	return s.take(uid)
}

func (s *Snapshot) take(uid types.UID) bool {
	p, ok := s.assigned[uid]
	if !ok {
		return false
	}
	delete(s.assigned, uid)
	s.move(p.row, p.pod, -1)
	s.terms.remove(p.pod.shared)
	s.journal.note(p.row)
	s.release(p.row)
	return true
}

func (s *Snapshot) place(pod *Pod, node string, assumed bool) {
	row := s.rowOf(node)
	pod.shared = s.terms.add(pod.Terms)
	s.assigned[pod.UID] = placed{pod, row, assumed}
	s.move(row, pod, 1)
	s.journal.note(row)
}

// move adds a pod to a row, or with sign -1 removes it.
func (s *Snapshot) move(row int, pod *Pod, sign int64) {
	if sign < 0 {
		delete(s.pods[row], pod.UID)
	} else {
		if s.pods[row] == nil {
			s.pods[row] = map[types.UID]*Pod{}
		}
		s.pods[row][pod.UID] = pod
	}
	s.tally(row, pod, sign)
}

// tally adds a pod's requests to a row, or with sign -1 subtracts them.
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
	var left []Port // pods bound by another scheduler may share a port
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
		s.nominees = append(s.nominees, nil)
	}
	s.names[row] = name
	s.rows[name] = row
	return row
}

// release frees a row that has neither a node nor pods nor nominees.
func (s *Snapshot) release(row int) {
	if s.nodes[row] != nil || len(s.pods[row]) > 0 || len(s.nominees[row]) > 0 {
		return
	}
	delete(s.rows, s.names[row])
	s.names[row], s.alloc[row], s.used[row], s.ports[row], s.pods[row], s.nominees[row] = "", Amounts{}, Amounts{}, nil, nil, nil
	s.free = append(s.free, row)
}
