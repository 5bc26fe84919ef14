package dynamicresources

import (
	"strconv"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/deviceselector"
	"podium/pkg/resourceclaim"
	"podium/pkg/scheduler/allocation"
)

// store holds the claims, classes and devices of the cluster, and the allocations that are
// planned. It is safe for concurrent use.
type store struct {
	mu       sync.Mutex
	compiler *deviceselector.Compiler
	claims   map[types.NamespacedName]*entry
	classes  map[string]*resourcev1.DeviceClass
	index    *allocation.Index
	usage    *allocation.Usage
	version  int64         // changes with every change of a class
	changed  chan struct{} // closed at the next change of a claim

	byResource map[string]string                   // names of classes, by the extended resources that they are for
	extended   map[types.UID]*plannedExtendedClaim // claims for extended resources, by the pod that is being bound
}

// entry is a claim and what the scheduler is about to write into it.
type entry struct {
	claim   *resourcev1.ResourceClaim    // the newest known version
	planned *resourcev1.AllocationResult // if the claim is not allocated yet; nil: none
	users   map[types.UID]bool           // pods that are being bound
	counted *resourcev1.AllocationResult // what usage contains
	writing chan struct{}                // has room for one: who may write
}

func newStore() *store {
	return &store{
		compiler: deviceselector.NewCompiler(), claims: map[types.NamespacedName]*entry{}, classes: map[string]*resourcev1.DeviceClass{},
		index: allocation.NewIndex(), usage: allocation.NewUsage(), changed: make(chan struct{}),
		byResource: map[string]string{}, extended: map[types.UID]*plannedExtendedClaim{},
	}
}

func keyOf(claim *resourcev1.ResourceClaim) types.NamespacedName {
	return types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
}

// allocation returns the allocation that the claim has, or will have; nil if there is none.
func (e *entry) allocation() *resourcev1.AllocationResult {
	if e.claim.Status.Allocation != nil {
		return e.claim.Status.Allocation
	}
	return e.planned
}

// full reports whether the claim cannot be reserved for another pod.
func (e *entry) full() bool {
	n := len(e.claim.Status.ReservedFor)
	for pod := range e.users {
		if !resourceclaim.ReservedFor(e.claim, pod) {
			n++
		}
	}
	return n >= resourcev1.ResourceClaimReservedForMaxSize
}

// count makes the usage contain the entry's allocation. The caller holds s.mu.
func (s *store) count(e *entry, now *resourcev1.AllocationResult) {
	if e.counted != now {
		s.usage.Remove(e.counted)
		s.usage.Add(now)
		e.counted = now
	}
}

// set records a version of a claim. The caller holds s.mu.
func (s *store) set(claim *resourcev1.ResourceClaim) {
	e := s.claims[keyOf(claim)]
	switch {
	case e == nil || e.claim.UID != claim.UID:
		if e != nil {
			s.count(e, nil)
		}
		e = &entry{users: map[types.UID]bool{}, writing: make(chan struct{}, 1)}
		s.claims[keyOf(claim)] = e
	case !newer(claim, e.claim):
		return // the cache lags behind what the scheduler has written
	}
	e.claim = claim
	if claim.Status.Allocation != nil {
		e.planned = nil
	}
	s.count(e, e.allocation())
	s.signal()
}

// drop forgets a claim that was deleted. The caller holds s.mu.
func (s *store) drop(claim *resourcev1.ResourceClaim) {
	if e := s.claims[keyOf(claim)]; e != nil && e.claim.UID == claim.UID {
		s.count(e, nil)
		delete(s.claims, keyOf(claim))
		s.signal()
	}
}

func (s *store) signal() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// newer reports whether a is a later version than b.
func newer(a, b metav1.Object) bool {
	x, _ := strconv.ParseUint(a.GetResourceVersion(), 10, 64)
	y, _ := strconv.ParseUint(b.GetResourceVersion(), 10, 64)
	return x > y
}

// OnClaim records a change of a claim. It reports whether the change may let a pod be placed.
func (s *store) OnClaim(old, new *resourcev1.ResourceClaim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if new == nil {
		s.drop(old)
		return true
	}
	s.set(new)
	return old == nil || old.UID != new.UID || controllerOf(old) != controllerOf(new) || len(new.Status.ReservedFor) < len(old.Status.ReservedFor) ||
		old.Status.Allocation != nil && new.Status.Allocation == nil
}

// OnClass records a change of a class.
func (s *store) OnClass(old, new *resourcev1.DeviceClass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	if new == nil {
		delete(s.classes, old.Name)
	} else {
		s.classes[new.Name] = new
	}
	s.mapResources()
}

// OnSlice records a change of a slice.
func (s *store) OnSlice(old, new *resourcev1.ResourceSlice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if new == nil {
		s.index.RemoveSlice(old)
		return
	}
	if old != nil && (old.Spec.Driver != new.Spec.Driver || old.Spec.Pool.Name != new.Spec.Pool.Name) {
		s.index.RemoveSlice(old) // it was deleted and created again
	}
	s.index.SetSlice(new)
}

// OnTaintRule records a change of a rule.
func (s *store) OnTaintRule(old, new *resourcev1.DeviceTaintRule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if new == nil {
		s.index.RemoveRule(old.Name)
		return
	}
	s.index.SetRule(new)
}

// controllerOf returns the UID of what the claim was made for, "" if it was made for nothing.
func controllerOf(claim *resourcev1.ResourceClaim) types.UID {
	if ref := metav1.GetControllerOfNoCopy(claim); ref != nil {
		return ref.UID
	}
	return ""
}
