package job

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/conditions"
	"podium/pkg/controller/pods"
)

// burst is the maximum number of pods that one reconcile creates, deletes or records.
const burst = 500

// plan is the actions of one reconcile.
type plan struct {
	outcome *batchv1.JobCondition // FailureTarget or SuccessCriteriaMet; nil: the Job runs on
	create  []int                 // indexes of the pods to create, noIndex for those without
	remove  []*corev1.Pod         // active pods to delete that are not counted as failed
	end     []*corev1.Pod         // active pods to delete because of the outcome
	wait    time.Duration         // until the Job is to be reconciled again; 0: when something changes
}

// decide returns what to do. delay is how long the creation of pods has to wait, for Jobs
// whose failures are not counted per index.
func decide(v *view, delay time.Duration) plan {
	if c := outcome(v); c != nil {
		return plan{outcome: c, end: v.active}
	}
	if v.DeletionTimestamp != nil {
		return plan{}
	}
	if v.suspended() {
		return plan{remove: v.active}
	}
	var p plan
	if deadline := v.Spec.ActiveDeadlineSeconds; deadline != nil {
		p.wait = time.Duration(*deadline) * time.Second
		if v.Status.StartTime != nil {
			p.wait -= v.now.Sub(v.Status.StartTime.Time)
		}
	}
	want := wanted(v)
	if p.remove = surplus(v, want); len(p.remove) > 0 {
		return p
	}
	missing := want - len(v.active)
	if v.waits() {
		missing -= len(v.terminating)
	}
	switch {
	case missing <= 0:
	case delay > 0:
		p.sooner(delay)
	default:
		p.create = pick(v, min(missing, burst), &p)
	}
	return p
}

func (p *plan) sooner(d time.Duration) {
	if p.wait == 0 || d < p.wait {
		p.wait = d
	}
}

// wanted returns the number of pods that are to be active.
func wanted(v *view) int {
	parallelism := int(*v.Spec.Parallelism)
	switch {
	case v.Spec.Completions != nil:
		return min(max(v.completions()-v.succeeded, 0), parallelism)
	case v.succeeded > 0: // a work queue: its remaining workers end by themselves
		return len(v.active)
	}
	return parallelism
}

// surplus returns the active pods to delete: those without a valid index of their own, and as
// many of the others as exceed want.
func surplus(v *view, want int) []*corev1.Pod {
	var out []*corev1.Pod
	left := v.active
	if v.indexed() {
		out, left = misplaced(v)
	}
	if n := len(v.active) - want - len(out); n > 0 {
		out = append(out, pods.LeastUseful(left, n, nil, v.now)...)
	}
	return out[:min(len(out), burst)]
}

// misplaced divides the active pods into those to delete, because their index does not exist,
// is completed or has a better pod, and the rest.
func misplaced(v *view) (out, rest []*corev1.Pod) {
	byIndex := map[int][]*corev1.Pod{}
	for _, p := range v.active {
		if i := indexOf(p); !v.valid(p) || v.done.has(i) {
			out = append(out, p)
		} else {
			byIndex[i] = append(byIndex[i], p)
		}
	}
	for _, p := range v.active {
		same := byIndex[indexOf(p)]
		if len(same) == 0 {
			continue
		}
		delete(byIndex, indexOf(p))
		worse := pods.LeastUseful(same, len(same)-1, nil, v.now)
		out = append(out, worse...)
		for _, s := range same {
			if !slices.Contains(worse, s) {
				rest = append(rest, s)
			}
		}
	}
	return out, rest
}

// pick returns the indexes of n pods to create, fewer if no more are pending. Indexes with
// failures wait; if all do, it shortens the wait of p.
func pick(v *view, n int, p *plan) []int {
	var out []int
	if !v.indexed() {
		for range n {
			out = append(out, noIndex)
		}
		return out
	}
	for _, i := range pending(v, n) {
		if failed := v.last[i]; failed != nil {
			counted, ignored := indexFailures(failed)
			if d := remaining(counted+ignored+1, ended(failed), v.now); d > 0 {
				p.sooner(d)
				continue
			}
		}
		out = append(out, i)
	}
	return out
}

// pending returns the first n indexes that are neither completed nor failed and have no pod.
func pending(v *view, n int) []int {
	taken := indexesOf(v.active)
	if v.waits() {
		for i := range indexesOf(v.terminating) {
			taken[i] = true
		}
	}
	var out []int
	for i := 0; i < v.completions() && len(out) < n; i++ {
		if done, ok := v.done.find(i); ok {
			i = done.last
		} else if lost, ok := v.lost.find(i); ok {
			i = lost.last
		} else if !taken[i] {
			out = append(out, i)
		}
	}
	return out
}

// outcome returns the condition that ends the Job: the one that it has, or a new one.
func outcome(v *view) *batchv1.JobCondition {
	for _, t := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget} {
		if conditions.IsTrue(v.Status.Conditions, t) {
			return conditions.Find(v.Status.Conditions, t)
		}
	}
	if reason, message := failure(v); reason != "" {
		return condition(batchv1.JobFailureTarget, reason, message, v.now)
	}
	if v.indexed() {
		if message, met := matchSuccess(v.Spec.SuccessPolicy, v.done, v.completions()); met {
			return condition(batchv1.JobSuccessCriteriaMet, batchv1.JobReasonSuccessPolicy, message, v.now)
		}
	}
	reached := v.succeeded >= v.completions()
	if v.Spec.Completions == nil {
		reached = v.succeeded > 0
	}
	if reached && len(v.active) == 0 {
		return condition(batchv1.JobSuccessCriteriaMet, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods", v.now)
	}
	return nil
}

// failure returns why the Job fails, "" if it does not.
func failure(v *view) (reason, message string) {
	for _, p := range v.pods {
		if !v.podFailed(p) {
			continue
		}
		if m := matchFailure(v.Spec.PodFailurePolicy, p); m.action == batchv1.PodFailurePolicyActionFailJob {
			return batchv1.JobReasonPodFailurePolicy, m.message
		}
	}
	lost := v.lost.total()
	switch limit := v.Spec.MaxFailedIndexes; {
	case v.failed > int(*v.Spec.BackoffLimit) || restartsExceed(v):
		return batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit"
	case late(v):
		return batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline"
	case v.perIndex() && limit != nil && lost > int(*limit):
		return batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes"
	case lost > 0 && lost+v.succeeded >= v.completions():
		return batchv1.JobReasonFailedIndexes, "Job has failed indexes"
	}
	return "", ""
}

// restartsExceed reports whether the containers of pods that restart in place have restarted
// as often as the back-off limit allows.
func restartsExceed(v *view) bool {
	if v.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	restarts := int32(0)
	for _, p := range v.pods {
		if pods.Terminal(p) {
			continue
		}
		for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
			for _, c := range list {
				restarts += c.RestartCount
			}
		}
	}
	return restarts > 0 && restarts >= *v.Spec.BackoffLimit
}

// late reports whether the Job has been running for longer than its deadline.
func late(v *view) bool {
	deadline, start := v.Spec.ActiveDeadlineSeconds, v.Status.StartTime
	return deadline != nil && start != nil && !v.suspended() && v.now.Sub(start.Time) >= time.Duration(*deadline)*time.Second
}

func condition(t batchv1.JobConditionType, reason, message string, now time.Time) *batchv1.JobCondition {
	at := metav1.Time{Time: now}
	return &batchv1.JobCondition{
		Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastProbeTime: at, LastTransitionTime: at,
	}
}
