package nodelifecycle

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
	"podium/pkg/controllers/pods"
)

// Options are the patience of the controller.
type Options struct {
	GracePeriod               time.Duration // silence after which a node is unreachable; default 40 s
	StartupGracePeriod        time.Duration // the same for one that was never heard; default 1 min
	EvictionRate              float64       // nodes of a zone per second that get a NoExecute taint; default 0.1
	SecondaryEvictionRate     float64       // the same when most of a zone is unhealthy; default 0.01
	UnhealthyZoneThreshold    float64       // the part of a zone that is "most"; default 0.55
	LargeClusterSizeThreshold int           // smaller zones get no taints then; default 50
}

// Defaults are upstream's (but for the grace period, which was theirs until 1.31).
func Defaults() Options {
	return Options{
		GracePeriod: 40 * time.Second, StartupGracePeriod: time.Minute,
		EvictionRate: 0.1, SecondaryEvictionRate: 0.01, UnhealthyZoneThreshold: 0.55, LargeClusterSizeThreshold: 50,
	}
}

// recheck is how often a node that is not ready is looked at.
const recheck = 5 * time.Second

// minFresh is how long a node that is well may be silent: its kubelet renews
// its lease every 10 s.
const minFresh = 15 * time.Second

// Config is what the controller needs.
type Config struct {
	kit.Kit
	Options Options
}

// Controller is the node lifecycle controller.
type Controller struct {
	cfg    Config
	nodes  client.Resource[*corev1.Node]
	pods   client.Resource[*corev1.Pod]
	health *health
	loop   *loop.Loop
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg Config) *Controller {
	c := &Controller{cfg: cfg, nodes: client.For[*corev1.Node](cfg.Client), pods: client.For[*corev1.Pod](cfg.Client), health: newHealth()}
	v := cfg.Views
	c.loop = cfg.Loop("node_lifecycle_controller", 0, c.reconcile, v.Nodes, v.NodeLeases, v.Pods)
	loop.WakeOn(c.loop, v.Nodes, loop.Self)
	loop.WakeOn(c.loop, v.NodeLeases, loop.Named(func(l *coordinationv1.Lease) string { return l.Name }))
	return c
}

// Run watches the nodes until ctx ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	n, ok := c.cfg.Views.Nodes.Get("", key.Name)
	if !ok {
		c.health.forget(key.Name)
		return loop.Done, nil
	}
	lease, _ := c.cfg.Views.NodeLeases.Get(corev1.NamespaceNodeLease, n.Name)
	grace := c.cfg.Options.GracePeriod
	if readiness(n) == "" {
		grace = c.cfg.Options.StartupGracePeriod
	}
	left := grace - c.health.observe(n, lease, time.Now())
	if left <= 0 {
		var err error
		if n, err = c.silence(ctx, n); err != nil || n == nil {
			return loop.Done, err
		}
	}
	if readiness(n) == corev1.ConditionUnknown {
		if err := c.markPods(ctx, n); err != nil {
			return loop.Done, err
		}
	}
	wait, err := c.taint(ctx, n, left <= 0)
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

// silence notes in the node's conditions that it is not heard any more.
func (c *Controller) silence(ctx context.Context, n *corev1.Node) (*corev1.Node, error) {
	next := silenced(n, time.Now())
	if next == n {
		return n, nil
	}
	got, err := c.nodes.UpdateStatus(ctx, next)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("write status: %w", err)
	}
	c.loop.Wrote(loop.KeyOf(n), c.cfg.Views.Nodes, got.ResourceVersion)
	if readiness(n) != corev1.ConditionUnknown {
		c.cfg.Log.Warn("node is silent", "node", n.Name)
		c.cfg.Events.Eventf(n, corev1.EventTypeNormal, "NodeNotReady", "Node %s status is now: %s", n.Name, "NodeNotReady")
	}
	return got, nil
}

// markPods takes the pods of an unreachable node out of their services. When
// the node is back its kubelet says what they are.
func (c *Controller) markPods(ctx context.Context, n *corev1.Node) error {
	all := c.cfg.Views.PodsOn(n.Name)
	return loop.Parallel(ctx, len(all), func(ctx context.Context, i int) error {
		p := all[i]
		if !pods.Ready(p) {
			return nil
		}
		patch, err := notReadyPatch(p, time.Now())
		if err != nil {
			return err
		}
		_, err = c.pods.In(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, "status")
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // gone, or replaced by a namesake
		}
		if err != nil {
			return fmt.Errorf("mark pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		c.cfg.Events.Event(p, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
		return nil
	})
}

func notReadyPatch(p *corev1.Pod, now time.Time) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID},
		"status": map[string]any{"conditions": []map[string]any{{
			"type": corev1.PodReady, "status": corev1.ConditionFalse, "lastTransitionTime": now.UTC().Format(time.RFC3339),
		}}},
	})
}

// taint sets and removes our taints. wait is when a NoExecute taint that the
// rate does not allow yet may come.
func (c *Controller) taint(ctx context.Context, n *corev1.Node, silent bool) (wait time.Duration, err error) {
	evict, wait := c.mayEvict(n, silent)
	taints, changed := retaint(n.Spec.Taints, wanted(n, evict), time.Now())
	if !changed {
		return wait, nil
	}
	if taints == nil {
		taints = []corev1.Taint{}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": n.UID, "resourceVersion": n.ResourceVersion},
		"spec":     map[string]any{"taints": taints},
	})
	if err != nil {
		return 0, err
	}
	got, err := c.nodes.Patch(ctx, n.Name, types.MergePatchType, patch)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("write taints: %w", err)
	}
	c.loop.Wrote(loop.KeyOf(n), c.cfg.Views.Nodes, got.ResourceVersion)
	return wait, nil
}

// mayEvict says whether a node that is not ready may have a NoExecute taint:
// not while no node at all is ready, and a new one only at its zone's rate and
// only if the node itself says that it is not ready or has been silent for long.
func (c *Controller) mayEvict(n *corev1.Node, silent bool) (ok bool, wait time.Duration) {
	now := time.Now()
	if len(evicting(n)) == 0 {
		if readiness(n) == corev1.ConditionTrue {
			c.health.judge(false, now)
		}
		return false, 0
	}
	zone, anyReady := c.census(n, now)
	back := c.health.judge(!anyReady, now)
	switch {
	case !anyReady:
		return false, recheck
	case slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return ours(t) && t.Effect == corev1.TaintEffectNoExecute }):
		return true, 0
	case back || !silent && readiness(n) == corev1.ConditionUnknown:
		return false, recheck
	}
	return c.health.mayEvict(zoneOf(n), zone.rate(c.cfg.Options), now)
}

// census counts the nodes of n's zone, n as not ready, and looks for a ready
// one anywhere. Ready is who was heard of late: in an outage of everything some
// node is the first whose grace is over, and the others are about to follow.
func (c *Controller) census(n *corev1.Node, now time.Time) (zone census, anyReady bool) {
	fresh := max(c.cfg.Options.GracePeriod/2, minFresh)
	for _, other := range c.cfg.Views.Nodes.List() {
		ready := other.Name != n.Name && readiness(other) == corev1.ConditionTrue && c.health.silence(other.Name, now) < fresh
		anyReady = anyReady || ready
		switch {
		case zoneOf(other) != zoneOf(n):
		case ready:
			zone.ready++
		default:
			zone.unready++
		}
	}
	return zone, anyReady
}
