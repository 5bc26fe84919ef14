package simulation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheme"
)

// journal observes all writes in order, and checks that forbidden changes never happen.
type journal struct {
	w    *world
	mu   sync.Mutex
	pods map[string]*corev1.Pod // by key
	last time.Time              // of the last write that was not a heartbeat

	counting bool
	counts   map[string]int // number of writes since count was called
	writes   int
}

func newJournal(w *world) *journal {
	return &journal{w: w, pods: map[string]*corev1.Pod{}, last: time.Now()}
}

func (j *journal) run(ctx context.Context) {
	watch, err := j.w.store.Watch(ctx, "/registry/", 1)
	if err != nil {
		j.w.problem("the journal: %v", err)
		return
	}
	defer watch.Stop()
	for {
		events, err := watch.Next(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			j.w.problem("the journal: %v", err)
			return
		}
		for _, e := range events {
			if !e.IsMark() {
				j.note(e.Key, e.Value)
			}
		}
	}
}

const (
	nodeLeases  = "/registry/leases.coordination.k8s.io/kube-node-lease/"
	leaderLease = "/registry/leases.coordination.k8s.io/kube-system/"
	nodePrefix  = "/registry/nodes/"
	podPrefix   = "/registry/pods/"
	housework   = "/registry/podium/"
)

// heartbeat reports whether a key is written periodically for as long as the cluster runs.
func heartbeat(key string) bool {
	return strings.HasPrefix(key, nodeLeases) || strings.HasPrefix(key, leaderLease) || strings.HasPrefix(key, housework)
}

func (j *journal) note(key string, value []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.writes++
	if j.counting {
		j.counts[key]++
	}
	if !heartbeat(key) && !strings.HasPrefix(key, nodePrefix) {
		j.last = time.Now()
	}
	if strings.HasPrefix(key, podPrefix) {
		j.pod(key, value)
	}
}

// pod compares a pod with its previous state.
func (j *journal) pod(key string, value []byte) {
	old := j.pods[key]
	if value == nil {
		delete(j.pods, key)
		return
	}
	obj, _, err := j.w.scheme.Decode(value, scheme.Protobuf, nil)
	if err != nil {
		j.w.problem("%s in the store: %v", key, err)
		return
	}
	pod := obj.(*corev1.Pod)
	j.pods[key] = pod
	if old == nil {
		return
	}
	switch {
	case old.UID != pod.UID:
		j.w.problem("%s: uid %s became %s without a deletion", key, old.UID, pod.UID)
	case old.Spec.NodeName != "" && old.Spec.NodeName != pod.Spec.NodeName:
		j.w.problem("%s: moved from %q to %q", key, old.Spec.NodeName, pod.Spec.NodeName)
	case final(old) && old.Status.Phase != pod.Status.Phase:
		j.w.problem("%s: was %s, became %s", key, old.Status.Phase, pod.Status.Phase)
	case old.DeletionTimestamp != nil && pod.DeletionTimestamp == nil:
		j.w.problem("%s: came back from deletion", key)
	}
}

func final(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// since returns the time since the last write other than a heartbeat.
func (j *journal) since() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return time.Since(j.last)
}

// count starts counting writes.
func (j *journal) count() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counting, j.counts = true, map[string]int{}
}

// restless returns the keys that were written more often in this time than heartbeats are.
func (j *journal) restless(d time.Duration) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []string
	for _, key := range slices.Sorted(maps.Keys(j.counts)) {
		n, most := j.counts[key], 0
		switch {
		case strings.HasPrefix(key, nodeLeases):
			most = int(d/(10*time.Second)) + 2
		case strings.HasPrefix(key, leaderLease):
			most = int(d/(2*time.Second)) + 2
		case strings.HasPrefix(key, nodePrefix), strings.HasPrefix(key, housework):
			most = int(d/(5*time.Minute)) + 1
		}
		if n > most {
			out = append(out, fmt.Sprintf("%s: %d writes in %s in which nothing changed", key, n, d))
		}
	}
	return out
}
