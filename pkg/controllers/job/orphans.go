package job

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/loop"
)

// orphans removes the finalizer from pods that no Job will ever count: those whose Job no
// longer exists, and those without a controller that no Job will adopt. Its keys are pods.
type orphans struct {
	*loop.Loop
	jobs   *informer.Informer[*batchv1.Job]
	pods   *informer.Informer[*corev1.Pod]
	writer controller.Writer[*corev1.Pod]
}

func newOrphans(c controller.Context, r *reconciler) *orphans {
	o := &orphans{jobs: r.jobs, pods: r.allPods}
	o.Loop = c.NewLoop("job_orphan_pod", 0, o.reconcile, o.jobs, o.pods)
	o.writer = controller.NewWriter(c, o.Loop, o.pods)
	wake := func(list ...*corev1.Pod) {
		for _, p := range list {
			if p != nil && o.orphan(p) {
				o.Wake(loop.KeyOf(p))
			}
		}
	}
	o.pods.OnChange(func(_, p *corev1.Pod) { wake(p) })
	o.jobs.OnChange(func(old, job *batchv1.Job) {
		if old != nil && (job == nil || job.UID != old.UID || finished(job) != nil && finished(old) == nil) {
			wake(r.owned.By(old.UID)...)
			wake(r.owned.Orphans(old.Namespace)...)
		}
	})
	return o
}

// orphan reports whether the caches show a pod with the finalizer and without a Job.
func (o *orphans) orphan(p *corev1.Pod) bool {
	if !tracked(p) {
		return false
	}
	if ref := metav1.GetControllerOfNoCopy(p); ref != nil {
		job, ok := o.jobs.Get(p.Namespace, ref.Name)
		return ref.APIVersion == batchv1.SchemeGroupVersion.String() && ref.Kind == "Job" && (!ok || job.UID != ref.UID)
	}
	return !slices.ContainsFunc(o.jobs.In(p.Namespace), func(job *batchv1.Job) bool {
		selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector)
		return err == nil && selector.Matches(labels.Set(p.Labels)) && finished(job) == nil && job.DeletionTimestamp == nil
	})
}

func (o *orphans) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	p, ok := o.pods.Get(key.Namespace, key.Name)
	if !ok || !o.orphan(p) {
		return loop.Done, nil
	}
	patch := untrackPatch()
	patch["metadata"].(map[string]any)["resourceVersion"] = p.ResourceVersion // it may be adopted meanwhile
	_, err := o.writer.Patch(ctx, key, p, types.StrategicMergePatchType, patch)
	return loop.Done, err
}

// runners runs several runners as one.
type runners []controller.Runner

// Run runs all until ctx ends or one of them fails.
func (r runners) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, one := range r {
		g.Go(func() error { return one.Run(ctx) })
	}
	return g.Wait()
}
