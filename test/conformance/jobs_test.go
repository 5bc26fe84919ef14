package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// jobRows are the rows of Jobs and CronJobs in the area apps that need controllers.
var jobRows = []testcase{
	{id: "cronjob-allow-concurrent", test: cronJobAllows, long: true},
	{id: "cronjob-forbid-concurrent", test: cronJobForbids, long: true},
	{id: "cronjob-replace-concurrent", test: cronJobReplaces, long: true},
	{id: "cronjob-suspend", test: cronJobSuspended},
	{id: "job-adopt-release", test: jobAdoptsAndReleases},
	{id: "job-backofflimit-per-index", test: jobLimitsEachIndex},
	{id: "job-delete-active", test: jobDeleted},
	{id: "job-failindex-action", test: jobFailsIndex},
	{id: "job-indexed-completion-index", test: jobIndexes},
	{id: "job-lifecycle", test: jobLifecycle},
	{id: "job-local-restart-completion", test: jobRestartsLocally},
	{id: "job-max-failed-indexes", test: jobLimitsFailedIndexes},
	{id: "job-podfailurepolicy-failjob-exitcode", test: jobFailsByExitCode},
	{id: "job-podfailurepolicy-ignore-disruption", test: jobIgnoresDisruption},
	{id: "job-status-subresource", test: jobStatus},
	{id: "job-successpolicy-all-indexes", test: jobSucceedsWithAllIndexes},
	{id: "job-successpolicy-count", test: jobSucceedsWithCount},
	{id: "job-successpolicy-indexes", test: jobSucceedsWithIndexes},
}

// Scripts of the pods of Jobs.
const (
	sleeps    = "sleep 3600"
	succeeds  = "exit 0"
	failsOdd  = "exit $((JOB_COMPLETION_INDEX % 2))"
	onlyFirst = "[ $JOB_COMPLETION_INDEX = 0 ] || sleep 3600"
)

// newJob returns an Indexed Job whose pods run a script and never restart.
func newJob(namespace, name string, completions, parallelism int32, script string, change ...func(*batchv1.JobSpec)) *batchv1.Job {
	pod := sleeper("", "")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Containers[0].Command = []string{"sh", "-c", script}
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: batchv1.JobSpec{
			Completions: &completions, Parallelism: &parallelism, CompletionMode: ptr(batchv1.IndexedCompletion),
			Template: corev1.PodTemplateSpec{Spec: pod.Spec},
		},
	}
	for _, f := range change {
		f(&j.Spec)
	}
	return j
}

func nonIndexed(s *batchv1.JobSpec) { s.CompletionMode = nil }

func createJob(t *testing.T, ctx context.Context, j *batchv1.Job) *batchv1.Job {
	t.Helper()
	j, err := admin.BatchV1().Jobs(j.Namespace).Create(ctx, j, metav1.CreateOptions{})
	check(t, err)
	return j
}

// jobBecomes waits until a Job is as ok says, and returns it.
func jobBecomes(t *testing.T, ctx context.Context, j *batchv1.Job, what string, ok func(*batchv1.Job) bool) *batchv1.Job {
	t.Helper()
	var got *batchv1.Job
	eventually(t, ctx, "Job "+j.Name+" "+what, func() (err error) {
		got, err = admin.BatchV1().Jobs(j.Namespace).Get(ctx, j.Name, metav1.GetOptions{})
		if err == nil && !ok(got) {
			err = fmt.Errorf("its status is %+v", got.Status)
		}
		return err
	})
	return got
}

// reason returns the reason of a condition that is true, "" if it is not.
func reason(j *batchv1.Job, kind batchv1.JobConditionType) string {
	for _, c := range j.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return c.Reason
		}
	}
	return ""
}

func isComplete(j *batchv1.Job) bool { return reason(j, batchv1.JobComplete) != "" }

func hasFailed(j *batchv1.Job) bool { return reason(j, batchv1.JobFailed) != "" }

