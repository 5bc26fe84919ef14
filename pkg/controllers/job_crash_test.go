package controllers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/informer"
)

// TestJobCrashes kills the controllers between any two writes, drops requests and responses,
// and lets watches lag and break, while Jobs and CronJobs run. The cluster must reach the same
// state as without faults: exact counts, no pod too many at any time, no finalizer left.
func TestJobCrashes(t *testing.T) {
	want := jobStory(t, 0)
	eachSeed(t, func(t *testing.T, s uint64) {
		if got := jobStory(t, s); got != want {
			t.Errorf("go test -run TestJobCrashes -seed %d ends in another state\n got %s\nwant %s", s, got, want)
		}
	})
}

// jobStory runs Jobs with the faults of a seed (0: none) and returns the final state.
func jobStory(t *testing.T, seed uint64) (state string) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		c.background(c.atMostOnePodPerIndex)
		c.runTasks(storyTask)
		stop := c.disturb(seed)
		create(c, jobOf("plain", 12, 4, batchv1.NonIndexedCompletion))
		create(c, jobOf("indexed", 20, 7, batchv1.IndexedCompletion))
		create(c, jobOf("perindex", 6, 6, batchv1.IndexedCompletion, func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = new(int32(1)) }))
		create(c, jobOf("fails", 5, 1, batchv1.NonIndexedCompletion, func(j *batchv1.Job) { j.Spec.BackoffLimit = new(int32(2)) }))
		create(c, jobOf("leader", 5, 5, batchv1.IndexedCompletion, func(j *batchv1.Job) {
			j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: new("0")}}}
		}))
		create(c, jobOf("shrinks", 8, 8, batchv1.IndexedCompletion))
		create(c, jobOf("deleted", 9, 9, batchv1.NonIndexedCompletion))
		create(c, cronJobOf("tick", "*/2 * * * *", func(cj *batchv1.CronJob) { cj.Spec.ConcurrencyPolicy = batchv1.ForbidConcurrent }))
		time.Sleep(700 * time.Millisecond)
		edit(c, "shrinks", func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(2)) })
		remove[*batchv1.Job](c, "deleted", metav1.DeletePropagationBackground)
		time.Sleep(time.Second)
		edit(c, "indexed", func(j *batchv1.Job) { j.Spec.Suspend = new(true) })
		time.Sleep(10 * time.Second)
		edit(c, "indexed", func(j *batchv1.Job) { j.Spec.Suspend = new(false) })
		time.Sleep(7 * time.Minute)
		edit(c, "tick", func(cj *batchv1.CronJob) { cj.Spec.Suspend = new(true) })
		time.Sleep(13 * time.Minute)
		stop()
		c.quiet()
		c.checkUntracked()
		state = c.jobState()
	})
	return state
}

// storyTask says how the pods of jobStory end.
func storyTask(p *corev1.Pod) (code int32, after time.Duration) {
	index := p.Annotations[batchv1.JobCompletionIndexAnnotation]
	switch p.Labels[batchv1.JobNameLabel] {
	case "perindex":
		if index == "1" || index == "4" {
			return 1, time.Second
		}
	case "fails":
		return 1, time.Second
	case "leader":
		if index != "0" {
			return -1, 0
		}
		return 0, 2 * time.Second
	case "deleted":
		return -1, 0
	}
	return 0, 3 * time.Second
}

// atMostOnePodPerIndex fails the test if a Job ever has two active pods of an index, or more
// active pods than its parallelism.
func (c *cluster) atMostOnePodPerIndex(ctx context.Context) error {
	active := map[string]map[string]bool{} // per Job or index: the names of its active pods
	i := informer.New(client.For[*corev1.Pod](c.Client), informer.Options{})
	i.OnChange(func(old, p *corev1.Pod) {
		some := p
		if p == nil {
			some = old
		}
		keys := []string{some.Labels[batchv1.JobNameLabel]}
		if index, ok := some.Annotations[batchv1.JobCompletionIndexAnnotation]; ok {
			keys = append(keys, keys[0]+"/"+index)
		}
		for _, key := range keys {
			if active[key] == nil {
				active[key] = map[string]bool{}
			}
			delete(active[key], some.Name)
			if p != nil && p.DeletionTimestamp == nil && (p.Status.Phase == corev1.PodPending || p.Status.Phase == corev1.PodRunning) {
				active[key][p.Name] = true
			}
			limit := map[string]int{"plain": 4, "indexed": 7, "perindex": 6, "fails": 1, "leader": 5, "shrinks": 8, "deleted": 9, "big": 500}[key]
			if strings.Contains(key, "/") || strings.HasPrefix(key, "tick-") {
				limit = 1
			}
			if n := len(active[key]); n > limit {
				c.t.Errorf("%d active pods of %s: %v", n, key, active[key])
			}
		}
	})
	return i.Run(ctx)
}

// jobState describes the Jobs and CronJobs.
func (c *cluster) jobState() string {
	var out []string
	for _, j := range all[*batchv1.Job](c, "") {
		out = append(out, j.Name+": "+summary(j))
	}
	for _, cj := range all[*batchv1.CronJob](c, "") {
		out = append(out, fmt.Sprintf("%s: %d active, last %s", cj.Name, len(cj.Status.Active), cj.Status.LastScheduleTime.UTC().Format(time.TimeOnly)))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// TestJobOf500IndexedPods runs a large Job with some failing pods and a crash of the
// controllers in the middle.
func TestJobOf500IndexedPods(t *testing.T) {
	inCluster(t, 5, func(t *testing.T, c *cluster) {
		c.background(c.atMostOnePodPerIndex)
		c.runTasks(func(p *corev1.Pod) (int32, time.Duration) {
			index := 0
			fmt.Sscan(p.Annotations[batchv1.JobCompletionIndexAnnotation], &index)
			first := p.Annotations[batchv1.JobIndexFailureCountAnnotation] == "0"
			if index%10 == 0 && first {
				return 1, time.Duration(index) * 10 * time.Millisecond
			}
			return 0, time.Duration(index) * 10 * time.Millisecond
		})
		create(c, jobOf("big", 500, 500, batchv1.IndexedCompletion, func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = new(int32(1)) }))
		c.until(time.Minute, "half of the pods have succeeded", func() bool { return c.job("big").Status.Succeeded > 200 })
		c.restartControllers()
		c.until(5*time.Minute, "the Job is complete", c.jobIs("big", batchv1.JobComplete))
		want := "active 0, succeeded 500, failed 50, completed 0-499, failed indexes , SuccessCriteriaMet CompletionsReached, Complete CompletionsReached"
		if got := summary(c.job("big")); got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
		c.quiet()
		c.checkUntracked()
	})
}
