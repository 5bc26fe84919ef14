package nodelifecycle

import (
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/informer"
	"podium/pkg/conditions"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/controller/pods"
)

// Options configure the controller.
type Options struct {
	GracePeriod               time.Duration // time without a heartbeat after which a node is unreachable; default 40 s
	StartupGracePeriod        time.Duration // the same for a node without any heartbeat; default 1 min
	EvictionRate              float64       // nodes of a zone per second that get a NoExecute taint; default 0.1
	SecondaryEvictionRate     float64       // the same if most of a zone is unhealthy; default 0.01
	UnhealthyZoneThreshold    float64       // the fraction of a zone that is "most"; default 0.55
	LargeClusterSizeThreshold int           // smaller zones then get no taints; default 50
}

// Defaults returns upstream's options, with the grace period of upstream before 1.32.
func Defaults() Options {
	return Options{
		GracePeriod: 40 * time.Second, StartupGracePeriod: time.Minute,
		EvictionRate: 0.1, SecondaryEvictionRate: 0.01, UnhealthyZoneThreshold: 0.55, LargeClusterSizeThreshold: 50,
	}
}

// recheck is how often a node that is not ready is checked.
const recheck = 5 * time.Second

// minFresh is how long a healthy node may send no heartbeat: its kubelet renews its lease every
// 10 s.
const minFresh = 15 * time.Second

// fresh is the age up to which a node that is seen for the first time has just registered. A
// restart must not write an event for each of thousands of nodes.
const fresh = 5 * time.Minute

// Spec describes the node lifecycle controller.
func Spec(o Options, m *Metrics) controller.Spec {
	return controller.Spec{Name: "node-lifecycle-controller", Account: "node-controller", Workers: 8, New: func(c controller.Context) (controller.Runner, error) {
		return o.build(c, m), nil
	}}
}

type reconciler struct {
	controller.Context
	Options
	*loop.Loop
	nodes  *informer.Informer[*corev1.Node]
	leases *informer.Informer[*coordinationv1.Lease]
	podsOn func(node string) []*corev1.Pod
	writer controller.Writer[*corev1.Node]
	pods   controller.Writer[*corev1.Pod]
	health *health
	census censuses

	metrics *Metrics
}

func (o Options) build(c controller.Context, m *Metrics) *reconciler {
	pods := informers.For[*corev1.Pod](c.Informers)
	r := &reconciler{
		Context: c, Options: o, health: newHealth(), metrics: m,
		nodes: informers.For[*corev1.Node](c.Informers), leases: informers.NodeLeases(c.Informers), podsOn: informers.PodsByNode(c.Informers),
	}
	r.Loop = c.NewLoop("node_lifecycle_controller", 0, r.reconcile, r.nodes, r.leases, pods)
	r.writer, r.pods = controller.NewWriter(c, r.Loop, r.nodes), controller.NewWriter(c, r.Loop, pods)
	loop.WakeOn(r.Loop, r.nodes, loop.Self)
	loop.WakeOn(r.Loop, r.leases, loop.Named(func(l *coordinationv1.Lease) string { return l.Name }))
	r.nodes.OnChange(r.nodeChanged)
	return r
}

// nodeChanged tells which nodes come and go. Nodes that registered longer ago than fresh are
// those of a former process.
func (r *reconciler) nodeChanged(old, n *corev1.Node) {
	switch {
	case n == nil:
		r.Events.Eventf(old, corev1.EventTypeNormal, "RemovingNode", "Node %s event: Removing Node %s from Controller", old.Name, old.Name)
		return
	case old == nil && time.Since(n.CreationTimestamp.Time) < fresh:
		r.Events.Eventf(n, corev1.EventTypeNormal, "RegisteredNode", "Node %s event: Registered Node %s in Controller", n.Name, n.Name)
	}
	r.metrics.of(n) // makes it appear, with 0
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	n, ok := r.nodes.Get("", key.Name)
	if !ok {
		r.health.forget(key.Name)
		return loop.Done, nil
	}
	lease, _ := r.leases.Get(corev1.NamespaceNodeLease, n.Name)
	grace := r.Options.GracePeriod
	if readiness(n) == "" {
		grace = r.Options.StartupGracePeriod
	}
	left := grace - r.health.observe(n, lease, time.Now())
	if left <= 0 {
		var err error
		if n, err = r.markUnknown(ctx, key, n); err != nil || n == nil {
			return loop.Done, err
		}
	}
	if readiness(n) == corev1.ConditionUnknown {
		if err := r.markPods(ctx, key, n); err != nil {
			return loop.Done, err
		}
	}
	wait, err := r.taint(ctx, key, n, left <= 0)
	switch {
	case err != nil:
		return loop.Done, err
	case wait > 0:
		return loop.After(min(wait, recheck)), nil
	case left <= 0 || readiness(n) != corev1.ConditionTrue:
		return loop.After(recheck), nil
	}
	return loop.After(left + time.Millisecond), nil
}

