package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/controller/loop"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.Time{Time: now.Add(-d)} }

// newJob returns a Job that started a minute ago.
func newJob(completions, parallelism int32, change ...func(*batchv1.Job)) *batchv1.Job {
	start := ago(time.Minute)
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "ns", UID: "job"},
		Spec: batchv1.JobSpec{
			Completions: &completions, Parallelism: &parallelism, BackoffLimit: new(int32(6)), CompletionMode: new(batchv1.NonIndexedCompletion),
		},
		Status: batchv1.JobStatus{StartTime: &start, UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{}},
	}
	for _, f := range change {
		f(j)
	}
	return j
}

func indexed(j *batchv1.Job) { j.Spec.CompletionMode = new(batchv1.IndexedCompletion) }
func queue(j *batchv1.Job)   { j.Spec.Completions = nil }
func paused(j *batchv1.Job)  { j.Spec.Suspend = new(true) }
func leaving(j *batchv1.Job) { j.DeletionTimestamp = new(ago(0)) }
func waiting(j *batchv1.Job) { j.Spec.PodReplacementPolicy = new(batchv1.Failed) }
func perIndex(n int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) { indexed(j); j.Spec.BackoffLimitPerIndex = &n }
}
func counts(succeeded, failed int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Status.Succeeded, j.Status.Failed = succeeded, failed }
}

// makePods returns tracked pods: r for running, p for pending, s for succeeded, f for failed, t for terminating,
// each with an index if a number follows.
func makePods(text string) []*corev1.Pod {
	var out []*corev1.Pod
	for i, word := range strings.Fields(text) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: word, Namespace: "ns", UID: types.UID(word + "/" + strconv.Itoa(i)), CreationTimestamp: ago(time.Minute - time.Duration(i)*time.Second),
			Finalizers: []string{batchv1.JobTrackingFinalizer},
		}}
		p.Status.Phase = map[byte]corev1.PodPhase{'r': corev1.PodRunning, 'p': corev1.PodPending, 's': corev1.PodSucceeded, 'f': corev1.PodFailed, 't': corev1.PodRunning}[word[0]]
		if word[0] == 't' {
			p.DeletionTimestamp = new(ago(0))
		}
		if len(word) > 1 {
			p.Annotations = map[string]string{batchv1.JobCompletionIndexAnnotation: word[1:], batchv1.JobIndexFailureCountAnnotation: "0"}
		}
		out = append(out, p)
	}
	return out
}

