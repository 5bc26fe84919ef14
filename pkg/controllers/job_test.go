package controllers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/informer"
	"podium/pkg/conditions"
)

// jobOf returns an Indexed or NonIndexed Job with a pod template that does not restart.
func jobOf(name string, completions, parallelism int32, mode batchv1.CompletionMode, change ...func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{
			Completions: &completions, Parallelism: &parallelism, CompletionMode: &mode,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: "main", Image: "task"}},
			}},
		},
	}
	for _, f := range change {
		f(j)
	}
	return j
}

// runTasks ends each running pod of a Job: exit returns the code of its container and how long
// the pod runs. A negative code leaves it running.
func (c *cluster) runTasks(exit func(p *corev1.Pod) (code int32, after time.Duration)) {
	c.background(func(ctx context.Context) error {
		i := informer.New(client.For[*corev1.Pod](c.Client), informer.Options{})
		var wg sync.WaitGroup
		defer wg.Wait()
		i.OnChange(func(old, p *corev1.Pod) {
			if p == nil || p.Labels[batchv1.JobNameLabel] == "" || p.Status.Phase != corev1.PodRunning || old != nil && old.Status.Phase == corev1.PodRunning {
				return
			}
			code, after := exit(p)
			if code >= 0 {
				wg.Go(func() { c.endTask(ctx, p, code, after) })
			}
		})
		return i.Run(ctx)
	})
}

func (c *cluster) endTask(ctx context.Context, p *corev1.Pod, code int32, after time.Duration) {
	select {
	case <-time.After(after):
	case <-ctx.Done():
		return
	}
	pods := client.For[*corev1.Pod](c.Client).In(p.Namespace)
	for ctx.Err() == nil {
		live, err := pods.Get(ctx, p.Name)
		if err != nil || live.UID != p.UID {
			return
		}
		live.Status.Phase = corev1.PodSucceeded
		if code != 0 {
			live.Status.Phase = corev1.PodFailed
		}
		live.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Image: "task", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.Now()},
		}}}
		if _, err = pods.UpdateStatus(ctx, live); !apierrors.IsConflict(err) {
			return
		}
	}
}