// markUnknown sets the conditions of a node that has stopped reporting. It returns the updated
// node, nil if it no longer exists.
func (r *reconciler) markUnknown(ctx context.Context, key loop.Key, n *corev1.Node) (*corev1.Node, error) {
	next := silenced(n, time.Now())
	if next == n {
		return n, nil
	}
	got, err := r.writer.UpdateStatus(ctx, key, next)
	if got != nil && conditions.Status(n.Status.Conditions, corev1.NodeReady) != corev1.ConditionUnknown {
		r.Log.Warn("node stopped reporting", "node", n.Name)
		r.Events.Eventf(n, corev1.EventTypeNormal, "NodeNotReady", "Node %s status is now: %s", n.Name, "NodeNotReady")
	}
	return got, err
}

// markPods sets the pods of an unreachable node to not ready, which removes them from their
// services. When the node recovers, its kubelet reports their state.
func (r *reconciler) markPods(ctx context.Context, key loop.Key, n *corev1.Node) error {
	all := slices.DeleteFunc(r.podsOn(n.Name), func(p *corev1.Pod) bool { return !pods.Ready(p) })
	return loop.Parallel(ctx, len(all), func(ctx context.Context, i int) error {
		got, err := r.pods.Patch(ctx, key, all[i], types.StrategicMergePatchType, map[string]any{
			"status": map[string]any{"conditions": []map[string]any{{
				"type": corev1.PodReady, "status": corev1.ConditionFalse, "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
			}}},
		}, "status")
		if got != nil {
			r.Events.Event(all[i], corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
		}
		return err
	})
}

// taint adds and removes the controller's taints. wait is the time until the eviction rate may
// allow a NoExecute taint that is still missing.
func (r *reconciler) taint(ctx context.Context, key loop.Key, n *corev1.Node, silent bool) (wait time.Duration, err error) {
	evict, wait := r.mayEvict(n, silent)
	taints, changed := retaint(n.Spec.Taints, wanted(n, evict), time.Now())
	if !changed {
		return wait, nil
	}
	if taints == nil {
		taints = []corev1.Taint{}
	}
	got, err := r.writer.Patch(ctx, key, n, types.MergePatchType, map[string]any{
		"metadata": map[string]any{"resourceVersion": n.ResourceVersion},
		"spec":     map[string]any{"taints": taints},
	})
	if got == nil {
		return 0, err
	}
	if evict && !evicted(n) {
		r.metrics.of(n).Inc()
	}
	return wait, nil
}

// mayEvict reports whether a node that is not ready may have a NoExecute taint. It may not
// while no node of the cluster is ready. A new taint is limited by the zone's rate and
// requires that the node reports itself as not ready or has been silent for long.
func (r *reconciler) mayEvict(n *corev1.Node, silent bool) (ok bool, wait time.Duration) {
	now := time.Now()
	if len(evicting(n)) == 0 {
		if readiness(n) == corev1.ConditionTrue {
			r.health.setDisrupted(false, now)
		}
		return false, 0
	}
	zone, anyReady := r.census.without(n, r.countReady, now)
	recovered := r.health.setDisrupted(!anyReady, now)
	switch {
	case !anyReady:
		return false, recheck
	case evicted(n):
		return true, 0
	case recovered || !silent && readiness(n) == corev1.ConditionUnknown:
		return false, recheck
	}
	return r.health.mayEvict(zoneOf(n), zone.rate(r.Options), now)
}
