package job

import (
	"context"
	"errors"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/controller/ownership"
	"podium/pkg/controller/podcontrol"
	"podium/pkg/controller/pods"
)

// Spec describes the job controller.
func Spec(workers int, m *Metrics) controller.Spec {
	return controller.Spec{Name: "job-controller", Workers: workers, New: func(c controller.Context) (controller.Runner, error) {
		return build(c, m), nil
	}}
}

type reconciler struct {
	*loop.Loop
	controller.Context
	jobs     *informer.Informer[*batchv1.Job]
	allPods  *informer.Informer[*corev1.Pod]
	owned    informers.Owned[*corev1.Pod]
	writer   controller.Writer[*batchv1.Job]
	pods     podcontrol.Control[*batchv1.Job]
	finalize controller.Writer[*corev1.Pod]
	failures failures
	metrics  *Metrics
}

// pace is the minimum time between two status updates of a Job whose pods change.
const pace = 20 * time.Millisecond

func build(c controller.Context, m *Metrics) controller.Runner {
	r := &reconciler{
		Context: c,
		jobs:    informers.For[*batchv1.Job](c.Informers),
		allPods: informers.For[*corev1.Pod](c.Informers),
		owned:   informers.ByController[*corev1.Pod](c.Informers), metrics: m,
		failures: failures{jobs: map[loop.Key]*record{}},
	}
	r.Loop = c.NewLoop("job", pace, r.reconcile, r.jobs, r.allPods)
	r.writer = controller.NewWriter(c, r.Loop, r.jobs)
	r.finalize = controller.NewWriter(c, r.Loop, r.allPods)
	r.pods = podcontrol.New[*batchv1.Job](c, r.Loop)
	r.pods.Finalizer = batchv1.JobTrackingFinalizer
	loop.WakeOn(r.Loop, r.jobs, loop.Self)
	ownership.WakeOwners(r.Loop, r.allPods, ownership.Owners[*batchv1.Job]{Kind: "Job", In: r.jobs.In, Selector: selectorOf})
	r.allPods.OnChange(m.podChanged)
	r.jobs.OnChange(func(old, job *batchv1.Job) {
		if old == nil && managedElsewhere(job) {
			m.elsewhere.WithLabelValues(*job.Spec.ManagedBy).Inc()
		}
	})
	return runners{r, newOrphans(c, r)}
}

func selectorOf(j *batchv1.Job) *metav1.LabelSelector { return j.Spec.Selector }

// managedElsewhere reports whether another controller reconciles the Job.
func managedElsewhere(job *batchv1.Job) bool {
	return job.Spec.ManagedBy != nil && *job.Spec.ManagedBy != batchv1.JobControllerName
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	job, ok := r.jobs.Get(key.Namespace, key.Name)
	if !ok || managedElsewhere(job) {
		r.failures.forget(key)
		return loop.Done, nil
	}
	owned := r.owned.By(job.UID)
	if finished(job) != nil {
		r.failures.forget(key)
		return loop.Done, r.cleanUp(ctx, job, owned)
	}
	selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector)
	if err != nil || selector.Empty() {
		return loop.Done, nil // it would select all pods; the API refuses such Jobs
	}
	claims := ownership.Claim(job, selector, owned, r.owned.Orphans(job.Namespace))
	if job.DeletionTimestamp == nil {
		claims.Adopt = append(claims.Adopt, untracked(claims.Owned)...)
	}
	if len(claims.Release)+len(claims.Adopt) > 0 {
		return loop.Done, errors.Join(r.pods.Release(ctx, job, claims.Release), r.pods.Adopt(ctx, job, claims.Adopt))
	}
	return r.sync(ctx, observe(job, claims.Owned, time.Now()))
}

// untracked returns the active pods that have no finalizer, because a crash came between the
// removal of their finalizer and their deletion, or because a user removed it.
func untracked(owned []*corev1.Pod) []*corev1.Pod {
	return keep(owned, func(p *corev1.Pod) bool { return pods.Active(p) && !tracked(p) })
}

func keep(list []*corev1.Pod, f func(*corev1.Pod) bool) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(list), func(p *corev1.Pod) bool { return !f(p) })
}

