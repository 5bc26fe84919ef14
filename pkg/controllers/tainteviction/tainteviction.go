package tainteviction

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/informer"
	"podium/pkg/conditions"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/controller/pods"
)

// Spec describes the taint eviction controller.
func Spec() controller.Spec {
	return controller.Spec{Name: "taint-eviction-controller", Account: "node-controller", Component: "taint-eviction-controller", Workers: 8, New: build}
}

// reconciler's keys are nodes.
type reconciler struct {
	controller.Context
	*loop.Loop
	nodes  *informer.Informer[*corev1.Node]
	podsOn func(node string) []*corev1.Pod
	writer controller.Writer[*corev1.Pod]

	mu    sync.Mutex
	first map[string]map[corev1.Taint]time.Time // per node: when a taint without a time was first seen
}

func build(c controller.Context) (controller.Runner, error) {
	all := informers.For[*corev1.Pod](c.Informers)
	r := &reconciler{
		Context: c, nodes: informers.For[*corev1.Node](c.Informers), podsOn: informers.PodsByNode(c.Informers),
		first: map[string]map[corev1.Taint]time.Time{},
	}
	r.Loop = c.NewLoop("taint_eviction", 0, r.reconcile, r.nodes, all)
	r.writer = controller.NewWriter(c, r.Loop, all)
	loop.WakeOn(r.Loop, r.nodes, loop.Self)
	all.OnChange(func(_, p *corev1.Pod) {
		if p == nil || p.Spec.NodeName == "" || !pods.Active(p) {
			return
		}
		if n, ok := r.nodes.Get("", p.Spec.NodeName); ok && len(noExecute(n)) > 0 {
			r.Wake(loop.KeyOf(n))
		}
	})
	return r, nil
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	n, ok := r.nodes.Get("", key.Name)
	if !ok {
		n = &corev1.Node{}
	}
	taints := noExecute(n)
	since := r.since(key.Name, taints, time.Now())
	if len(taints) == 0 {
		return loop.Done, nil
	}
	var evict []*corev1.Pod
	next := forever
	for _, p := range r.podsOn(n.Name) {
		if !pods.Active(p) {
			continue
		}
		if left := stay(taints, p.Spec.Tolerations, since, time.Now()); left > 0 {
			next = min(next, left)
		} else {
			evict = append(evict, p)
		}
	}
	err := loop.Parallel(ctx, len(evict), func(ctx context.Context, i int) error { return r.evict(ctx, key, evict[i]) })
	if err != nil || next == forever {
		return loop.Done, err
	}
	return loop.After(next), nil
}

// since returns a function that returns when a taint was added. It records when it first saw
// taints without a time, and drops taints that no longer exist.
func (r *reconciler) since(node string, taints []corev1.Taint, now time.Time) func(corev1.Taint) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[corev1.Taint]time.Time{}
	for _, t := range taints {
		switch at, known := r.first[node][t]; {
		case t.TimeAdded != nil:
		case known:
			seen[t] = at
		default:
			seen[t] = now
		}
	}
	delete(r.first, node)
	if len(seen) > 0 {
		r.first[node] = seen
	}
	return func(t corev1.Taint) time.Time {
		if t.TimeAdded != nil {
			return t.TimeAdded.Time
		}
		return seen[t]
	}
}

// evict sets the condition DisruptionTarget on the pod and deletes it.
func (r *reconciler) evict(ctx context.Context, key loop.Key, p *corev1.Pod) error {
	r.Events.Eventf(p, corev1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion Pod %s/%s", p.Namespace, p.Name)
	if !conditions.IsTrue(p.Status.Conditions, corev1.DisruptionTarget) {
		_, err := r.writer.Patch(ctx, key, p, types.StrategicMergePatchType, map[string]any{"status": map[string]any{
			"conditions": pods.DisruptionTarget("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", time.Now()),
		}}, "status")
		if err != nil {
			return err
		}
	}
	_, err := r.writer.Delete(ctx, key, p, metav1.DeleteOptions{})
	return err
}
