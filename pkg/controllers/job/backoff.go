package job

import (
	"strconv"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/conditions"
	"podium/pkg/controller/loop"
)

// The delay before a failed pod is replaced: firstDelay, doubled with each further failure.
const (
	firstDelay = 10 * time.Second
	lastDelay  = 6 * time.Minute
)

// remaining returns how long the replacement of a pod has to wait after this number of
// failures, the last of which was at a time.
func remaining(failures int, last, now time.Time) time.Duration {
	if failures <= 0 {
		return 0
	}
	delay := min(firstDelay<<min(failures-1, 10), lastDelay)
	return max(0, last.Add(delay).Sub(now))
}

// failures remembers, for each Job, the pods that have failed since the last success. It
// remembers pods that no longer exist, until the controller restarts. It is safe for
// concurrent use.
type failures struct {
	mu   sync.Mutex
	jobs map[loop.Key]*record
}

type record struct {
	job     types.UID
	failed  map[types.UID]time.Time // when each pod ended
	success time.Time               // when the last pod succeeded
}

// forget drops what is known about a Job.
func (f *failures) forget(key loop.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.jobs, key)
}

// delay records the pods of a Job that have ended, and returns how long the creation of pods
// has to wait.
func (f *failures) delay(v *view) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := loop.KeyOf(v.Job)
	r := f.jobs[key]
	if r == nil || r.job != v.UID {
		r = &record{job: v.UID, failed: map[types.UID]time.Time{}}
		f.jobs[key] = r
	}
	for _, p := range v.pods {
		switch {
		case p.Status.Phase == corev1.PodSucceeded:
			if at := earlier(ended(p), v.now); at.After(r.success) {
				r.success = at
			}
		case v.podFailed(p) && (tracked(p) || p.DeletionTimestamp == nil): // else this controller deleted it as surplus
			if _, known := r.failed[p.UID]; !known {
				r.failed[p.UID] = earlier(ended(p), v.now)
			}
		}
	}
	var last time.Time
	for uid, at := range r.failed {
		if !at.After(r.success) {
			delete(r.failed, uid)
		} else if at.After(last) {
			last = at
		}
	}
	return remaining(len(r.failed), last, v.now)
}

// earlier returns the first of two times. A pod has not ended in the future: the clock of
// its node is ahead, or this one was set back.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// ended returns when a pod that has terminated or is terminating ended: when its last
// container did, as far as the status shows.
func ended(p *corev1.Pod) time.Time {
	var last time.Time
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	if !last.IsZero() {
		return last
	}
	if c := conditions.Find(p.Status.Conditions, corev1.PodReady); c != nil && c.Status == corev1.ConditionFalse && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	if p.DeletionTimestamp == nil {
		return p.CreationTimestamp.Time
	}
	grace := int64(0)
	if p.DeletionGracePeriodSeconds != nil {
		grace = *p.DeletionGracePeriodSeconds
	}
	return p.DeletionTimestamp.Add(-time.Duration(grace) * time.Second)
}

// indexFailures returns how often the pods of an index had failed before p was created.
func indexFailures(p *corev1.Pod) (counted, ignored int) {
	return number(p, batchv1.JobIndexFailureCountAnnotation), number(p, batchv1.JobIndexIgnoredFailureCountAnnotation)
}

func number(p *corev1.Pod, annotation string) int {
	n, err := strconv.Atoi(p.Annotations[annotation])
	if err != nil {
		return 0
	}
	return max(n, 0)
}
