package job

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/conditions"
	"podium/pkg/controller/pods"
)

// view is a Job and its pods at a point in time, with what follows from them. It is not
// changed after observe has returned it.
type view struct {
	*batchv1.Job
	now         time.Time
	pods        []*corev1.Pod
	active      []*corev1.Pod
	ready       int
	terminating []*corev1.Pod

	recorded          map[types.UID]bool // pods in status.uncountedTerminatedPods
	succeeded, failed int                // with the pods that the status does not count yet

	done, lost indexes             // completed and failed indexes, with those that the status lacks
	last       map[int]*corev1.Pod // with a limit per index: the failed pod that the next pod of an index replaces
}

// observe returns the view of a Job and the pods that it owns.
func observe(job *batchv1.Job, owned []*corev1.Pod, now time.Time) *view {
	v := &view{Job: job, now: now, pods: owned, recorded: map[types.UID]bool{}, last: map[int]*corev1.Pod{}}
	for _, p := range owned {
		switch {
		case pods.Active(p):
			v.active = append(v.active, p)
			if pods.Ready(p) {
				v.ready++
			}
		case pods.Terminating(p):
			v.terminating = append(v.terminating, p)
		}
	}
	v.count()
	if v.indexed() {
		v.countIndexes()
	}
	if v.perIndex() {
		v.findLast()
	}
	return v
}

func (v *view) count() {
	v.succeeded, v.failed = int(v.Status.Succeeded), int(v.Status.Failed)
	if u := v.Status.UncountedTerminatedPods; u != nil {
		v.succeeded += len(u.Succeeded)
		v.failed += len(u.Failed)
		for _, uid := range slices.Concat(u.Succeeded, u.Failed) {
			v.recorded[uid] = true
		}
	}
	for _, p := range v.pods {
		switch {
		case !tracked(p) || v.recorded[p.UID] || !v.valid(p):
		case p.Status.Phase == corev1.PodSucceeded:
			v.succeeded++
		case v.podFailed(p) && !matchFailure(v.Spec.PodFailurePolicy, p).ignored():
			v.failed++
		}
	}
}

func (v *view) countIndexes() {
	v.done = parseIndexes(v.Status.CompletedIndexes, v.completions())
	if v.Status.FailedIndexes != nil {
		v.lost = parseIndexes(*v.Status.FailedIndexes, v.completions())
	}
	var done, lost []int
	for _, p := range v.pods {
		switch {
		case !tracked(p) || v.recorded[p.UID] || !v.valid(p):
		case p.Status.Phase == corev1.PodSucceeded:
			done = append(done, indexOf(p))
		case v.perIndex() && v.podFailed(p) && v.exhausts(p):
			lost = append(lost, indexOf(p))
		}
	}
	v.done = v.done.with(done...)
	v.lost = v.lost.with(slices.DeleteFunc(lost, v.done.has)...)
	v.succeeded = v.done.total()
}

// exhausts reports whether the index of a failed pod has failed, too.
func (v *view) exhausts(p *corev1.Pod) bool {
	m := matchFailure(v.Spec.PodFailurePolicy, p)
	if m.action == batchv1.PodFailurePolicyActionFailIndex {
		return true
	}
	before, _ := indexFailures(p)
	return !m.ignored() && before >= int(*v.Spec.BackoffLimitPerIndex)
}

// findLast finds the failed pods of indexes that need a new pod. They keep their finalizer
// until that pod exists: it continues their failure count.
func (v *view) findLast() {
	active := indexesOf(v.active)
	total := func(p *corev1.Pod) int {
		counted, ignored := indexFailures(p)
		return counted + ignored
	}
	for _, p := range v.pods {
		i := indexOf(p)
		if !tracked(p) || !v.valid(p) || !v.podFailed(p) || active[i] || v.done.has(i) || v.lost.has(i) {
			continue
		}
		if have := v.last[i]; have == nil || total(p) > total(have) {
			v.last[i] = p
		}
	}
}

func (v *view) indexed() bool { return *v.Spec.CompletionMode == batchv1.IndexedCompletion }

func (v *view) perIndex() bool { return v.indexed() && v.Spec.BackoffLimitPerIndex != nil }

func (v *view) suspended() bool { return v.Spec.Suspend != nil && *v.Spec.Suspend }

// completions returns the number of completions; 0 if the Job has none.
func (v *view) completions() int {
	if v.Spec.Completions == nil {
		return 0
	}
	return int(*v.Spec.Completions)
}

// valid reports whether a pod counts: that of an indexed Job needs an index.
func (v *view) valid(p *corev1.Pod) bool {
	i := indexOf(p)
	return !v.indexed() || i != noIndex && i < v.completions()
}

// waits reports whether a pod is replaced only after it has terminated.
func (v *view) waits() bool {
	return v.Spec.PodFailurePolicy != nil || v.Spec.PodReplacementPolicy != nil && *v.Spec.PodReplacementPolicy == batchv1.Failed
}

// podFailed reports whether a pod has failed. Unless its replacement waits, a pod that is
// being deleted has failed.
func (v *view) podFailed(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || !v.waits() && pods.Terminating(p)
}

// tracked reports whether a pod has the finalizer that keeps it until it is counted.
func tracked(p *corev1.Pod) bool { return slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) }

func indexesOf(list []*corev1.Pod) map[int]bool {
	out := map[int]bool{}
	for _, p := range list {
		out[indexOf(p)] = true
	}
	return out
}

// finished returns the final condition of a Job, nil if it has none.
func finished(job *batchv1.Job) *batchv1.JobCondition {
	for _, t := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if conditions.IsTrue(job.Status.Conditions, t) {
			return conditions.Find(job.Status.Conditions, t)
		}
	}
	return nil
}
