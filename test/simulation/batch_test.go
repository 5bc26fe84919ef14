package simulation

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/conditions"
	"podium/pkg/kubelet/cri/crifake"
)

// flaky decides which containers of the image flaky fail: those of the first pods of an index.
// It knows a pod by its UID, so a container that a kubelet starts again ends as before.
type flaky struct {
	mu   sync.Mutex
	pods map[string][]string // by Job and index, in the order of their start
}

// failures returns how many pods of an index fail.
func failures(index int) int { return index % 3 }

func (f *flaky) exit(s crifake.Start) int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	index, err := strconv.Atoi(s.Env["JOB_COMPLETION_INDEX"])
	if err != nil {
		return 1
	}
	if f.pods == nil {
		f.pods = map[string][]string{}
	}
	key := s.Env["JOB"] + " " + strconv.Itoa(index)
	if !slices.Contains(f.pods[key], s.UID) {
		f.pods[key] = append(f.pods[key], s.UID)
	}
	if slices.Index(f.pods[key], s.UID) < failures(index) {
		return 3
	}
	return 0
}

// jobSpec returns the spec of a Job whose containers run for five seconds.
func jobSpec(name, image string, completions, parallelism int) batchv1.JobSpec {
	t := template(name, image)
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	c := &t.Spec.Containers[0]
	c.ReadinessProbe = nil
	c.Env = append(c.Env, corev1.EnvVar{Name: "JOB", Value: name})
	return batchv1.JobSpec{Completions: new(int32(completions)), Parallelism: new(int32(parallelism)), Template: t}
}

func job(name string, spec batchv1.JobSpec) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec}
}

// indexedJobs runs a Job whose failures stay just within its back-off limit, one in which they
// exceed the limit of two indexes, and one that fails.
func indexedJobs(ctx context.Context, w *world) {
	w.journal.onPod(w.jobPods())
	w.journal.onJob(w.jobCounts)

	indexed := jobSpec("batch-indexed", "flaky:1", 6, 3)
	indexed.CompletionMode, indexed.BackoffLimit = new(batchv1.IndexedCompletion), new(int32(6))
	create(ctx, w, job("batch-indexed", indexed))
	shards := jobSpec("batch-shards", "flaky:1", 6, 3)
	shards.CompletionMode, shards.BackoffLimitPerIndex = new(batchv1.IndexedCompletion), new(int32(1))
	create(ctx, w, job("batch-shards", shards))
	failing := jobSpec("batch-failing", "flaky:1", 1, 1)
	failing.BackoffLimit = new(int32(1))
	create(ctx, w, job("batch-failing", failing))
	plain := jobSpec("batch-plain", "task:1", 12, 4)
	create(ctx, w, job("batch-plain", plain))
	w.someTime(ctx, "jobs", 4*time.Minute)
}

// jobPods returns a rule of the pods of Jobs: never more than parallelism at once, never two of
// an index, none of an index that has succeeded, and no more than fail and succeed.
func (w *world) jobPods() func(old, new *corev1.Pod) {
	created, succeeded := map[string]int{}, map[string]bool{}
	indexOf := func(p *corev1.Pod) string {
		return controller(p) + " " + p.Annotations[batchv1.JobCompletionIndexAnnotation]
	}
	return func(old, p *corev1.Pod) {
		if p == nil || !strings.HasPrefix(p.Name, "batch-") {
			return
		}
		key, indexed := indexOf(p), p.Annotations[batchv1.JobCompletionIndexAnnotation] != ""
		if old == nil && indexed {
			index, _ := strconv.Atoi(p.Annotations[batchv1.JobCompletionIndexAnnotation])
			if created[key]++; created[key] > failures(index)+1 {
				w.problem("pod %s is number %d of its index", p.Name, created[key])
			}
			if succeeded[key] {
				w.problem("pod %s of an index that has succeeded", p.Name)
			}
		}
		if p.Status.Phase == corev1.PodSucceeded {
			succeeded[key] = true
		}
		running, same := 0, 0
		for _, other := range w.journal.pods {
			if !alive(other) || controller(other) != controller(p) {
				continue
			}
			running++
			if indexed && indexOf(other) == key {
				same++
			}
		}
		if job := w.journal.jobOf(p); job != nil && running > int(*job.Spec.Parallelism) {
			w.problem("%d pods of job %s run, with parallelism %d", running, job.Name, *job.Spec.Parallelism)
		}
		if same > 1 {
			w.problem("%d pods of the index of %s run", same, p.Name)
		}
	}
}

// jobOf returns the Job of a pod. Rules call it: the journal is locked.
func (j *journal) jobOf(p *corev1.Pod) *batchv1.Job {
	for _, job := range j.jobs {
		if string(job.UID) == controller(p) {
			return job
		}
	}
	return nil
}