func (c *cluster) job(name string) *batchv1.Job {
	j, err := client.For[*batchv1.Job](c.Client).In("default").Get(context.Background(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	return j
}

// jobIs reports whether a condition of a Job is true.
func (c *cluster) jobIs(name string, t batchv1.JobConditionType) func() bool {
	return func() bool { return conditions.IsTrue(c.job(name).Status.Conditions, t) }
}

// summary describes the status of a Job, with its true conditions.
func summary(j *batchv1.Job) string {
	s := j.Status
	out := fmt.Sprintf("active %d, succeeded %d, failed %d", s.Active, s.Succeeded, s.Failed)
	if s.CompletedIndexes != "" {
		out += ", completed " + s.CompletedIndexes
	}
	if s.FailedIndexes != nil {
		out += ", failed indexes " + *s.FailedIndexes
	}
	if u := s.UncountedTerminatedPods; u != nil && len(u.Succeeded)+len(u.Failed) > 0 {
		out += fmt.Sprintf(", uncounted %v", u)
	}
	if s.Terminating != nil && *s.Terminating > 0 {
		out += fmt.Sprintf(", terminating %d", *s.Terminating)
	}
	for _, c := range s.Conditions {
		if c.Status == corev1.ConditionTrue {
			out += fmt.Sprintf(", %s %s", c.Type, c.Reason)
		}
	}
	return out
}

// checkUntracked fails the test if a pod has the finalizer of job tracking.
func (c *cluster) checkUntracked() {
	c.t.Helper()
	for _, p := range c.pods("") {
		if slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) {
			c.t.Errorf("pod %s (%s) still has the finalizer", p.Name, p.Status.Phase)
		}
	}
}

func (c *cluster) jobEvents(name string) string {
	var out []string
	for _, e := range c.events() {
		if e.InvolvedObject.Kind == "Job" && e.InvolvedObject.Name == name && !slices.Contains(out, e.Reason) {
			out = append(out, e.Reason)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestJobsRunToCompletion(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		c.runTasks(func(*corev1.Pod) (int32, time.Duration) { return 0, time.Second })
		create(c, jobOf("plain", 3, 2, batchv1.NonIndexedCompletion))
		create(c, jobOf("indexed", 4, 4, batchv1.IndexedCompletion))
		create(c, jobOf("queue", 0, 2, batchv1.NonIndexedCompletion, func(j *batchv1.Job) { j.Spec.Completions = nil }))
		for name, want := range map[string]string{
			"plain":   "active 0, succeeded 3, failed 0, SuccessCriteriaMet CompletionsReached, Complete CompletionsReached",
			"indexed": "active 0, succeeded 4, failed 0, completed 0-3, SuccessCriteriaMet CompletionsReached, Complete CompletionsReached",
			"queue":   "active 0, succeeded 2, failed 0, SuccessCriteriaMet CompletionsReached, Complete CompletionsReached",
		} {
			c.until(time.Minute, name+" is complete", c.jobIs(name, batchv1.JobComplete))
			if got := summary(c.job(name)); got != want {
				t.Errorf("%s:\n got %s\nwant %s", name, got, want)
			}
			if got := c.jobEvents(name); got != "Completed SuccessfulCreate" {
				t.Errorf("%s: events %s", name, got)
			}
		}
		c.quiet()
		c.checkUntracked()
		for _, p := range c.pods("batch.kubernetes.io/job-name=indexed") {
			i := p.Annotations[batchv1.JobCompletionIndexAnnotation]
			if p.Labels[batchv1.JobCompletionIndexAnnotation] != i || p.Spec.Hostname != "indexed-"+i || !strings.HasPrefix(p.Name, "indexed-"+i+"-") {
				t.Errorf("pod %s: index %q, hostname %s, labels %v", p.Name, i, p.Spec.Hostname, p.Labels)
			}
			if e := p.Spec.Containers[0].Env; len(e) != 1 || e[0].Name != "JOB_COMPLETION_INDEX" {
				t.Errorf("pod %s: environment %v", p.Name, e)
			}
		}
	})
}

func TestJobOutcomes(t *testing.T) {
	limit := func(n int32) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Spec.BackoffLimit = &n }
	}
	perIndex := func(n int32) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = &n }
	}
	onExit := func(action batchv1.PodFailurePolicyAction, codes ...int32) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: codes},
			}}}
		}
	}
	success := func(rule batchv1.SuccessPolicyRule) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{rule}}
		}
	}
	// exits says how the pods of a Job end: codes by index or, without indexes, for all.
	const runs, odd = -1, -2
	for name, row := range map[string]struct {
		reason string
		job    *batchv1.Job
		exits  []int32
		want   string
	}{
		"backoff-limit": {"one failure more than the limit", jobOf("", 1, 1, batchv1.NonIndexedCompletion, limit(2)), []int32{1},
			"active 0, succeeded 0, failed 3, FailureTarget BackoffLimitExceeded, Failed BackoffLimitExceeded"},
		"running-ends": {"the running pod is deleted and counts as failed", jobOf("", 2, 2, batchv1.IndexedCompletion, limit(0)), []int32{1, runs},
			"active 0, succeeded 0, failed 2, FailureTarget BackoffLimitExceeded, Failed BackoffLimitExceeded"},
		"per-index": {"even indexes succeed, odd ones fail twice", jobOf("", 4, 4, batchv1.IndexedCompletion, perIndex(1)), []int32{0, 1, 0, 1},
			"active 0, succeeded 2, failed 4, completed 0,2, failed indexes 1,3, FailureTarget FailedIndexes, Failed FailedIndexes"},
		"max-failed": {"too many indexes have failed", jobOf("", 4, 4, batchv1.IndexedCompletion, perIndex(0), func(j *batchv1.Job) { j.Spec.MaxFailedIndexes = new(int32(1)) }), []int32{1, 1, 0, runs},
			"active 0, succeeded 1, failed 3, completed 2, failed indexes 0,1, FailureTarget MaxFailedIndexesExceeded, Failed MaxFailedIndexesExceeded"},
		"fail-job": {"an exit code fails the Job at once", jobOf("", 1, 1, batchv1.NonIndexedCompletion, limit(9), onExit(batchv1.PodFailurePolicyActionFailJob, 3)), []int32{3},
			"active 0, succeeded 0, failed 1, FailureTarget PodFailurePolicy, Failed PodFailurePolicy"},
		"fail-index": {"an exit code fails the index at once", jobOf("", 2, 2, batchv1.IndexedCompletion, perIndex(5), onExit(batchv1.PodFailurePolicyActionFailIndex, 3)), []int32{0, 3},
			"active 0, succeeded 1, failed 1, completed 0, failed indexes 1, FailureTarget FailedIndexes, Failed FailedIndexes"},
		"ignore": {"an ignored failure is not counted", jobOf("", 1, 1, batchv1.IndexedCompletion, limit(0), onExit(batchv1.PodFailurePolicyActionIgnore, 3)), []int32{odd},
			"active 0, succeeded 1, failed 0, completed 0, SuccessCriteriaMet CompletionsReached, Complete CompletionsReached"},
		"ignore-per-index": {"nor is it for the index", jobOf("", 1, 1, batchv1.IndexedCompletion, perIndex(0), onExit(batchv1.PodFailurePolicyActionIgnore, 3)), []int32{odd},
			"active 0, succeeded 1, failed 0, completed 0, failed indexes , SuccessCriteriaMet CompletionsReached, Complete CompletionsReached"},
		"success-indexes": {"the index of the leader is enough", jobOf("", 3, 3, batchv1.IndexedCompletion, success(batchv1.SuccessPolicyRule{SucceededIndexes: new("1")})), []int32{runs, 0, runs},
			"active 0, succeeded 1, failed 0, completed 1, SuccessCriteriaMet SuccessPolicy, Complete SuccessPolicy"},
		"success-count": {"any two are enough", jobOf("", 3, 3, batchv1.IndexedCompletion, success(batchv1.SuccessPolicyRule{SucceededCount: new(int32(2))})), []int32{0, runs, 0},
			"active 0, succeeded 2, failed 0, completed 0,2, SuccessCriteriaMet SuccessPolicy, Complete SuccessPolicy"},
		"deadline": {"the Job takes too long", jobOf("", 1, 1, batchv1.NonIndexedCompletion, func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = new(int64(20)) }), []int32{runs},
			"active 0, succeeded 0, failed 1, FailureTarget DeadlineExceeded, Failed DeadlineExceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 2, func(t *testing.T, c *cluster) {
				seen := 0
				c.runTasks(func(p *corev1.Pod) (int32, time.Duration) {
					i := p.Annotations[batchv1.JobCompletionIndexAnnotation]
					at := 0
					fmt.Sscan(i, &at)
					code := row.exits[min(at, len(row.exits)-1)]
					if code == odd {
						seen++
						code = int32(seen%2) * 3
					}
					after := time.Second
					if code == 0 {
						after = time.Second / 2
					}
					return code, after
				})
				row.job.Name = name
				create(c, row.job)
				c.until(10*time.Minute, "the Job has finished", func() bool { return finished(c.job(name)) })
				if got := summary(c.job(name)); got != row.want {
					t.Errorf("%s:\n got %s\nwant %s", row.reason, got, row.want)
				}
				c.quiet()
				c.checkUntracked()
			})
		})
	}
}

