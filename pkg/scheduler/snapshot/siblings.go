package snapshot

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// siblings select the pods that belong together: those of a Service, and those of a controller.
type siblings struct {
	services map[string]map[string]labels.Set // selectors by namespace and name
	owners   map[types.UID]labels.Selector    // of ReplicaSets, ReplicationControllers and StatefulSets
}

func newSiblings() siblings {
	return siblings{services: map[string]map[string]labels.Set{}, owners: map[types.UID]labels.Selector{}}
}

// SetService adds or changes a Service. One without a selector has no pods.
func (s *siblings) SetService(namespace, name string, selector map[string]string) {
	if s.services[namespace] == nil {
		s.services[namespace] = map[string]labels.Set{}
	}
	if len(selector) > 0 {
		s.services[namespace][name] = selector
	} else {
		delete(s.services[namespace], name)
	}
}

// RemoveService removes a Service.
func (s *siblings) RemoveService(namespace, name string) { delete(s.services[namespace], name) }

// SetOwner adds or changes a controller of pods.
func (s *siblings) SetOwner(uid types.UID, selector *metav1.LabelSelector) {
	s.owners[uid] = parse(selector)
}

// RemoveOwner removes a controller of pods.
func (s *siblings) RemoveOwner(uid types.UID) { delete(s.owners, uid) }

// of returns the selector of the pods that are in the Services that select the pod and have its
// controller; nil if there are neither.
func (s *siblings) of(pod *corev1.Pod) labels.Selector {
	merged := labels.Set{}
	for _, selector := range s.services[pod.Namespace] {
		if selector.AsSelectorPreValidated().Matches(labels.Set(pod.Labels)) {
			merged = labels.Merge(merged, selector)
		}
	}
	selector := merged.AsSelectorPreValidated()
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && s.owners[owner.UID] != nil {
		requirements, _ := s.owners[owner.UID].Requirements()
		selector = selector.Add(slices.Clone(requirements)...)
	}
	if selector.Empty() {
		return nil
	}
	return selector
}
