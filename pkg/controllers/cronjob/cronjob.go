package cronjob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/prom"
)

// Metrics are the controller's metrics, under upstream's names.
type Metrics struct{ skew prometheus.Histogram }

// NewMetrics creates the metrics and registers them; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	return &Metrics{prom.For(r).Histogram("cronjob_controller_job_creation_skew_duration_seconds",
		"Time between the scheduled time of a job and its creation", prometheus.ExponentialBuckets(1, 2, 10))}
}

// Spec describes the cron job controller.
func Spec(workers int, m *Metrics) controller.Spec {
	return controller.Spec{Name: "cronjob-controller", Workers: workers, New: func(c controller.Context) (controller.Runner, error) {
		return build(c, m), nil
	}}
}

type reconciler struct {
	*loop.Loop
	controller.Context
	cronJobs *informer.Informer[*batchv1.CronJob]
	owned    informers.Owned[*batchv1.Job]
	writer   controller.Writer[*batchv1.CronJob]
	jobs     controller.Writer[*batchv1.Job]
	metrics  *Metrics
}

func build(c controller.Context, m *Metrics) *reconciler {
	jobs := informers.For[*batchv1.Job](c.Informers)
	r := &reconciler{
		Context: c, metrics: m,
		cronJobs: informers.For[*batchv1.CronJob](c.Informers),
		owned:    informers.ByController[*batchv1.Job](c.Informers),
	}
	r.Loop = c.NewLoop("cronjob", 0, r.reconcile, r.cronJobs, jobs)
	r.writer = controller.NewWriter(c, r.Loop, r.cronJobs)
	r.jobs = controller.NewWriter(c, r.Loop, jobs)
	loop.WakeOn(r.Loop, r.cronJobs, loop.Self)
	loop.WakeOn(r.Loop, jobs, loop.Owner[*batchv1.Job]("CronJob"))
	return r
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	cj, ok := r.cronJobs.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Done, nil // the garbage collector deletes its Jobs
	}
	jobs, err := r.withActive(ctx, cj, r.owned.By(cj.UID))
	if err != nil {
		return loop.Done, err
	}
	p := decide(cj, jobs, time.Now())
	createErr := r.replace(ctx, cj, &p)
	if err := r.updateStatus(ctx, key, cj, p); err != nil {
		return loop.Done, errors.Join(createErr, err)
	}
	return loop.Result{After: p.wait}, errors.Join(createErr, r.delete(ctx, cj, p.prune))
}

// withActive returns jobs and those that the status lists as active, that the cache lacks and
// that exist in the API.
func (r *reconciler) withActive(ctx context.Context, cj *batchv1.CronJob, jobs []*batchv1.Job) ([]*batchv1.Job, error) {
	for _, ref := range cj.Status.Active {
		if slices.ContainsFunc(jobs, func(j *batchv1.Job) bool { return j.UID == ref.UID }) {
			continue
		}
		j, err := r.jobs.Get(ctx, cj.Namespace, ref.Name)
		switch {
		case err == nil && j.UID == ref.UID:
			jobs = append(slices.Clone(jobs), j)
		case err != nil && !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("get job %s: %w", ref.Name, err)
		}
	}
	return jobs, nil
}

// replace deletes the Jobs that p stops, creates the one that p runs, and enters both into
// the status of p.
func (r *reconciler) replace(ctx context.Context, cj *batchv1.CronJob, p *plan) error {
	if p.run.IsZero() {
		return nil
	}
	if err := r.delete(ctx, cj, p.stop); err != nil {
		return err
	}
	for _, j := range p.stop {
		p.status.Active = slices.DeleteFunc(p.status.Active, func(ref corev1.ObjectReference) bool { return ref.UID == j.UID })
	}
	job, err := r.create(ctx, cj, p.run)
	if job == nil {
		return err
	}
	r.metrics.skew.Observe(job.CreationTimestamp.Sub(p.run).Seconds())
	p.note("SuccessfulCreate", "Created job %v", job.Name)
	p.status.Active = append(p.status.Active, reference(job))
	p.status.LastScheduleTime = &metav1.Time{Time: p.run}
	return nil
}

// create creates the Job of a scheduled time. It returns nil if the Job exists already, or if
// the namespace is terminating.
func (r *reconciler) create(ctx context.Context, cj *batchv1.CronJob, at time.Time) (*batchv1.Job, error) {
	want := newJob(cj, at)
	job, err := r.jobs.Create(ctx, loop.KeyOf(cj), want)
	switch {
	case err == nil:
		return job, nil
	case controller.NamespaceTerminating(err):
		return nil, nil
	case !apierrors.IsAlreadyExists(err):
		r.Events.Event(cj, corev1.EventTypeWarning, "FailedCreate", "Error creating job: "+err.Error())
		return nil, err
	}
	job, err = r.jobs.Get(ctx, cj.Namespace, want.Name)
	if err != nil {
		return nil, fmt.Errorf("get job %s: %w", want.Name, err)
	}
	if metav1.IsControlledBy(job, cj) { // the cache will show it
		r.jobs.Wrote(loop.KeyOf(cj), job)
	}
	return nil, nil
}

// delete deletes Jobs and their pods.
func (r *reconciler) delete(ctx context.Context, cj *batchv1.CronJob, jobs []*batchv1.Job) error {
	background := metav1.DeletePropagationBackground
	return loop.Parallel(ctx, len(jobs), func(ctx context.Context, i int) error {
		deleted, err := r.jobs.Delete(ctx, loop.KeyOf(cj), jobs[i], metav1.DeleteOptions{PropagationPolicy: &background})
		switch {
		case err != nil:
			r.Events.Event(cj, corev1.EventTypeWarning, "FailedDelete", "Deleted job: "+err.Error())
		case deleted:
			r.Events.Event(cj, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted job "+jobs[i].Name)
		}
		return err
	})
}

// updateStatus writes the status of p if it differs from the current one, then records the
// events of p.
func (r *reconciler) updateStatus(ctx context.Context, key loop.Key, cj *batchv1.CronJob, p plan) error {
	if !equality.Semantic.DeepEqual(p.status, cj.Status) {
		next := cj.DeepCopy()
		next.Status = p.status
		if _, err := r.writer.UpdateStatus(ctx, key, next); err != nil {
			return err
		}
	}
	for _, e := range p.events {
		r.Events.Event(cj, e.kind, e.reason, e.message)
	}
	return nil
}