func podsReady(n int32) func(*batchv1.Job) bool {
	return func(j *batchv1.Job) bool {
		return j.Status.Active == n && j.Status.Ready != nil && *j.Status.Ready == n
	}
}

// wantReason wants a condition to be true for a reason.
func wantReason(t *testing.T, j *batchv1.Job, kind batchv1.JobConditionType, want string) {
	t.Helper()
	if got := reason(j, kind); got != want {
		t.Errorf("condition %s: reason %q, want %q", kind, got, want)
	}
}

// wantIndexes wants completed and failed indexes in the status.
func wantIndexes(t *testing.T, j *batchv1.Job, completed, failed string) {
	t.Helper()
	got := ""
	if j.Status.FailedIndexes != nil {
		got = *j.Status.FailedIndexes
	}
	if j.Status.CompletedIndexes != completed || got != failed {
		t.Errorf("completed %q and failed %q indexes, want %q and %q", j.Status.CompletedIndexes, got, completed, failed)
	}
}

func jobAdoptsAndReleases(t *testing.T, ctx context.Context, namespace string) {
	j := createJob(t, ctx, newJob(namespace, "adopts", 2, 2, sleeps, nonIndexed))
	jobBecomes(t, ctx, j, "has ready pods", podsReady(2))
	pod := podsOf(t, ctx, namespace)[0]
	ownedBy := func(want bool) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool { return metav1.IsControlledBy(p, j) == want }
	}
	updatePod(t, ctx, namespace, pod.Name, func(p *corev1.Pod) { p.OwnerReferences = nil })
	podBecomes(t, ctx, &pod, "is adopted", ownedBy(true))
	updatePod(t, ctx, namespace, pod.Name, func(p *corev1.Pod) { p.Labels = nil })
	podBecomes(t, ctx, &pod, "is released", ownedBy(false))
}

func jobDeleted(t *testing.T, ctx context.Context, namespace string) {
	j := createJob(t, ctx, newJob(namespace, "deleted", 4, 2, sleeps, nonIndexed))
	jobBecomes(t, ctx, j, "has ready pods", podsReady(2))
	background := metav1.DeletePropagationBackground
	check(t, admin.BatchV1().Jobs(namespace).Delete(ctx, j.Name, metav1.DeleteOptions{PropagationPolicy: &background}))
	eventually(t, ctx, "the Job and its pods are gone", func() error {
		_, err := admin.BatchV1().Jobs(namespace).Get(ctx, j.Name, metav1.GetOptions{})
		if n := len(podsOf(t, ctx, namespace)); !apierrors.IsNotFound(err) || n > 0 {
			return fmt.Errorf("%d pods, %v", n, err)
		}
		return nil
	})
}

func jobIndexes(t *testing.T, ctx context.Context, namespace string) {
	j := createJob(t, ctx, newJob(namespace, "indexed", 4, 2, "echo $JOB_COMPLETION_INDEX $(hostname)"))
	j = jobBecomes(t, ctx, j, "is complete", isComplete)
	wantIndexes(t, j, "0-3", "")
	var got []string
	for _, p := range podsOf(t, ctx, namespace) {
		index := p.Annotations[batchv1.JobCompletionIndexAnnotation]
		got = append(got, index)
		if p.Labels[batchv1.JobCompletionIndexAnnotation] != index {
			t.Errorf("pod %s: label %v", p.Name, p.Labels)
		}
		logsShow(t, ctx, &p, "c", fmt.Sprintf("%s indexed-%s", index, index))
	}
	slices.Sort(got)
	if fmt.Sprint(got) != "[0 1 2 3]" {
		t.Errorf("the pods have the indexes %v", got)
	}
}

