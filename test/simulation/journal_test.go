package simulation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"podium/pkg/scheme"
)

// journal observes all writes in order, and checks that forbidden changes never happen.
type journal struct {
	w      *world
	mu     sync.Mutex
	pods   map[string]*corev1.Pod // by key
	jobs   map[string]*batchv1.Job
	claims map[string]*resourcev1.ResourceClaim
	last   time.Time // of the last write that was not a heartbeat

	podRules   []func(old, new *corev1.Pod)
	jobRules   []func(old, new *batchv1.Job)
	claimRules []func(old, new *resourcev1.ResourceClaim)

	counting bool
	counts   map[string]int // number of writes since count was called
	writes   int
}

func newJournal(w *world) *journal {
	return &journal{w: w, pods: map[string]*corev1.Pod{}, jobs: map[string]*batchv1.Job{}, claims: map[string]*resourcev1.ResourceClaim{}, last: time.Now()}
}

// onPod registers an invariant. The journal calls it for each write of a pod, in order, after
// j.pods contains the write: old is nil for a new pod, new for one that is gone.
func (j *journal) onPod(rule func(old, new *corev1.Pod)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.podRules = append(j.podRules, rule)
}

// onJob registers an invariant of Jobs, as onPod does.
func (j *journal) onJob(rule func(old, new *batchv1.Job)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.jobRules = append(j.jobRules, rule)
}

// onClaim registers an invariant of ResourceClaims, as onPod does.
func (j *journal) onClaim(rule func(old, new *resourcev1.ResourceClaim)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.claimRules = append(j.claimRules, rule)
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
	jobPrefix   = "/registry/jobs.batch/"
	claimPrefix = "/registry/resourceclaims.resource.k8s.io/"
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
	switch {
	case strings.HasPrefix(key, podPrefix):
		old, pod := record(j, j.pods, key, value)
		if old != nil && pod != nil {
			j.compare(key, old, pod)
		}
		for _, rule := range j.podRules {
			rule(old, pod)
		}
	case strings.HasPrefix(key, jobPrefix):
		old, job := record(j, j.jobs, key, value)
		for _, rule := range j.jobRules {
			rule(old, job)
		}
	case strings.HasPrefix(key, claimPrefix):
		old, claim := record(j, j.claims, key, value)
		for _, rule := range j.claimRules {
			rule(old, claim)
		}
	}
}

// record puts the object of a write into all, and returns it and the one before it. Either is
// nil if it does not exist.
func record[T scheme.Object](j *journal, all map[string]T, key string, value []byte) (old, new T) {
	old = all[key]
	if value == nil {
		delete(all, key)
		return old, new
	}
	obj, _, err := j.w.scheme.Decode(value, scheme.Protobuf, nil)
	if err != nil {
		j.w.problem("%s in the store: %v", key, err)
		return old, old
	}
	new = obj.(T)
	all[key] = new
	return old, new
}

// compare checks what may change of a pod.
func (j *journal) compare(key string, old, pod *corev1.Pod) {
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