func names(list []*corev1.Pod) string {
	var out []string
	for _, p := range list {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (p plan) String() string {
	var out []string
	for _, part := range []struct {
		name, what string
	}{{"remove", names(p.remove)}, {"end", names(p.end)}} {
		if part.what != "" {
			out = append(out, part.name+" "+part.what)
		}
	}
	if len(p.create) > 0 {
		out = append(out, fmt.Sprintf("create %v", p.create))
	}
	if p.outcome != nil {
		out = append(out, fmt.Sprintf("%s %s", p.outcome.Type, p.outcome.Reason))
	}
	if p.wait > 0 {
		out = append(out, "wait "+p.wait.String())
	}
	return strings.Join(out, ", ")
}

func TestDecide(t *testing.T) {
	deadline := func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = new(int64(90)) }
	restarts := func(j *batchv1.Job) { j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }
	crashing := makePods("r r")
	crashing[0].Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 4}}
	crashing[1].Status.InitContainerStatuses = []corev1.ContainerStatus{{RestartCount: 2}}
	for name, row := range map[string]struct {
		reason string
		job    *batchv1.Job
		pods   []*corev1.Pod
		delay  time.Duration
		want   string
	}{
		"Start":         {"parallelism limits the pods", newJob(5, 2), nil, 0, "create [-1 -1]"},
		"Rest":          {"the remaining completions limit them, too", newJob(5, 4, counts(3, 0)), makePods("s"), 0, "create [-1]"},
		"Burst":         {"one reconcile creates 500", newJob(2000, 1000), nil, 0, "create [" + strings.TrimSpace(strings.Repeat("-1 ", 500)) + "]"},
		"Backoff":       {"the replacement of a failed pod waits", newJob(5, 2), makePods("f r"), 7 * time.Second, "wait 7s"},
		"Surplus":       {"a lower parallelism deletes the least useful", newJob(5, 1), makePods("r p"), 0, "remove p"},
		"Queue":         {"a work queue does not get new workers after a success", newJob(0, 3, queue), makePods("s r"), 0, ""},
		"QueueEmpty":    {"it is complete when all workers have ended", newJob(0, 3, queue), makePods("s f"), 0, "SuccessCriteriaMet CompletionsReached"},
		"Complete":      {"all completions are reached", newJob(2, 2, counts(1, 0)), makePods("s"), 0, "SuccessCriteriaMet CompletionsReached"},
		"Extra":         {"a pod too many is deleted first", newJob(1, 1), makePods("s r"), 0, "remove r"},
		"Suspended":     {"a suspended Job has no pods", newJob(5, 2, paused), makePods("r r"), 0, "remove r r"},
		"Deleted":       {"a Job that is being deleted does nothing", newJob(5, 2, leaving), makePods("r"), 0, ""},
		"Terminating":   {"a terminating pod is replaced", newJob(5, 1), makePods("t"), 0, "create [-1]"},
		"Waits":         {"unless the policy waits for it", newJob(5, 1, waiting), makePods("t"), 0, ""},
		"Limit":         {"too many pods have failed", newJob(5, 2, counts(0, 6)), makePods("f r"), 0, "end r, FailureTarget BackoffLimitExceeded"},
		"Restarts":      {"restarts in place count for the limit", newJob(5, 2, restarts), crashing, 0, "end r r, FailureTarget BackoffLimitExceeded"},
		"Deadline":      {"the deadline is a reason to look again", newJob(1, 1, deadline), makePods("r"), 0, "wait 30s"},
		"Sooner":        {"the back-off is sooner", newJob(1, 1, deadline), makePods("f"), 7 * time.Second, "wait 7s"},
		"Indexes":       {"the first pending indexes get pods", newJob(6, 4, indexed), makePods("s0 r2"), 0, "create [1 3 4]"},
		"Duplicate":     {"one of two pods of an index is deleted", newJob(6, 2, indexed), makePods("r0 r0 r1"), 0, "remove r0"},
		"Misplaced":     {"so are pods without a valid index, or with a completed one", newJob(2, 2, indexed), makePods("r0 r5 r s1 r1"), 0, "remove r r1 r5"},
		"IndexWaits":    {"a failed index waits, others do not", newJob(3, 3, perIndex(2)), failedAgo("f0 r1", 4*time.Second), 0, "create [2], wait 6s"},
		"IndexRetries":  {"and is tried again", newJob(2, 2, perIndex(2)), failedAgo("f0 r1", 10*time.Second), 0, "create [0]"},
		"IndexFails":    {"an index without retries is not tried again", newJob(2, 2, perIndex(0)), makePods("f0 r1"), 0, ""},
		"IndexesFail":   {"the rest has succeeded", newJob(2, 2, perIndex(0)), makePods("f0 s1"), 0, "FailureTarget FailedIndexes"},
		"WaitsPerIndex": {"a terminating pod keeps its index", newJob(2, 2, indexed, waiting), makePods("t0 r1"), 0, ""},
		"AlreadyFailing": {"the outcome is final", newJob(1, 1, func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{*condition(batchv1.JobFailureTarget, "Why", "", now)}
		}), makePods("s"), 0, "FailureTarget Why"},
	} {
		if got := decide(observe(row.job, row.pods, now), row.delay).String(); got != row.want {
			t.Errorf("%s: %s:\n got %s\nwant %s", name, row.reason, got, row.want)
		}
	}
}

// failedAgo returns pods whose containers ended that long ago.
func failedAgo(text string, d time.Duration) []*corev1.Pod {
	list := makePods(text)
	for _, p := range list {
		if p.Status.Phase == corev1.PodFailed {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: ago(d)}}}}
		}
	}
	return list
}

func TestRemaining(t *testing.T) {
	for failures, want := range map[int]time.Duration{0: 0, 1: 10 * time.Second, 2: 20 * time.Second, 5: 160 * time.Second, 6: 320 * time.Second, 7: 6 * time.Minute, 1000: 6 * time.Minute} {
		if got := remaining(failures, now, now); got != want {
			t.Errorf("after %d failures: %s, want %s", failures, got, want)
		}
	}
}

// TestFailuresSinceTheLastSuccess checks that failures before a success do not delay, and that
// a failed pod that is gone still does.
func TestFailuresSinceTheLastSuccess(t *testing.T) {
	f := failures{jobs: map[loop.Key]*record{}}
	delay := func(list []*corev1.Pod) time.Duration { return f.delay(observe(newJob(9, 9), list, now)) }
	if got := delay(failedAgo("f f", 5*time.Second)); got != 15*time.Second {
		t.Errorf("two failures: %s", got)
	}
	if got := delay(nil); got != 15*time.Second {
		t.Errorf("after their deletion: %s", got)
	}
	success := makePods("s")
	success[0].Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: ago(time.Second)}}}}
	if got := delay(success); got != 0 {
		t.Errorf("after a success: %s", got)
	}
}