func jobRestartsLocally(t *testing.T, ctx context.Context, namespace string) {
	j := newJob(namespace, "restarts", 4, 2, "[ -f /data/been ] || { touch /data/been; exit 1; }", nonIndexed)
	pod := &corev1.Pod{Spec: j.Spec.Template.Spec}
	mount(pod, "data", "/data", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	j.Spec.Template.Spec = pod.Spec
	j.Spec.BackoffLimit = ptr(int32(20))
	j = createJob(t, ctx, j)
	j = jobBecomes(t, ctx, j, "is complete", isComplete)
	if j.Status.Succeeded != 4 || j.Status.Failed != 0 {
		t.Errorf("status %+v", j.Status)
	}
	for _, p := range podsOf(t, ctx, namespace) {
		if n := p.Status.ContainerStatuses[0].RestartCount; n != 1 || p.Status.Phase != corev1.PodSucceeded {
			t.Errorf("pod %s: %d restarts, %s", p.Name, n, p.Status.Phase)
		}
	}
}

func jobLimitsEachIndex(t *testing.T, ctx context.Context, namespace string) {
	j := createJob(t, ctx, newJob(namespace, "perindex", 4, 2, failsOdd, func(s *batchv1.JobSpec) { s.BackoffLimitPerIndex = ptr(int32(1)) }))
	j = jobBecomes(t, ctx, j, "has failed", hasFailed)
	wantReason(t, j, batchv1.JobFailed, batchv1.JobReasonFailedIndexes)
	wantIndexes(t, j, "0,2", "1,3")
	if j.Status.Succeeded != 2 || j.Status.Failed != 4 {
		t.Errorf("%d pods have succeeded, %d failed", j.Status.Succeeded, j.Status.Failed)
	}
}

func jobLimitsFailedIndexes(t *testing.T, ctx context.Context, namespace string) {
	j := createJob(t, ctx, newJob(namespace, "maxfailed", 10, 10, "[ $JOB_COMPLETION_INDEX -lt 8 ] && exit 1; sleep 3600", func(s *batchv1.JobSpec) {
		s.BackoffLimitPerIndex, s.MaxFailedIndexes = ptr(int32(0)), ptr(int32(4))
	}))
	j = jobBecomes(t, ctx, j, "has failed", hasFailed)
	wantReason(t, j, batchv1.JobFailed, batchv1.JobReasonMaxFailedIndexesExceeded)
	if j.Status.Active != 0 || j.Status.FailedIndexes == nil || strings.ContainsAny(*j.Status.FailedIndexes, "89") {
		t.Errorf("status %+v", j.Status)
	}
	for _, p := range podsOf(t, ctx, namespace) {
		if p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodPending {
			t.Errorf("pod %s is %s", p.Name, p.Status.Phase)
		}
	}
}

// onExit returns a pod failure policy about an exit code.
func onExit(action batchv1.PodFailurePolicyAction, code int32) *batchv1.PodFailurePolicy {
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
		Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{code}},
	}}}
}

func jobFailsIndex(t *testing.T, ctx context.Context, namespace string) {
	j := createJob(t, ctx, newJob(namespace, "failindex", 4, 2, failsOdd, func(s *batchv1.JobSpec) {
		s.BackoffLimitPerIndex, s.PodFailurePolicy = ptr(int32(1)), onExit(batchv1.PodFailurePolicyActionFailIndex, 1)
	}))
	j = jobBecomes(t, ctx, j, "has failed", hasFailed)
	wantReason(t, j, batchv1.JobFailed, batchv1.JobReasonFailedIndexes)
	wantIndexes(t, j, "0,2", "1,3")
	if j.Status.Failed != 2 {
		t.Errorf("%d pods have failed", j.Status.Failed)
	}
}

func jobFailsByExitCode(t *testing.T, ctx context.Context, namespace string) {
	j := createJob(t, ctx, newJob(namespace, "failjob", 4, 2, "exit 1", nonIndexed, func(s *batchv1.JobSpec) {
		s.BackoffLimit, s.PodFailurePolicy = ptr(int32(1_000_000)), onExit(batchv1.PodFailurePolicyActionFailJob, 1)
	}))
	j = jobBecomes(t, ctx, j, "has failed", hasFailed)
	wantReason(t, j, batchv1.JobFailureTarget, batchv1.JobReasonPodFailurePolicy)
	wantReason(t, j, batchv1.JobFailed, batchv1.JobReasonPodFailurePolicy)
}

