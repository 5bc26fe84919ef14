package registry

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	pdbhelper "k8s.io/component-helpers/apps/poddisruptionbudget"

	"podium/pkg/conditions"
	"podium/pkg/scheme"
)

const (
	// maxDisrupted is the number of evictions that the disruption controller may have
	// left to confirm before a budget refuses further ones.
	maxDisrupted = 2000
	// evictionAttempts limits the retries for a pod that changes during its eviction.
	evictionAttempts = 20
)

func budgetsGVR() schema.GroupVersionResource {
	return policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
}

// podEviction returns the subresource that deletes a pod if its disruption budget
// allows it, and marks it as evicted before.
func podEviction(cfg Config) *Subresource {
	act := func(ctx context.Context, b Backend, namespace, name string, body runtime.Object, opts *metav1.CreateOptions) (runtime.Object, error) {
		options, err := evictionOptions(body.(*policyv1.Eviction), opts)
		if err != nil {
			return nil, err
		}
		e := eviction{b, cfg.Now, namespace, name, options}
		return success(), e.run(ctx)
	}
	return &Subresource{Name: "eviction", GVK: policyv1.SchemeGroupVersion.WithKind("Eviction"), Act: act}
}

// evictionOptions returns the options of the delete, with the dry run of the request.
func evictionOptions(e *policyv1.Eviction, request *metav1.CreateOptions) (*metav1.DeleteOptions, error) {
	options := &metav1.DeleteOptions{}
	if e.DeleteOptions != nil {
		options = e.DeleteOptions.DeepCopy()
	}
	switch {
	case len(options.DryRun) == 0:
		options.DryRun = request.DryRun
	case len(request.DryRun) > 0 && !slices.Equal(options.DryRun, request.DryRun):
		return nil, apierrors.NewBadRequest(fmt.Sprintf("Non-matching dry-run options in request and content: %v and %v", request.DryRun, options.DryRun))
	}
	if errs := metavalidation.ValidateDeleteOptions(options); len(errs) > 0 {
		return nil, apierrors.NewInvalid(policyv1.SchemeGroupVersion.WithKind("Eviction").GroupKind(), e.Name, errs)
	}
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	return options, nil
}

// eviction is one request to evict a pod. Its options have preconditions.
type eviction struct {
	Backend
	now             func() time.Time
	namespace, name string
	options         *metav1.DeleteOptions
}

// run evicts the pod. If the pod changes meanwhile and the client has not named a
// resourceVersion, run decides again.
func (e eviction) run(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		obj, err := e.Get(ctx, podsGVR(), e.namespace, e.name)
		if err != nil {
			return err
		}
		pod := obj.(*corev1.Pod)
		if err := checkPreconditions(pod, e.options.Preconditions); err != nil {
			return err
		}
		pinned, err := e.permit(ctx, pod)
		if err != nil {
			return err
		}
		err = e.remove(ctx, pod, pinned)
		raced := apierrors.IsConflict(err) && pinned && e.options.Preconditions.ResourceVersion == nil
		if !raced || attempt == evictionAttempts {
			return err
		}
	}
}

// permit returns nil if the pod may be evicted now. pinned means that this holds only
// for the state of the pod that was looked at.
func (e eviction) permit(ctx context.Context, pod *corev1.Pod) (pinned bool, err error) {
	switch {
	case pod.DeletionTimestamp != nil, pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return false, nil // its disruption has happened already
	case pod.Status.Phase == corev1.PodPending:
		return true, nil
	}
	budgets, err := e.budgets(ctx, pod)
	if err != nil || len(budgets) == 0 {
		return false, err
	}
	if len(budgets) > 1 {
		return false, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		}}
	}
	if !conditions.IsTrue(pod.Status.Conditions, corev1.PodReady) && toleratesUnhealthy(budgets[0]) {
		return true, nil // the budget does not count the pod
	}
	return false, e.spend(ctx, budgets[0])
}

// budgets returns the disruption budgets that select the pod.
func (e eviction) budgets(ctx context.Context, pod *corev1.Pod) ([]*policyv1.PodDisruptionBudget, error) {
	list, err := e.List(ctx, budgetsGVR(), e.namespace)
	if err != nil {
		return nil, err
	}
	var out []*policyv1.PodDisruptionBudget
	for _, obj := range list {
		budget := obj.(*policyv1.PodDisruptionBudget)
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			out = append(out, budget)
		}
	}
	return out, nil
}

// toleratesUnhealthy reports whether pods that are not ready may be evicted without
// asking the budget.
func toleratesUnhealthy(b *policyv1.PodDisruptionBudget) bool {
	if p := b.Spec.UnhealthyPodEvictionPolicy; p != nil && *p == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.DesiredHealthy > 0 && b.Status.CurrentHealthy >= b.Status.DesiredHealthy
}