// The clock of a node is an hour ahead, or this one was set back: the delay is as long as
// with equal clocks.
func TestFailuresInTheFuture(t *testing.T) {
	f := failures{jobs: map[loop.Key]*record{}}
	list := failedAgo("f", -time.Hour)
	if got := f.delay(observe(newJob(9, 9), list, now)); got != 10*time.Second {
		t.Errorf("at first: %s", got)
	}
	if got := f.delay(observe(newJob(9, 9), list, now.Add(7*time.Second))); got != 3*time.Second {
		t.Errorf("after 7 seconds: %s", got)
	}
}

func TestMatchFailure(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"}, Status: corev1.PodStatus{
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: "ok", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
			{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 42}}},
		},
		Conditions: []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
	}}
	codes := func(action batchv1.PodFailurePolicyAction, op batchv1.PodFailurePolicyOnExitCodesOperator, container *string, values ...int32) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{ContainerName: container, Operator: op, Values: values}}
	}
	const in, notIn = batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn
	disrupted := func(status corev1.ConditionStatus) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: batchv1.PodFailurePolicyActionIgnore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: status}}}
	}
	const code = "Container main for pod ns/pod failed with exit code 42 matching FailJob rule at index "
	for name, row := range map[string]struct {
		reason string
		rules  []batchv1.PodFailurePolicyRule
		want   match
	}{
		"None":      {"no rule matches", []batchv1.PodFailurePolicyRule{codes("FailJob", in, nil, 1), codes("Ignore", notIn, nil, 42), disrupted("False")}, match{}},
		"In":        {"the code is listed", []batchv1.PodFailurePolicyRule{codes("FailJob", in, nil, 1, 42)}, match{"FailJob", code + "0"}},
		"NotIn":     {"code 0 never matches", []batchv1.PodFailurePolicyRule{codes("Ignore", in, nil, 1), codes("FailJob", notIn, nil, 1)}, match{"FailJob", code + "1"}},
		"Container": {"the rule is about another container", []batchv1.PodFailurePolicyRule{codes("FailJob", notIn, new("ok"), 1)}, match{}},
		"Condition": {"the first rule that matches decides", []batchv1.PodFailurePolicyRule{disrupted("True"), codes("FailJob", in, nil, 42)}, match{"Ignore", "Pod ns/pod has condition DisruptionTarget matching Ignore rule at index 0"}},
	} {
		if got := matchFailure(&batchv1.PodFailurePolicy{Rules: row.rules}, p); got != row.want {
			t.Errorf("%s: %s: got %+v", name, row.reason, got)
		}
	}
}

// TestPodNames checks that the names of new pods depend only on the names in use.
func TestPodNames(t *testing.T) {
	j := newJob(3, 3)
	taken := map[string]bool{}
	is := func(name string) bool { return taken[name] }
	first := podNames(j, []int{noIndex, noIndex, 0, 1}, is)
	if again := podNames(j, []int{noIndex, noIndex, 0, 1}, is); !slices.Equal(first, again) {
		t.Errorf("%v, then %v", first, again)
	}
	for _, name := range first {
		taken[name] = true
	}
	if len(taken) != 4 || !strings.HasPrefix(first[3], "job-1-") {
		t.Errorf("names %v", first)
	}
	for _, name := range podNames(j, []int{noIndex, 1}, is) {
		if taken[name] {
			t.Errorf("%s is in use", name)
		}
	}
	delete(taken, first[0]) // the informer does not show it: a second pod would be one too many
	if again := podNames(j, []int{noIndex}, is); again[0] != first[0] {
		t.Errorf("the next pod is %s, want %s", again[0], first[0])
	}
	j.Name = strings.Repeat("x", 63)
	if name := podName(j, 100, 0); len(name) != 63 || !strings.Contains(name, "-100-") {
		t.Errorf("name %s of %d characters", name, len(name))
	}
}

// TestNextStatusIsLimited checks that one status records 500 pods, and that the others keep
// their finalizer.
func TestNextStatusIsLimited(t *testing.T) {
	for name, change := range map[string]func(*batchv1.Job){"NonIndexed": func(*batchv1.Job) {}, "Indexed": indexed} {
		var words []string
		for i := range 700 {
			words = append(words, fmt.Sprintf("s%d", i))
		}
		v := observe(newJob(1000, 1000, change), makePods(strings.Join(words, " ")), now)
		n := nextStatus(v, plan{}, 0)
		recorded := len(n.status.UncountedTerminatedPods.Succeeded) + int(n.status.Succeeded)
		if recorded != 500 || len(n.untrack) != 500 {
			t.Errorf("%s: %d pods recorded, %d to be released", name, recorded, len(n.untrack))
		}
		if want := map[bool]string{true: "0-499"}[name == "Indexed"]; n.status.CompletedIndexes != want {
			t.Errorf("%s: completed %s", name, n.status.CompletedIndexes)
		}
	}
}