func finished(j *batchv1.Job) bool {
	return conditions.IsTrue(j.Status.Conditions, batchv1.JobComplete) || conditions.IsTrue(j.Status.Conditions, batchv1.JobFailed)
}

func TestJobsAreSuspendedAndResumed(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		c.runTasks(func(*corev1.Pod) (int32, time.Duration) { return 0, 30 * time.Second })
		create(c, jobOf("batch", 4, 4, batchv1.IndexedCompletion, func(j *batchv1.Job) {
			j.Spec.BackoffLimit, j.Spec.ActiveDeadlineSeconds = new(int32(0)), new(int64(60))
		}))
		c.until(time.Minute, "all pods are ready", func() bool { s := c.job("batch").Status; return s.Ready != nil && *s.Ready == 4 })
		edit(c, "batch", func(j *batchv1.Job) { j.Spec.Suspend = new(true) })
		c.until(time.Minute, "it is suspended", c.jobIs("batch", batchv1.JobSuspended))
		c.until(time.Minute, "its pods are gone", func() bool { return len(c.pods("")) == 0 })
		time.Sleep(2 * time.Minute)
		if got := summary(c.job("batch")); got != "active 0, succeeded 0, failed 0, Suspended JobSuspended" {
			t.Error(got)
		}
		if s := c.job("batch").Status.StartTime; s != nil {
			t.Errorf("the suspended Job has the start time %s", s)
		}
		edit(c, "batch", func(j *batchv1.Job) { j.Spec.Suspend = new(false) })
		c.until(time.Minute, "it is complete", c.jobIs("batch", batchv1.JobComplete))
		if got := c.jobEvents("batch"); got != "Completed Resumed SuccessfulCreate SuccessfulDelete Suspended" {
			t.Error(got)
		}
		c.quiet()
	})
}

// TestPodsOfDeletedJobsLoseTheFinalizer deletes Jobs in all ways, with and without controllers.
func TestPodsOfDeletedJobsLoseTheFinalizer(t *testing.T) {
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		for _, down := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, controllers down %v", policy, down), func(t *testing.T) {
				inCluster(t, 2, func(t *testing.T, c *cluster) {
					create(c, jobOf("batch", 3, 3, batchv1.NonIndexedCompletion))
					c.until(time.Minute, "all pods are ready", func() bool { s := c.job("batch").Status; return s.Ready != nil && *s.Ready == 3 })
					if down {
						c.stop()
						<-c.done
						c.done <- nil
					}
					remove[*batchv1.Job](c, "batch", policy)
					time.Sleep(time.Minute)
					if down {
						c.startControllers()
					}
					left := 0
					if policy == metav1.DeletePropagationOrphan {
						left = 3
					}
					c.until(2*time.Minute, "the Job and its pods are gone", func() bool {
						return !exists[*batchv1.Job](c, "default", "batch") && len(c.pods("")) == left
					})
					c.quiet()
					c.checkUntracked()
				})
			})
		}
	}
}