// jobIgnoresDisruption evicts the pods of a Job that may not fail. The pods wait, and those
// that replace them succeed.
func jobIgnoresDisruption(t *testing.T, ctx context.Context, namespace string) {
	maps := admin.CoreV1().ConfigMaps(namespace)
	cm, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "script"}, Data: map[string]string{"do": sleeps}}, metav1.CreateOptions{})
	check(t, err)
	j := newJob(namespace, "disrupted", 2, 2, `eval "$DO"`, func(s *batchv1.JobSpec) {
		s.BackoffLimit = ptr(int32(0))
		s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action: batchv1.PodFailurePolicyActionIgnore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
		}}}
		s.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "DO", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "script"}, Key: "do",
		}}}}
	})
	j = createJob(t, ctx, j)
	jobBecomes(t, ctx, j, "has ready pods", podsReady(2))
	cm.Data["do"] = succeeds
	_, err = maps.Update(ctx, cm, metav1.UpdateOptions{})
	check(t, err)
	for _, p := range podsOf(t, ctx, namespace) {
		check(t, admin.CoreV1().Pods(namespace).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: p.Name}}))
	}
	j = jobBecomes(t, ctx, j, "is complete", isComplete)
	if j.Status.Failed != 0 || j.Status.Succeeded != 2 {
		t.Errorf("status %+v", j.Status)
	}
}

// successPolicy lets a Job succeed by one rule.
func successPolicy(rule batchv1.SuccessPolicyRule) func(*batchv1.JobSpec) {
	return func(s *batchv1.JobSpec) {
		s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{rule}}
	}
}

func jobSucceedsWithAllIndexes(t *testing.T, ctx context.Context, namespace string) {
	j := createJob(t, ctx, newJob(namespace, "all", 2, 2, succeeds, successPolicy(batchv1.SuccessPolicyRule{SucceededIndexes: ptr("0-1")})))
	j = jobBecomes(t, ctx, j, "is complete", isComplete)
	wantReason(t, j, batchv1.JobSuccessCriteriaMet, batchv1.JobReasonSuccessPolicy)
	wantReason(t, j, batchv1.JobComplete, batchv1.JobReasonSuccessPolicy)
	wantIndexes(t, j, "0,1", "")
}

func jobSucceedsWithCount(t *testing.T, ctx context.Context, namespace string) {
	jobSucceedsEarly(t, ctx, newJob(namespace, "count", 5, 2, onlyFirst, successPolicy(batchv1.SuccessPolicyRule{SucceededCount: ptr(int32(1))})))
}

func jobSucceedsWithIndexes(t *testing.T, ctx context.Context, namespace string) {
	jobSucceedsEarly(t, ctx, newJob(namespace, "indexes", 5, 2, onlyFirst, successPolicy(batchv1.SuccessPolicyRule{SucceededIndexes: ptr("0")})))
}

// jobSucceedsEarly creates a Job that succeeds with index 0, and wants its other pods to end.
func jobSucceedsEarly(t *testing.T, ctx context.Context, j *batchv1.Job) {
	t.Helper()
	j = createJob(t, ctx, j)
	j = jobBecomes(t, ctx, j, "is complete", isComplete)
	wantReason(t, j, batchv1.JobSuccessCriteriaMet, batchv1.JobReasonSuccessPolicy)
	wantReason(t, j, batchv1.JobComplete, batchv1.JobReasonSuccessPolicy)
	wantIndexes(t, j, "0", "")
	if s := j.Status; s.Active != 0 || s.Ready == nil || *s.Ready != 0 || s.Terminating == nil || *s.Terminating != 0 {
		t.Errorf("status %+v", s)
	}
	for _, p := range podsOf(t, ctx, j.Namespace) {
		if p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodPending {
			t.Errorf("pod %s is %s", p.Name, p.Status.Phase)
		}
	}
}

