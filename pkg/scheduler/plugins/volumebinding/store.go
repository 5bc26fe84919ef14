package volumebinding

import (
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheduler/snapshot"
	"podium/pkg/volumebinding"
)

// store holds the claims, volumes and classes of the cluster, and which volumes pods that
// are being bound will get. It is safe for concurrent use.
type store struct {
	mu      sync.Mutex
	claims  map[types.NamespacedName]*corev1.PersistentVolumeClaim
	volumes map[string]*corev1.PersistentVolume
	free    map[string]map[string]bool // by class: names of volumes that no claim has
	classes map[string]*storagev1.StorageClass
	chosen  map[types.UID][]choice // by pod
	assumed map[string]types.UID   // by volume: the pod whose claim gets it
	changed chan struct{}          // closed at the next change

	capacity capacities
}

func newStore() *store {
	return &store{
		claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{},
		free: map[string]map[string]bool{}, classes: map[string]*storagev1.StorageClass{},
		chosen: map[types.UID][]choice{}, assumed: map[string]types.UID{}, changed: make(chan struct{}),
		capacity: capacities{all: map[types.NamespacedName]*storagev1.CSIStorageCapacity{}, published: map[string]bool{}},
	}
}

// signal wakes what waits for changes. The caller holds s.mu.
func (s *store) signal() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// OnClaim records a change of a claim.
func (s *store) OnClaim(old, new *corev1.PersistentVolumeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if new == nil {
		delete(s.claims, types.NamespacedName{Namespace: old.Namespace, Name: old.Name})
	} else {
		s.claims[types.NamespacedName{Namespace: new.Namespace, Name: new.Name}] = new
	}
	s.signal()
}

// OnVolume records a change of a volume.
func (s *store) OnVolume(old, new *corev1.PersistentVolume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old != nil {
		delete(s.volumes, old.Name)
		delete(s.free[old.Spec.StorageClassName], old.Name)
	}
	if new != nil {
		s.volumes[new.Name] = new
		if class := new.Spec.StorageClassName; new.Spec.ClaimRef == nil {
			if s.free[class] == nil {
				s.free[class] = map[string]bool{}
			}
			s.free[class][new.Name] = true
		}
	}
	s.signal()
}

// OnClass records a change of a storage class.
func (s *store) OnClass(old, new *storagev1.StorageClass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if new == nil {
		delete(s.classes, old.Name)
		return
	}
	s.classes[new.Name] = new
}

// Claim returns a claim, nil if it does not exist.
func (s *store) Claim(namespace, name string) *corev1.PersistentVolumeClaim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims[types.NamespacedName{Namespace: namespace, Name: name}]
}

// Volume returns a volume, nil if it does not exist.
func (s *store) Volume(name string) *corev1.PersistentVolume {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.volumes[name]
}

// Class returns a storage class, nil if it does not exist.
func (s *store) Class(name string) *storagev1.StorageClass {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.classes[name]
}

// needs returns what the claims of a pod need of a node, in the order of its volumes.
func (s *store) needs(pod *snapshot.Pod) []need {
	if len(pod.Spec.Volumes) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []need
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if name := volumebinding.ClaimName(pod.Pod, v); name != "" {
			out = append(out, s.need(pod, v, name))
		}
	}
	return out
}

// need returns what the claim of a volume needs. The caller holds s.mu.
func (s *store) need(pod *snapshot.Pod, v *corev1.Volume, name string) need {
	claim := s.claims[types.NamespacedName{Namespace: pod.Namespace, Name: name}]
	switch {
	case claim == nil && v.Ephemeral != nil:
		return need{Reason: fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", name)}
	case claim == nil:
		return need{Reason: fmt.Sprintf("persistentvolumeclaim %q not found", name)}
	}
	if err := volumebinding.CheckOwner(pod.Pod, v, claim); err != nil {
		return need{Reason: err.Error()}
	}
	switch {
	case claim.DeletionTimestamp != nil:
		return need{Reason: fmt.Sprintf("persistentvolumeclaim %q is being deleted", name)}
	case claim.Status.Phase == corev1.ClaimLost:
		return need{Reason: fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", name, claim.Spec.VolumeName)}
	case volumebinding.Bound(claim):
		return s.bound(claim)
	}
	class := s.classes[volumebinding.ClassOf(claim)]
	if !volumebinding.Delayed(class) || claim.Spec.VolumeName != "" {
		return need{Reason: unbound}
	}
	return need{
		Node: claim.Annotations[volumebinding.SelectedNode], Volumes: s.candidates(pod.UID, claim),
		Dynamic: class.Provisioner != volumebinding.NoProvisioner, Topologies: class.AllowedTopologies, claim: claim,
		space: s.spaceFor(claim, class),
	}
}

func (s *store) bound(claim *corev1.PersistentVolumeClaim) need {
	v := s.volumes[claim.Spec.VolumeName]
	if v == nil {
		return need{Reason: fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", claim.Name, claim.Spec.VolumeName)}
	}
	return need{Affinity: affinity(v)}
}

func affinity(v *corev1.PersistentVolume) *corev1.NodeSelector {
	if v.Spec.NodeAffinity == nil {
		return nil
	}
	return v.Spec.NodeAffinity.Required
}

// candidates returns the volumes that a claim may get, the smallest first. The caller holds s.mu.
func (s *store) candidates(pod types.UID, claim *corev1.PersistentVolumeClaim) []*candidate {
	var fitting []*corev1.PersistentVolume
	for name := range s.free[volumebinding.ClassOf(claim)] {
		v := s.volumes[name]
		if by, taken := s.assumed[name]; taken && by != pod {
			continue
		}
		if volumebinding.Fits(v, claim) {
			fitting = append(fitting, v)
		}
	}
	slices.SortFunc(fitting, volumebinding.BySize)
	out := make([]*candidate, 0, len(fitting))
	for _, v := range fitting {
		out = append(out, &candidate{v.Name, affinity(v)})
	}
	return out
}
