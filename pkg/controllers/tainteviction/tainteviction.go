package tainteviction

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/controller/pods"
	"podium/pkg/wallclock"
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

	added wallclock.Anchors[string, taintKey] // when the taints of a node were added
	later scheduled
}

func build(c controller.Context) (controller.Runner, error) {
	all := informers.For[*corev1.Pod](c.Informers)
	r := &reconciler{
		Context: c, nodes: informers.For[*corev1.Node](c.Informers), podsOn: informers.PodsByNode(c.Informers),
		later: scheduled{pods: map[string]sets.Set[types.UID]{}},
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
		r.tellCancelled(n, r.later.replace(key.Name, nil, nil))
		return loop.Done, nil
	}
	var later, evict []*corev1.Pod
	next := forever
	for _, p := range r.podsOn(n.Name) {
		if !pods.Active(p) {
			continue
		}
		switch left := stay(taints, p.Spec.Tolerations, since, time.Now()); {
		case left == forever:
		case left > 0:
			later = append(later, p)
			next = min(next, left)
		default:
			evict = append(evict, p)
		}
	}
	r.tellCancelled(n, r.later.replace(key.Name, later, evict))
	err := loop.Parallel(ctx, len(evict), func(ctx context.Context, i int) error { return r.evict(ctx, key, evict[i]) })
	if err != nil || next == forever {
		return loop.Done, err
	}
	return loop.After(next), nil
}

// tellCancelled tells which pods of a node are not to be evicted any more.
func (r *reconciler) tellCancelled(n *corev1.Node, cancelled sets.Set[types.UID]) {
	if len(cancelled) == 0 {
		return
	}
	for _, p := range r.podsOn(n.Name) {
		if cancelled.Has(p.UID) && pods.Active(p) {
			r.Events.Eventf(p, corev1.EventTypeNormal, "TaintManagerEviction", "Cancelling deletion of Pod %s/%s", p.Namespace, p.Name)
		}
	}
}

// taintKey identifies a taint of a node. A taint that is added again has another time.
type taintKey struct {
	key, value string
	effect     corev1.TaintEffect
	added      int64 // Unix time; 0: not recorded
}

func keyOf(t corev1.Taint) taintKey {
	k := taintKey{key: t.Key, value: t.Value, effect: t.Effect}
	if t.TimeAdded != nil {
		k.added = t.TimeAdded.Unix()
	}
	return k
}

// since returns a function that returns when a taint was added.
func (r *reconciler) since(node string, taints []corev1.Taint, now time.Time) func(corev1.Taint) time.Time {
	recorded := map[taintKey]time.Time{}
	for _, t := range taints {
		var at time.Time
		if t.TimeAdded != nil {
			at = t.TimeAdded.Time
		}
		recorded[keyOf(t)] = at
	}
	added := r.added.Of(node, recorded, now)
	return func(t corev1.Taint) time.Time { return added[keyOf(t)] }
}

func (r *reconciler) evict(ctx context.Context, key loop.Key, p *corev1.Pod) error {
	r.Events.Eventf(p, corev1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion Pod %s/%s", p.Namespace, p.Name)
	_, err := controller.Evict(ctx, r.writer, key, p, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
	return err
}