func jobStatus(t *testing.T, ctx context.Context, namespace string) {
	jobs := admin.BatchV1().Jobs(namespace)
	j := createJob(t, ctx, newJob(namespace, "status", 4, 2, sleeps, nonIndexed))
	jobBecomes(t, ctx, j, "has ready pods", podsReady(2))
	patched, err := jobs.Patch(ctx, j.Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"patchedstatus":"true"}},"status":{"conditions":[{"type":"CustomConditionType","status":"True","reason":"first"}]}}`), metav1.PatchOptions{}, "status")
	check(t, err)
	if patched.Annotations["patchedstatus"] != "true" || reason(patched, "CustomConditionType") != "first" {
		t.Errorf("after the patch: %+v", patched)
	}
	eventually(t, ctx, "the status is updated", func() error {
		live, err := jobs.Get(ctx, j.Name, metav1.GetOptions{})
		check(t, err)
		for i := range live.Status.Conditions {
			if c := &live.Status.Conditions[i]; c.Type == "CustomConditionType" {
				c.Reason = "second"
			}
		}
		_, err = jobs.UpdateStatus(ctx, live, metav1.UpdateOptions{})
		return err
	})
	got := &batchv1.Job{}
	check(t, admin.BatchV1().RESTClient().Get().Namespace(namespace).Resource("jobs").Name(j.Name).SubResource("status").Do(ctx).Into(got))
	if reason(got, "CustomConditionType") != "second" {
		t.Errorf("the status subresource has %+v", got.Status)
	}
}

func jobLifecycle(t *testing.T, ctx context.Context, namespace string) {
	jobs := admin.BatchV1().Jobs(namespace)
	j := createJob(t, ctx, newJob(namespace, "lifecycle", 2, 2, succeeds, nonIndexed, func(s *batchv1.JobSpec) { s.Suspend = ptr(true) }))
	jobBecomes(t, ctx, j, "is suspended", func(j *batchv1.Job) bool { return reason(j, batchv1.JobSuspended) == "JobSuspended" })
	if n := len(podsOf(t, ctx, namespace)); n > 0 {
		t.Errorf("the suspended Job has %d pods", n)
	}
	label := metav1.ListOptions{LabelSelector: "lifecycle=" + namespace}
	_, err := jobs.Patch(ctx, j.Name, types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"lifecycle":"`+namespace+`"}}}`), metav1.PatchOptions{})
	check(t, err)
	eventually(t, ctx, "the Job is updated", func() error {
		live, err := jobs.Get(ctx, j.Name, metav1.GetOptions{})
		check(t, err)
		live.Annotations = map[string]string{"updated": "true"}
		live.Spec.Suspend = ptr(false)
		_, err = jobs.Update(ctx, live, metav1.UpdateOptions{})
		return err
	})
	j = jobBecomes(t, ctx, j, "is complete", isComplete)
	list, err := admin.BatchV1().Jobs("").List(ctx, label)
	check(t, err)
	if len(list.Items) != 1 || list.Items[0].Annotations["updated"] != "true" {
		t.Errorf("the list of all namespaces has %d Jobs", len(list.Items))
	}
	foreground := metav1.DeletePropagationForeground
	check(t, jobs.DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &foreground}, label))
	eventually(t, ctx, "the Job and its pods are gone", func() error {
		list, err := jobs.List(ctx, label)
		if n := len(podsOf(t, ctx, namespace)); err == nil && len(list.Items)+n > 0 {
			err = fmt.Errorf("%d Jobs, %d pods", len(list.Items), n)
		}
		return err
	})
}

