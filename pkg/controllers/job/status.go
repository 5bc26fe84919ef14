package job

import (
	"cmp"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/conditions"
)

// next is the status to write, and what follows from it.
type next struct {
	status   batchv1.JobStatus
	untrack  []*corev1.Pod                          // pods that may lose their finalizer once the status is written
	handled  map[batchv1.PodFailurePolicyAction]int // failures that the pod failure policy has decided
	resumed  bool
	paused   bool
	finished *batchv1.JobCondition // the final condition, if the status is the first to have it
}

// nextStatus returns the status of a Job after p, with so many pods created.
func nextStatus(v *view, p plan, created int) next {
	n := next{status: *v.Status.DeepCopy(), handled: map[batchv1.PodFailurePolicyAction]int{}}
	s := &n.status
	deleted := len(p.remove) + len(p.end)
	ready := v.ready
	for _, pod := range slices.Concat(p.remove, p.end) {
		if conditions.IsTrue(pod.Status.Conditions, corev1.PodReady) {
			ready--
		}
	}
	s.Active = int32(len(v.active) + created - deleted)
	s.Ready, s.Terminating = new(int32(ready)), new(int32(len(v.terminating)+deleted))
	if p.outcome == nil && v.DeletionTimestamp == nil {
		n.suspend(v)
	}
	if s.StartTime == nil && !v.suspended() {
		s.StartTime = &metav1.Time{Time: v.now}
	}
	n.settle(v)
	n.record(v, p.outcome)
	if p.outcome != nil && !conditions.IsTrue(s.Conditions, p.outcome.Type) {
		s.Conditions = conditions.Set(s.Conditions, *p.outcome)
	}
	if p.outcome != nil && *s.Terminating == 0 && s.Active == 0 && !slices.ContainsFunc(v.pods, tracked) {
		n.finish(v, p.outcome)
	}
	return n
}

// suspend brings the condition Suspended and the start time in line with the spec.
func (n *next) suspend(v *view) {
	s := &n.status
	was := conditions.IsTrue(s.Conditions, batchv1.JobSuspended)
	if was == v.suspended() {
		return
	}
	c := condition(batchv1.JobSuspended, "JobSuspended", "Job suspended", v.now)
	s.StartTime = nil // the deadline counts from the next resume
	n.paused = true
	if was {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "JobResumed", "Job resumed"
		n.paused, n.resumed = false, true
	}
	s.Conditions = conditions.Set(s.Conditions, *c)
}

// settle moves the recorded pods that have lost their finalizer into the counters.
func (n *next) settle(v *view) {
	s := &n.status
	if s.UncountedTerminatedPods == nil {
		s.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
		return
	}
	held := map[types.UID]bool{}
	for _, p := range v.pods {
		if tracked(p) {
			held[p.UID] = true
		}
	}
	move := func(list *[]types.UID, counter *int32) {
		before := len(*list)
		*list = slices.DeleteFunc(*list, func(uid types.UID) bool { return !held[uid] })
		*counter += int32(before - len(*list))
	}
	move(&s.UncountedTerminatedPods.Succeeded, &s.Succeeded)
	move(&s.UncountedTerminatedPods.Failed, &s.Failed)
}

// result is how a pod that has ended counts.
type result int

const (
	uncounted result = iota
	succeeded
	failed
)

// record records pods that have ended, up to the limit of one status.
func (n *next) record(v *view, outcome *batchv1.JobCondition) {
	s := &n.status
	u := s.UncountedTerminatedPods
	var done []int
	list := v.pods
	if v.indexed() { // in order, so that the text of the completed indexes stays short
		list = slices.SortedStableFunc(slices.Values(list), func(a, b *corev1.Pod) int { return cmp.Compare(indexOf(a), indexOf(b)) })
	}
	for _, p := range list {
		over, as := v.over(p, outcome)
		if !tracked(p) || !over {
			continue
		}
		if as != uncounted && len(u.Succeeded)+len(u.Failed)+len(done) >= burst {
			break // the rest waits for the next status
		}
		n.untrack = append(n.untrack, p)
		switch {
		case as == succeeded && v.indexed():
			done = append(done, indexOf(p))
		case as == succeeded:
			u.Succeeded = append(u.Succeeded, p.UID)
		case as == failed:
			n.recordFailure(v, p)
		}
	}
	if v.indexed() {
		completed := parseIndexes(s.CompletedIndexes, v.completions()).with(done...)
		s.CompletedIndexes, s.Succeeded = completed.String(), int32(completed.total())
	}
	if v.perIndex() {
		s.FailedIndexes = new(v.lost.String())
	}
}

func (n *next) recordFailure(v *view, p *corev1.Pod) {
	m := matchFailure(v.Spec.PodFailurePolicy, p)
	if m.action != "" {
		n.handled[m.action]++
	}
	if !m.ignored() {
		u := n.status.UncountedTerminatedPods
		u.Failed = append(u.Failed, p.UID)
	}
}

// over reports whether a pod has ended, and how the status is to count it: not at all if it
// has recorded the pod before.
func (v *view) over(p *corev1.Pod, outcome *batchv1.JobCondition) (over bool, as result) {
	ends := outcome != nil || v.DeletionTimestamp != nil
	switch {
	case v.recorded[p.UID]:
		return true, uncounted
	case p.Status.Phase == corev1.PodSucceeded:
		as = succeeded
	case outcome != nil && outcome.Type == batchv1.JobSuccessCriteriaMet && p.DeletionTimestamp != nil: // because of it
	case v.podFailed(p):
		if !ends && v.last[indexOf(p)] == p {
			return false, uncounted
		}
		as = failed
	case outcome != nil && outcome.Type == batchv1.JobFailureTarget: // its pods are deleted
		as = failed
	default:
		return ends, uncounted
	}
	if !v.valid(p) {
		as = uncounted
	}
	return true, as
}

// finish adds the final condition if all pods are counted.
func (n *next) finish(v *view, outcome *batchv1.JobCondition) {
	s := &n.status
	if u := s.UncountedTerminatedPods; len(u.Succeeded)+len(u.Failed) > 0 {
		return
	}
	t := batchv1.JobComplete
	if outcome.Type == batchv1.JobFailureTarget {
		t = batchv1.JobFailed
	}
	n.finished = condition(t, outcome.Reason, outcome.Message, v.now)
	s.Conditions = conditions.Set(s.Conditions, *n.finished)
	if s.StartTime == nil {
		s.StartTime = &n.finished.LastTransitionTime
	}
	if t == batchv1.JobComplete {
		s.CompletionTime = &n.finished.LastTransitionTime
	}
}
