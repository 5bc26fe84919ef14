package daemonset

import (
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"podium/pkg/backoff"
	"podium/pkg/controller/loop"
)

// failures spaces the deletions of failed pods, so that a pod that a kubelet refuses again and
// again is not recreated in a tight loop: a second after the first one, up to a quarter of an
// hour. It is safe for concurrent use.
type failures struct {
	mu   sync.Mutex
	sets map[loop.Key]*setFailures
}

// setFailures are those of one generation of a daemon set.
type setFailures struct {
	generation int64
	nodes      map[string]attempt
}

type attempt struct {
	at    time.Time
	delay time.Duration
}

const maxDelay = 15 * time.Minute

func newFailures() *failures { return &failures{sets: map[loop.Key]*setFailures{}} }

// held returns how long a failed pod of the node must stay; 0: it may go now.
func (f *failures) held(ds *appsv1.DaemonSet, node string, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.ofLocked(ds).nodes[node]
	return max(0, last.at.Add(last.delay).Sub(now))
}

// deleted records that a failed pod of the node is deleted. After a time without failures the
// delay starts again.
func (f *failures) deleted(ds *appsv1.DaemonSet, node string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	nodes := f.ofLocked(ds).nodes
	last := nodes[node]
	if now.Sub(last.at) > 2*maxDelay {
		last.delay = 0
	}
	b := backoff.Backoff{Initial: time.Second, Max: maxDelay}
	nodes[node] = attempt{now, b.After(last.delay)}
}

// forget drops what is known of a daemon set that no longer exists.
func (f *failures) forget(key loop.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sets, key)
}

func (f *failures) ofLocked(ds *appsv1.DaemonSet) *setFailures {
	s := f.sets[loop.KeyOf(ds)]
	if s == nil || s.generation != ds.Generation {
		s = &setFailures{generation: ds.Generation, nodes: map[string]attempt{}}
		f.sets[loop.KeyOf(ds)] = s
	}
	return s
}