// createCronJob creates a CronJob that is due every minute, and whose Jobs run for an hour.
func createCronJob(t *testing.T, ctx context.Context, namespace string, policy batchv1.ConcurrencyPolicy, suspend bool) {
	t.Helper()
	cj := cronJob("tick")
	cj.Spec.Schedule, cj.Spec.ConcurrencyPolicy, cj.Spec.Suspend = "*/1 * * * ?", policy, &suspend
	_, err := admin.BatchV1().CronJobs(namespace).Create(ctx, cj, metav1.CreateOptions{})
	check(t, err)
}

// activeJobs waits until a CronJob has n active Jobs, and returns their names.
func activeJobs(t *testing.T, ctx context.Context, namespace, what string, ok func(names []string) bool) []string {
	t.Helper()
	var names []string
	eventually(t, ctx, what, func() error {
		cj, err := admin.BatchV1().CronJobs(namespace).Get(ctx, "tick", metav1.GetOptions{})
		if err != nil {
			return err
		}
		names = nil
		for _, ref := range cj.Status.Active {
			names = append(names, ref.Name)
		}
		if !ok(names) {
			return fmt.Errorf("active: %v", names)
		}
		return nil
	})
	return names
}

func jobsOf(t *testing.T, ctx context.Context, namespace string) int {
	t.Helper()
	list, err := admin.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
	check(t, err)
	return len(list.Items)
}

// pastSchedule waits until the next minute has begun and some seconds have passed.
func pastSchedule(t *testing.T, ctx context.Context) {
	t.Helper()
	next := time.Now().Truncate(time.Minute).Add(time.Minute + 10*time.Second)
	eventually(t, ctx, "a minute begins", func() error {
		if left := time.Until(next); left > 0 {
			return fmt.Errorf("%s are left", left)
		}
		return nil
	})
}

func cronJobAllows(t *testing.T, ctx context.Context, namespace string) {
	createCronJob(t, ctx, namespace, batchv1.AllowConcurrent, false)
	activeJobs(t, ctx, namespace, "two Jobs are active", func(names []string) bool { return len(names) >= 2 })
	if n := jobsOf(t, ctx, namespace); n < 2 {
		t.Errorf("%d Jobs", n)
	}
}

func cronJobForbids(t *testing.T, ctx context.Context, namespace string) {
	createCronJob(t, ctx, namespace, batchv1.ForbidConcurrent, false)
	first := activeJobs(t, ctx, namespace, "a Job is active", func(names []string) bool { return len(names) == 1 })
	pastSchedule(t, ctx)
	now := activeJobs(t, ctx, namespace, "a Job is active", func(names []string) bool { return len(names) == 1 })
	if n := jobsOf(t, ctx, namespace); n != 1 || now[0] != first[0] {
		t.Errorf("%d Jobs, first %v, now %v", n, first, now)
	}
}

func cronJobReplaces(t *testing.T, ctx context.Context, namespace string) {
	createCronJob(t, ctx, namespace, batchv1.ReplaceConcurrent, false)
	first := activeJobs(t, ctx, namespace, "a Job is active", func(names []string) bool { return len(names) == 1 })
	activeJobs(t, ctx, namespace, "another Job replaces it", func(names []string) bool { return len(names) == 1 && names[0] != first[0] })
	eventually(t, ctx, "the first Job is gone", func() error {
		if n := jobsOf(t, ctx, namespace); n != 1 {
			return fmt.Errorf("%d Jobs", n)
		}
		return nil
	})
}

func cronJobSuspended(t *testing.T, ctx context.Context, namespace string) {
	createCronJob(t, ctx, namespace, batchv1.AllowConcurrent, true)
	pastSchedule(t, ctx)
	activeJobs(t, ctx, namespace, "no Job is active", func(names []string) bool { return len(names) == 0 })
	if n := jobsOf(t, ctx, namespace); n > 0 {
		t.Errorf("the suspended CronJob has %d Jobs", n)
	}
}
