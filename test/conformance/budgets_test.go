package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// budgets returns the rows of PodDisruptionBudgets and their controller in the area apps.
func budgets() []testcase {
	return []testcase{
		{id: "pdb-blocks-eviction", test: budgetBlocks},
		{id: "pdb-crud", test: budgetCRUD},
		{id: "pdb-status-observed", test: budgetObserved},
		{id: "pdb-status-subresource", test: budgetStatus},
	}
}

// createBudget creates budget b, which selects the pods with the label app=guarded.
func createBudget(t *testing.T, ctx context.Context, namespace string, minAvailable intstr.IntOrString) {
	t.Helper()
	_, err := admin.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "b"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &minAvailable, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}}},
	}, metav1.CreateOptions{})
	check(t, err)
}

// guarded runs n pods that the budget selects until they are ready.
func guarded(t *testing.T, ctx context.Context, namespace string, n int) (names []string) {
	t.Helper()
	for i := range n {
		pod := sleeper(namespace, fmt.Sprintf("guarded-%d", i))
		pod.Labels = map[string]string{"app": "guarded"}
		podBecomes(t, ctx, create(t, ctx, pod), "is ready", isReady)
		names = append(names, pod.Name)
	}
	return names
}

// budgetBecomes waits until the controller has processed the budget, and its status is as ok
// wants it.
func budgetBecomes(t *testing.T, ctx context.Context, namespace, what string, ok func(*policyv1.PodDisruptionBudget) bool) *policyv1.PodDisruptionBudget {
	t.Helper()
	var last *policyv1.PodDisruptionBudget
	eventually(t, ctx, "the budget "+what, func() error {
		b, err := admin.PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, "b", metav1.GetOptions{})
		if err == nil && (b.Status.ObservedGeneration < b.Generation || !ok(b)) {
			err = fmt.Errorf("generation %d, status %+v", b.Generation, b.Status)
		}
		last = b
		return err
	})
	return last
}

func allows(n int32) func(*policyv1.PodDisruptionBudget) bool {
	return func(b *policyv1.PodDisruptionBudget) bool { return b.Status.DisruptionsAllowed == n }
}

func patchBudget(t *testing.T, ctx context.Context, namespace, patch string, subresources ...string) *policyv1.PodDisruptionBudget {
	t.Helper()
	b, err := admin.PolicyV1().PodDisruptionBudgets(namespace).Patch(ctx, "b", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	check(t, err)
	return b
}

func updateBudget(t *testing.T, ctx context.Context, namespace string, change func(*policyv1.PodDisruptionBudget)) {
	t.Helper()
	eventually(t, ctx, "update of the budget", func() error {
		b, err := admin.PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, "b", metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(b)
		_, err = admin.PolicyV1().PodDisruptionBudgets(namespace).Update(ctx, b, metav1.UpdateOptions{})
		return err
	})
}

func budgetCRUD(t *testing.T, ctx context.Context, namespace string) {
	processed := func(minAvailable string) {
		t.Helper()
		budgetBecomes(t, ctx, namespace, "has minAvailable "+minAvailable, func(b *policyv1.PodDisruptionBudget) bool {
			return b.Spec.MinAvailable.String() == minAvailable
		})
	}
	createBudget(t, ctx, namespace, intstr.FromString("1%"))
	processed("1%")
	updateBudget(t, ctx, namespace, func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = ptr(intstr.FromString("2%")) })
	processed("2%")
	patchBudget(t, ctx, namespace, `{"spec":{"minAvailable":"3%"}}`)
	processed("3%")
	patchBudget(t, ctx, namespace, `{"spec":{"minAvailable":null,"maxUnavailable":1}}`)
	budgetBecomes(t, ctx, namespace, "has maxUnavailable", func(b *policyv1.PodDisruptionBudget) bool {
		return b.Spec.MinAvailable == nil && b.Spec.MaxUnavailable.IntValue() == 1
	})
	check(t, admin.PolicyV1().PodDisruptionBudgets(namespace).Delete(ctx, "b", metav1.DeleteOptions{}))
	if _, err := admin.PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, "b", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the delete: %v", err)
	}
}