// sync does what the view of a Job calls for. The order of the writes makes a crash between
// any two of them harmless: the outcome is in the status before pods are deleted for it, and
// a pod that has ended is in the status before it loses its finalizer.
func (r *reconciler) sync(ctx context.Context, v *view) (result loop.Result, err error) {
	delay := time.Duration(0)
	if !v.perIndex() {
		delay = r.failures.delay(v)
	}
	todo := decide(v, delay)
	defer func() { r.metrics.synced(v, todo, v.now, err) }()
	created, createErr := r.create(ctx, v, todo.create)
	n := nextStatus(v, todo, created)
	if err := r.updateStatus(ctx, v, n); err != nil {
		return loop.Done, errors.Join(createErr, err)
	}
	if err := r.untrack(ctx, v.Job, todo.remove); err != nil {
		return loop.Done, err
	}
	if err := r.pods.Delete(ctx, v.Job, slices.Concat(todo.remove, todo.end)); err != nil {
		return loop.Done, err
	}
	return loop.Result{After: todo.wait}, errors.Join(createErr, r.untrack(ctx, v.Job, n.untrack))
}

func (r *reconciler) create(ctx context.Context, v *view, indexes []int) (created int, err error) {
	if len(indexes) == 0 {
		return 0, nil
	}
	names := podNames(v.Job, indexes, func(name string) bool {
		_, taken := r.allPods.Get(v.Namespace, name)
		return taken
	})
	created, err = r.pods.CreateEach(ctx, v.Job, len(indexes), func(i int) *corev1.Pod {
		pod := r.pods.FromTemplate(v.Job, &v.Spec.Template)
		v.identify(pod, names[i], indexes[i])
		return pod
	})
	r.metrics.made(v, len(indexes), created)
	return created, err
}

// updateStatus writes the status if it differs from the current one, and records events about
// what it says for the first time.
func (r *reconciler) updateStatus(ctx context.Context, v *view, n next) error {
	if equality.Semantic.DeepEqual(n.status, v.Status) {
		return nil
	}
	job := v.DeepCopy()
	job.Status = n.status
	got, err := r.writer.UpdateStatus(ctx, loop.KeyOf(job), job)
	if err != nil || got == nil {
		return err
	}
	r.metrics.wrote(v, n)
	switch {
	case n.paused:
		r.Events.Event(job, corev1.EventTypeNormal, "Suspended", "Job suspended")
	case n.resumed:
		r.Events.Event(job, corev1.EventTypeNormal, "Resumed", "Job resumed")
	case n.finished == nil:
	case n.finished.Type == batchv1.JobFailed:
		r.Events.Event(job, corev1.EventTypeWarning, n.finished.Reason, n.finished.Message)
	default:
		if v.Spec.Completions != nil && n.status.Succeeded > *v.Spec.Completions {
			r.Events.Event(job, corev1.EventTypeWarning, "TooManySucceededPods", "Too many succeeded pods")
		}
		r.Events.Event(job, corev1.EventTypeNormal, "Completed", "Job completed")
	}
	return nil
}

// cleanUp deletes the active pods of a Job that has finished, and releases the others. There
// are some if the response to their creation was lost.
func (r *reconciler) cleanUp(ctx context.Context, job *batchv1.Job, owned []*corev1.Pod) error {
	if err := r.pods.Delete(ctx, job, keep(owned, pods.Active)); err != nil {
		return err
	}
	return r.untrack(ctx, job, keep(owned, tracked))
}

// untrack removes the finalizer from pods.
func (r *reconciler) untrack(ctx context.Context, job *batchv1.Job, list []*corev1.Pod) error {
	return loop.Parallel(ctx, len(list), func(ctx context.Context, i int) error {
		_, err := r.finalize.Patch(ctx, loop.KeyOf(job), list[i], types.StrategicMergePatchType, untrackPatch())
		return err
	})
}

func untrackPatch() map[string]any {
	return map[string]any{"metadata": map[string]any{"$deleteFromPrimitiveList/finalizers": []string{batchv1.JobTrackingFinalizer}}}
}