// jobCounts is a rule of the status of Jobs: counters do not decrease, and nothing changes after
// the final condition.
func (w *world) jobCounts(old, job *batchv1.Job) {
	if old == nil || job == nil {
		return
	}
	before, now := &old.Status, &job.Status
	if now.Succeeded < before.Succeeded || now.Failed < before.Failed {
		w.problem("job %s: succeeded %d and failed %d became %d and %d", job.Name, before.Succeeded, before.Failed, now.Succeeded, now.Failed)
	}
	if now.Succeeded > *job.Spec.Completions {
		w.problem("job %s: %d of %d completions", job.Name, now.Succeeded, *job.Spec.Completions)
	}
	if end := ending(old); end != "" && end != ending(job) {
		w.problem("job %s: was %s, became %s", job.Name, end, ending(job))
	}
}

// ending returns the final condition of a Job, "" if it has none.
func ending(job *batchv1.Job) string {
	for _, t := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if conditions.IsTrue(job.Status.Conditions, t) {
			return string(t)
		}
	}
	return ""
}

// The history limit of the CronJob, and the number of Jobs that it runs at least.
const (
	cronHistory = 2
	cronLeast   = 5
)

// cron runs a CronJob every minute, until some of its Jobs have been deleted from the history.
func cron(ctx context.Context, w *world) {
	runs := &cronRuns{w: w, times: map[string]bool{}}
	w.journal.onJob(runs.see)
	create(ctx, w, &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "batch-cron"},
		Spec: batchv1.CronJobSpec{
			Schedule: "* * * * *", ConcurrencyPolicy: batchv1.ForbidConcurrent,
			SuccessfulJobsHistoryLimit: new(int32(cronHistory)), FailedJobsHistoryLimit: new(int32(1)),
			JobTemplate: batchv1.JobTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "batch-cron"}},
				Spec:       jobSpec("batch-cron", "task:1", 2, 1),
			},
		},
	})
	w.await(ctx, "runs of the CronJob", func() bool { return runs.number() >= cronLeast })
	edit(ctx, w, "default", "batch-cron", func(c *batchv1.CronJob) { c.Spec.Suspend = new(true) })
}

// cronRuns follows the Jobs of the CronJob.
type cronRuns struct {
	w     *world
	mu    sync.Mutex
	times map[string]bool // for which a Job was created
}

func (r *cronRuns) number() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.times)
}

// see is a rule of Jobs: no time is run twice, no two Jobs run at once, and there are no more
// ended ones than the limit and the one that has just ended.
func (r *cronRuns) see(old, job *batchv1.Job) {
	if job == nil || job.Labels["app"] != "batch-cron" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at := job.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
	if old == nil {
		if r.times[at] {
			r.w.problem("job %s: a second run of %s", job.Name, at)
		}
		r.times[at] = true
	}
	running, ended := 0, 0
	for _, other := range r.w.journal.jobs {
		switch {
		case controller(other) != controller(job) || other.DeletionTimestamp != nil:
		case ending(other) == "":
			running++
		default:
			ended++
		}
	}
	if running > 1 {
		r.w.problem("%d jobs of the CronJob run", running)
	}
	if ended > cronHistory+1 {
		r.w.problem("%d jobs in the history of the CronJob", ended)
	}
}

// batch lists the Jobs and CronJobs.
type batch struct {
	jobs     []*batchv1.Job
	cronJobs []*batchv1.CronJob
}

func (w *world) batch(ctx context.Context) batch {
	return batch{jobs: list[*batchv1.Job](ctx, w), cronJobs: list[*batchv1.CronJob](ctx, w)}
}

func (b batch) lines() (out []string) {
	for line, n := range count(b.jobs, jobLine) {
		out = append(out, fmt.Sprintf("%d jobs of %s", n, line))
	}
	for _, c := range b.cronJobs {
		out = append(out, fmt.Sprintf("cronjob %s: suspended %t, active %d", c.Name, *c.Spec.Suspend, len(c.Status.Active)))
	}
	return out
}

func jobLine(j *batchv1.Job) string {
	s := &j.Status
	var all []string
	for _, c := range s.Conditions {
		all = append(all, fmt.Sprintf("%s=%s (%s)", c.Type, c.Status, c.Reason))
	}
	slices.Sort(all)
	uncounted, lost := 0, ""
	if u := s.UncountedTerminatedPods; u != nil {
		uncounted = len(u.Succeeded) + len(u.Failed)
	}
	if s.FailedIndexes != nil {
		lost = *s.FailedIndexes
	}
	return fmt.Sprintf("%s: active %d, succeeded %d, failed %d, completed indexes %q, failed indexes %q, uncounted %d, %s",
		j.Spec.Template.Labels["app"], s.Active, s.Succeeded, s.Failed, s.CompletedIndexes, lost, uncounted, strings.Join(all, ", "))
}
