package tainteviction

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
	"podium/pkg/controllers/pods"
)

// Controller is the taint eviction controller. Its keys are nodes.
type Controller struct {
	cfg  kit.Kit
	pods client.Resource[*corev1.Pod]
	loop *loop.Loop

	mu    sync.Mutex
	first map[string]map[corev1.Taint]time.Time // per node: taints that do not say since when, when first seen
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg kit.Kit) *Controller {
	c := &Controller{cfg: cfg, pods: client.For[*corev1.Pod](cfg.Client), first: map[string]map[corev1.Taint]time.Time{}}
	v := cfg.Views
	c.loop = cfg.Loop("taint_eviction", 0, c.reconcile, v.Nodes, v.Pods)
	loop.WakeOn(c.loop, v.Nodes, loop.Self)
	v.Pods.OnChange(func(_, p *corev1.Pod) {
		if p == nil || p.Spec.NodeName == "" || !pods.Active(p) {
			return
		}
		if n, ok := v.Nodes.Get("", p.Spec.NodeName); ok && len(noExecute(n)) > 0 {
			c.loop.Wake(loop.KeyOf(n))
		}
	})
	return c
}

// Run evicts until ctx ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	n, ok := c.cfg.Views.Nodes.Get("", key.Name)
	if !ok {
		n = &corev1.Node{}
	}
	taints := noExecute(n)
	since := c.since(key.Name, taints, time.Now())
	if len(taints) == 0 {
		return loop.Done, nil
	}
	var evict []*corev1.Pod
	next := forever
	for _, p := range c.cfg.Views.PodsOn(n.Name) {
		if !pods.Active(p) {
			continue
		}
		if left := stay(taints, p.Spec.Tolerations, since, time.Now()); left > 0 {
			next = min(next, left)
		} else {
			evict = append(evict, p)
		}
	}
	err := loop.Parallel(ctx, len(evict), func(ctx context.Context, i int) error { return c.evict(ctx, key, evict[i]) })
	if err != nil || next == forever {
		return loop.Done, err
	}
	return loop.After(next), nil
}

// since remembers when each taint was first seen, for those that do not say,
// and forgets taints that are gone.
func (c *Controller) since(node string, taints []corev1.Taint, now time.Time) func(corev1.Taint) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[corev1.Taint]time.Time{}
	for _, t := range taints {
		switch at, known := c.first[node][t]; {
		case t.TimeAdded != nil:
		case known:
			seen[t] = at
		default:
			seen[t] = now
		}
	}
	delete(c.first, node)
	if len(seen) > 0 {
		c.first[node] = seen
	}
	return func(t corev1.Taint) time.Time {
		if t.TimeAdded != nil {
			return t.TimeAdded.Time
		}
		return seen[t]
	}
}

// evict says in the pod's status why it goes, and deletes it.
func (c *Controller) evict(ctx context.Context, key loop.Key, p *corev1.Pod) error {
	c.cfg.Events.Eventf(p, corev1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion Pod %s/%s", p.Namespace, p.Name)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID},
		"status": map[string]any{"conditions": []map[string]any{{
			"type": corev1.DisruptionTarget, "status": corev1.ConditionTrue, "reason": "DeletionByTaintManager",
			"message":            "Taint manager: deleting due to NoExecute taint",
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		}}},
	})
	if err != nil {
		return err
	}
	if d := pods.Condition(p, corev1.DisruptionTarget); d == nil || d.Status != corev1.ConditionTrue {
		_, err = c.pods.In(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, "status")
	}
	if err == nil {
		err = c.pods.In(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("evict pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	c.loop.Wait(key, func() bool {
		now, ok := c.cfg.Views.Pods.Get(p.Namespace, p.Name)
		return !ok || now.UID != p.UID || now.DeletionTimestamp != nil
	})
	return nil
}
