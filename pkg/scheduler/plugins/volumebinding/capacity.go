package volumebinding

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

const noSpace = "node(s) did not have enough free storage"

// capacities are the CSIStorageCapacities of the cluster, and which drivers publish them.
type capacities struct {
	all       map[types.NamespacedName]*storagev1.CSIStorageCapacity
	published map[string]bool // by driver
	version   int             // changes with every change: cached answers depend on it
}

// OnCapacity records a change of a CSIStorageCapacity.
func (s *store) OnCapacity(old, new *storagev1.CSIStorageCapacity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.capacity.version++
	if new == nil {
		delete(s.capacity.all, types.NamespacedName{Namespace: old.Namespace, Name: old.Name})
		return
	}
	s.capacity.all[types.NamespacedName{Namespace: new.Namespace, Name: new.Name}] = new
}

// OnDriver records a change of a CSIDriver.
func (s *store) OnDriver(old, new *storagev1.CSIDriver) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.capacity.version++
	if new == nil {
		delete(s.capacity.published, old.Name)
		return
	}
	s.capacity.published[new.Name] = new.Spec.StorageCapacity != nil && *new.Spec.StorageCapacity
}

// spaceFor returns where there is space for a claim to be provisioned; nil if its driver
// does not publish capacities. The caller holds s.mu.
func (s *store) spaceFor(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) *space {
	if !s.capacity.published[class.Provisioner] {
		return nil
	}
	out := &space{Version: s.capacity.version}
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	for _, c := range s.capacity.all {
		limit := c.MaximumVolumeSize
		if limit == nil {
			limit = c.Capacity
		}
		if c.StorageClassName != class.Name || limit == nil || limit.Cmp(size) < 0 || c.NodeTopology == nil {
			continue
		}
		if nodes, err := metav1.LabelSelectorAsSelector(c.NodeTopology); err == nil {
			out.nodes = append(out.nodes, nodes)
		}
	}
	return out
}

// space says on which nodes there is space for a claim.
type space struct {
	Version int // two with the same version and claim are equal
	nodes   []labels.Selector
}

// on reports whether there is space on a node. s may be nil.
func (s *space) on(node *corev1.Node) bool {
	if s == nil {
		return true
	}
	for _, nodes := range s.nodes {
		if nodes.Matches(labels.Set(node.Labels)) {
			return true
		}
	}
	return false
}