// spend takes one disruption from the budget and records the pod in it, or returns
// why the budget does not allow it.
func (e eviction) spend(ctx context.Context, budget *policyv1.PodDisruptionBudget) error {
	if len(e.options.DryRun) > 0 {
		return refusal(budget)
	}
	_, err := e.Update(ctx, budgetsGVR(), e.namespace, budget.Name, func(obj scheme.Object) error {
		b := obj.(*policyv1.PodDisruptionBudget)
		if err := refusal(b); err != nil {
			return err
		}
		b.Status.DisruptionsAllowed--
		if b.Status.DisruptionsAllowed == 0 {
			pdbhelper.UpdateDisruptionAllowedCondition(b)
		}
		if b.Status.DisruptedPods == nil {
			b.Status.DisruptedPods = map[string]metav1.Time{}
		}
		b.Status.DisruptedPods[e.name] = metav1.NewTime(e.now())
		return nil
	})
	return err
}

// refusal returns the error for a budget that allows no disruption now, else nil.
func refusal(b *policyv1.PodDisruptionBudget) error {
	s := &b.Status
	switch {
	case s.ObservedGeneration < b.Generation:
		return exhausted(10, "The disruption budget %s is still being processed by the server.", b.Name)
	case s.DisruptionsAllowed < 0:
		return forbidden(b, "pdb disruptions allowed is negative")
	case len(s.DisruptedPods) > maxDisrupted:
		return forbidden(b, "DisruptedPods map too big - too many evictions not confirmed by PDB controller")
	case s.DisruptionsAllowed > 0:
		return nil
	}
	c := meta.FindStatusCondition(s.Conditions, policyv1.DisruptionAllowedCondition)
	explained := c != nil && c.Status == metav1.ConditionFalse && c.Message != ""
	switch {
	case explained && c.Reason == policyv1.SyncFailedReason: // the numbers are not current then
		return exhausted(0, "The disruption budget %s does not allow evicting pods currently because it failed sync: %s", b.Name, c.Message)
	case s.CurrentHealthy <= s.DesiredHealthy:
		return exhausted(0, "The disruption budget %s needs %d healthy pods and has %d currently", b.Name, s.DesiredHealthy, s.CurrentHealthy)
	case explained:
		return exhausted(0, "The disruption budget %s does not allow evicting pods currently (%s): %s", b.Name, c.Reason, c.Message)
	}
	return exhausted(0, "The disruption budget %s does not allow evicting pods currently", b.Name)
}

// exhausted returns a 429 whose cause is the disruption budget. retryAfter is in
// seconds; 0: the client decides.
func exhausted(retryAfter int, format string, args ...any) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfter)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: fmt.Sprintf(format, args...)}}
	return err
}

func forbidden(b *policyv1.PodDisruptionBudget, text string) error {
	return apierrors.NewForbidden(policyv1.Resource("poddisruptionbudget"), b.Name, fmt.Errorf("%s", text))
}

// remove marks the pod as evicted and deletes it. pinned makes it fail if the pod has
// changed. As upstream, admission is asked about the eviction and not about the deletion.
func (e eviction) remove(ctx context.Context, pod *corev1.Pod, pinned bool) error {
	options := e.options.DeepCopy()
	if pinned && options.Preconditions.ResourceVersion == nil {
		options.Preconditions.ResourceVersion = &pod.ResourceVersion
	}
	if len(options.DryRun) == 0 {
		if err := e.mark(ctx, options.Preconditions); err != nil {
			return err
		}
		options.Preconditions.ResourceVersion = nil // mark has checked and changed it
	}
	return e.DeleteAdmitted(ctx, podsGVR(), e.namespace, e.name, options)
}

// mark adds the condition DisruptionTarget to the status of the pod, which tells
// other clients the reason of the deletion.
func (e eviction) mark(ctx context.Context, p *metav1.Preconditions) error {
	_, err := e.Update(ctx, podsGVR(), e.namespace, e.name, func(obj scheme.Object) error {
		pod := obj.(*corev1.Pod)
		if err := checkPreconditions(pod, p); err != nil {
			return err
		}
		if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			return nil
		}
		setCondition(&pod.Status, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
			Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting"}, e.now())
		return nil
	})
	return err
}

func checkPreconditions(pod *corev1.Pod, p *metav1.Preconditions) error {
	switch {
	case p.UID != nil && *p.UID != pod.UID:
		return apierrors.NewConflict(corev1.Resource("pods"), pod.Name,
			fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, pod.UID))
	case p.ResourceVersion != nil && *p.ResourceVersion != pod.ResourceVersion:
		return apierrors.NewConflict(corev1.Resource("pods"), pod.Name,
			fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, pod.ResourceVersion))
	}
	return nil
}