func budgetObserved(t *testing.T, ctx context.Context, namespace string) {
	createBudget(t, ctx, namespace, intstr.FromInt32(1))
	budgetBecomes(t, ctx, namespace, "allows no disruption", allows(0))
	guarded(t, ctx, namespace, 3)
	b := budgetBecomes(t, ctx, namespace, "allows disruptions", allows(2))
	if s := b.Status; s.CurrentHealthy != 3 || s.DesiredHealthy != 1 || s.ExpectedPods != 3 {
		t.Errorf("the status is %+v", s)
	}
}

func budgetStatus(t *testing.T, ctx context.Context, namespace string) {
	api := admin.PolicyV1().PodDisruptionBudgets(namespace)
	createBudget(t, ctx, namespace, intstr.FromInt32(1))
	names := guarded(t, ctx, namespace, 1)
	budgetBecomes(t, ctx, namespace, "is processed", allows(0))
	eventually(t, ctx, "the status is updated", func() error {
		b, err := api.Get(ctx, "b", metav1.GetOptions{})
		if err != nil {
			return err
		}
		b.Status.DisruptedPods = map[string]metav1.Time{names[0]: metav1.NewTime(time.Now())}
		b, err = api.UpdateStatus(ctx, b, metav1.UpdateOptions{})
		if err == nil && len(b.Status.DisruptedPods) != 1 {
			t.Errorf("the answer to the update has %v", b.Status.DisruptedPods)
		}
		return err
	})
	budgetBecomes(t, ctx, namespace, "counts the pod as disrupted", func(b *policyv1.PodDisruptionBudget) bool {
		return len(b.Status.DisruptedPods) == 1 && b.Status.CurrentHealthy == 0
	})
	eventually(t, ctx, "the status is patched", func() error {
		old, err := api.Get(ctx, "b", metav1.GetOptions{})
		if err != nil {
			return err
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": old.ResourceVersion}, "status": map[string]any{"disruptedPods": nil},
		})
		if err != nil {
			return err
		}
		b, err := api.Patch(ctx, "b", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if err == nil && len(b.Status.DisruptedPods) != 0 {
			t.Errorf("the answer to the patch has %v", b.Status.DisruptedPods)
		}
		return err
	})
	budgetBecomes(t, ctx, namespace, "counts the pod again", func(b *policyv1.PodDisruptionBudget) bool { return b.Status.CurrentHealthy == 1 })
}

func evict(ctx context.Context, namespace, pod string) error {
	return admin.CoreV1().Pods(namespace).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod}})
}

// budgetBlocks evicts a pod when its budget allows it, and not before.
func budgetBlocks(t *testing.T, ctx context.Context, namespace string) {
	createBudget(t, ctx, namespace, intstr.FromInt32(3))
	names := guarded(t, ctx, namespace, 3)
	budgetBecomes(t, ctx, namespace, "allows no disruption", allows(0))
	refused := func(pod string) {
		t.Helper()
		err := evict(ctx, namespace, pod)
		if !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
			t.Fatalf("the eviction of %s: %v", pod, err)
		}
	}
	evicted := func(pod string) {
		t.Helper()
		check(t, evict(ctx, namespace, pod))
		eventually(t, ctx, "the pod is gone", func() error {
			p, err := admin.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				return nil
			case err == nil && !hasCondition(p, corev1.DisruptionTarget, corev1.ConditionTrue):
				t.Errorf("the pod is not marked: %+v", p.Status.Conditions)
			}
			return fmt.Errorf("it is there: %w", err)
		})
	}
	refused(names[0])
	updateBudget(t, ctx, namespace, func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = ptr(intstr.FromInt32(2)) })
	budgetBecomes(t, ctx, namespace, "allows a disruption", allows(1))
	evicted(names[0])
	budgetBecomes(t, ctx, namespace, "allows none any more", func(b *policyv1.PodDisruptionBudget) bool {
		return b.Status.DisruptionsAllowed == 0 && b.Status.CurrentHealthy == 2
	})
	refused(names[1])
	updateBudget(t, ctx, namespace, func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = ptr(intstr.FromInt32(1)) })
	budgetBecomes(t, ctx, namespace, "allows a disruption", allows(1))
	evicted(names[1])
	check(t, admin.PolicyV1().PodDisruptionBudgets(namespace).Delete(ctx, "b", metav1.DeleteOptions{}))
	eventually(t, ctx, "without a budget the last pod is evicted", func() error { return evict(ctx, namespace, names[2]) })
}
