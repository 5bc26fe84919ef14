package tainteviction

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// scheduled are the pods that are to be evicted later, by their node. It is safe for
// concurrent use.
type scheduled struct {
	mu   sync.Mutex
	pods map[string]sets.Set[types.UID]
}

// replace records the pods of a node that are to be evicted later. It returns those that were
// to be and now are neither evicted, which are in evict, nor to be.
func (s *scheduled) replace(node string, later, evict []*corev1.Pod) (cancelled sets.Set[types.UID]) {
	now := sets.New[types.UID]()
	for _, p := range later {
		now.Insert(p.UID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	cancelled = s.pods[node].Difference(now)
	for _, p := range evict {
		cancelled.Delete(p.UID)
	}
	if s.pods[node] = now; len(now) == 0 {
		delete(s.pods, node)
	}
	return cancelled
}
