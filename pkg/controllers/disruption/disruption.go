package disruption

import (
	"context"
	"errors"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

// Spec describes the disruption controller.
func Spec() controller.Spec {
	return controller.Spec{Name: "disruption-controller", Component: "controllermanager", New: build}
}

type reconciler struct {
	controller.Context
	*loop.Loop
	budgets *informer.Informer[*policyv1.PodDisruptionBudget]
	pods    *informer.Informer[*corev1.Pod]
	writer  controller.Writer[*policyv1.PodDisruptionBudget]
	wanted  *wanted
	stale   *stale
}

// pace is the minimum time between two status updates of a budget whose pods change.
const pace = 20 * time.Millisecond

func build(c controller.Context) (controller.Runner, error) {
	r := &reconciler{
		Context: c,
		budgets: informers.For[*policyv1.PodDisruptionBudget](c.Informers),
		pods:    informers.For[*corev1.Pod](c.Informers),
		wanted:  newWanted(c), stale: newStale(c),
	}
	r.Loop = c.NewLoop("disruption", pace, r.reconcile, append(r.wanted.syncers(), r.budgets, r.pods)...)
	r.writer = controller.NewWriter(c, r.Loop, r.budgets)
	loop.WakeOn(r.Loop, r.budgets, loop.Self)
	r.pods.OnChange(r.podChanged)
	r.wanted.onChange(func(namespace string) {
		for _, b := range r.budgets.In(namespace) {
			r.Wake(loop.KeyOf(b))
		}
	})
	return r, nil
}

// Run runs the controller until ctx ends.
func (r *reconciler) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.Loop.Run(ctx) })
	g.Go(func() error { return r.stale.Run(ctx) })
	return g.Wait()
}

// podChanged enqueues the budgets that selected the pod, or do now.
func (r *reconciler) podChanged(old, new *corev1.Pod) {
	relabelled := old == nil || new == nil || !maps.Equal(old.Labels, new.Labels)
	if old != nil && relabelled {
		r.Wake(r.selecting(old)...)
	}
	if new == nil {
		return
	}
	keys := r.selecting(new)
	r.Wake(keys...)
	if len(keys) > 1 && relabelled {
		r.Events.Eventf(new, corev1.EventTypeWarning, "MultiplePodDisruptionBudgets",
			"Pod %q/%q matches multiple PodDisruptionBudgets.  Chose %q arbitrarily.", new.Namespace, new.Name, keys[0].Name)
	}
}

// selecting returns the keys of the budgets that select the pod.
func (r *reconciler) selecting(p *corev1.Pod) (keys []loop.Key) {
	for _, b := range r.budgets.In(p.Namespace) {
		if s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil && s.Matches(labels.Set(p.Labels)) {
			keys = append(keys, loop.KeyOf(b))
		}
	}
	return keys
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	b, ok := r.budgets.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Done, nil
	}
	selected, err := r.selected(b)
	if err != nil {
		r.Events.Eventf(b, corev1.EventTypeWarning, "NoPods", "Failed to get pods: %v", err)
		return loop.Done, r.failed(ctx, b, err)
	}
	if len(selected) == 0 {
		r.Events.Event(b, corev1.EventTypeNormal, "NoPods", "No matching pods found")
	}
	expected, desired, err := r.expect(ctx, b, selected)
	if err != nil {
		r.Events.Eventf(b, corev1.EventTypeWarning, "CalculateExpectedPodCountFailed", "Failed to calculate the number of expected pods: %v", err)
		return loop.Done, r.failed(ctx, b, err)
	}
	o := decide(b, selected, expected, desired, time.Now())
	for _, p := range o.Overdue {
		r.Events.Eventf(p, corev1.EventTypeWarning, "NotDeleted", "Pod was expected by PDB %s/%s to be deleted but it wasn't", b.Namespace, b.Name)
	}
	return loop.Result{After: o.Recheck}, r.updateStatus(ctx, b, o.Status)
}

// selected returns the pods that the budget selects.
func (r *reconciler) selected(b *policyv1.PodDisruptionBudget) (out []*corev1.Pod, err error) {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return nil, err
	}
	for _, p := range r.pods.In(b.Namespace) {
		if selector.Matches(labels.Set(p.Labels)) {
			out = append(out, p)
		}
	}
	return out, nil
}

// expect returns how many pods there should be, and how many of them must be healthy.
func (r *reconciler) expect(ctx context.Context, b *policyv1.PodDisruptionBudget, selected []*corev1.Pod) (expected, desired int32, err error) {
	expected = int32(len(selected))
	if scaled(b) {
		var unmanaged []string
		if expected, unmanaged, err = r.wanted.total(ctx, selected); err != nil {
			return 0, 0, err
		}
		if len(unmanaged) > 0 {
			r.Events.Eventf(b, corev1.EventTypeWarning, "UnmanagedPods", "Pods selected by this PodDisruptionBudget (selector: %v) were found "+
				"to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. "+
				"To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.", b.Spec.Selector)
		}
	} else if b.Spec.MinAvailable == nil {
		expected = 0
	}
	desired, err = desiredHealthy(b, expected)
	return expected, desired, err
}

// failed makes the budget allow no disruptions, since what it allows is unknown. It returns
// cause, and the error of the write.
func (r *reconciler) failed(ctx context.Context, b *policyv1.PodDisruptionBudget, cause error) error {
	next := b.DeepCopy()
	next.Status.DisruptionsAllowed = 0
	meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
		Reason: policyv1.SyncFailedReason, Message: cause.Error(), ObservedGeneration: b.Status.ObservedGeneration,
	})
	return errors.Join(cause, r.updateStatus(ctx, b, next.Status))
}

// updateStatus writes the status if it differs from the current one.
func (r *reconciler) updateStatus(ctx context.Context, b *policyv1.PodDisruptionBudget, want policyv1.PodDisruptionBudgetStatus) error {
	if equality.Semantic.DeepEqual(want, b.Status) {
		return nil
	}
	next := b.DeepCopy()
	next.Status = want
	_, err := r.writer.UpdateStatus(ctx, loop.KeyOf(b), next)
	return err
}
