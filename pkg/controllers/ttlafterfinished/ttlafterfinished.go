// Package ttlafterfinished deletes Jobs that finished longer ago than their
// spec.ttlSecondsAfterFinished.
package ttlafterfinished

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client/informer"
	"podium/pkg/conditions"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/prom"
)

// Metrics are the controller's metrics, under upstream's names.
type Metrics struct{ late prometheus.Histogram }

// NewMetrics creates the metrics and registers them; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	return &Metrics{prom.For(r).Histogram("ttl_after_finished_controller_job_deletion_duration_seconds",
		"Time between the end of the time to live of a job and its deletion", prometheus.ExponentialBuckets(0.1, 2, 14))}
}

// Spec describes the TTL-after-finished controller.
func Spec(workers int, m *Metrics) controller.Spec {
	return controller.Spec{Name: "ttl-after-finished-controller", Workers: workers, New: func(c controller.Context) (controller.Runner, error) {
		r := &reconciler{Context: c, jobs: informers.For[*batchv1.Job](c.Informers), metrics: m}
		r.Loop = c.NewLoop("ttl_jobs_to_delete", 0, r.reconcile, r.jobs)
		r.writer = controller.NewWriter(c, r.Loop, r.jobs)
		r.jobs.OnChange(func(_, j *batchv1.Job) {
			if _, expires := expiry(j); expires {
				r.Wake(loop.KeyOf(j))
			}
		})
		return r, nil
	}}
}

type reconciler struct {
	*loop.Loop
	controller.Context
	jobs    *informer.Informer[*batchv1.Job]
	writer  controller.Writer[*batchv1.Job]
	metrics *Metrics
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	j, _ := r.jobs.Get(key.Namespace, key.Name)
	at, expires := expiry(j)
	if !expires {
		return loop.Done, nil
	}
	if left := time.Until(at); left > 0 {
		return loop.After(left), nil
	}
	// A user may just have prolonged the time to live: look at the API.
	fresh, err := r.writer.Get(ctx, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) {
		return loop.Done, nil
	}
	if err != nil {
		return loop.Done, fmt.Errorf("get job: %w", err)
	}
	if at, expires = expiry(fresh); !expires || fresh.UID != j.UID || time.Until(at) > 0 {
		r.writer.Wrote(key, fresh)
		return loop.Done, nil
	}
	opts := controller.Unchanged(fresh)
	foreground := metav1.DeletePropagationForeground
	opts.PropagationPolicy = &foreground
	deleted, err := r.writer.Delete(ctx, key, fresh, opts)
	if deleted {
		r.metrics.late.Observe(time.Since(at).Seconds())
		r.Log.Info("job deleted after its time to live", "namespace", j.Namespace, "job", j.Name)
	}
	return loop.Done, err
}

// expiry returns when the time to live of a Job ends, false if it does not: it has none, has
// not finished or is being deleted.
func expiry(j *batchv1.Job) (at time.Time, expires bool) {
	if j == nil || j.Spec.TTLSecondsAfterFinished == nil || j.DeletionTimestamp != nil {
		return time.Time{}, false
	}
	for _, t := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if c := conditions.Find(j.Status.Conditions, t); c != nil && c.Status == "True" && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Add(time.Duration(*j.Spec.TTLSecondsAfterFinished) * time.Second), true
		}
	}
	return time.Time{}, false
}
