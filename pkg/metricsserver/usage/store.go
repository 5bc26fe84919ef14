package usage

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Store holds the samples of all nodes. It is safe for concurrent use.
type Store struct {
	resolution, maxAge time.Duration
	now                func() time.Time

	mu    sync.RWMutex
	nodes map[string]*node
}

// node is what is known of one node.
type node struct {
	at   time.Time // of the last sample, by the store's clock
	self track
	pods map[types.NamespacedName]map[string]track
}

// NewStore returns an empty store. resolution is the interval of the samples; a node's
// samples are not shown any more when the last is older than maxAge.
func NewStore(resolution, maxAge time.Duration, now func() time.Time) *Store {
	return &Store{resolution: resolution, maxAge: maxAge, now: now, nodes: map[string]*node{}}
}

// Put adds a node's next sample.
func (s *Store) Put(name string, sample Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.nodes[name]
	if old == nil {
		old = &node{}
	}
	next := &node{at: s.now(), pods: make(map[types.NamespacedName]map[string]track, len(sample.Pods))}
	if sample.Node != nil {
		next.self = old.self.advance(*sample.Node, s.resolution)
	}
	for pod, containers := range sample.Pods {
		tracks := make(map[string]track, len(containers))
		for c, point := range containers {
			tracks[c] = old.pods[pod][c].advance(point, s.resolution)
		}
		next.pods[pod] = tracks
	}
	s.nodes[name] = next
}

// Forget drops a node's samples.
func (s *Store) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
}

// recent returns nil if there is no recent sample. Its result is not modified any more.
func (s *Store) recent(name string) *node {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if n := s.nodes[name]; n != nil && s.now().Sub(n.at) <= s.maxAge {
		return n
	}
	return nil
}

// Node returns what a node uses, false if that is not known.
func (s *Store) Node(name string) (Usage, bool) {
	n := s.recent(name)
	if n == nil {
		return Usage{}, false
	}
	return n.self.usage()
}

// Pod returns what each container of a pod uses, by the sample of the pod's own node.
// It returns nil unless that is known of all containers: a sum of some would pass for
// the pod's usage.
func (s *Store) Pod(nodeName string, pod types.NamespacedName) map[string]Usage {
	n := s.recent(nodeName)
	if n == nil {
		return nil
	}
	out := make(map[string]Usage, len(n.pods[pod]))
	for name, t := range n.pods[pod] {
		u, ok := t.usage()
		if !ok {
			return nil
		}
		out[name] = u
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Known returns of how many nodes and containers the usage is known.
func (s *Store) Known() (nodes, containers int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, n := range s.nodes {
		if n.self.base != nil {
			nodes++
		}
		for _, tracks := range n.pods {
			for _, t := range tracks {
				if t.base != nil {
					containers++
				}
			}
		}
	}
	return nodes, containers
}
