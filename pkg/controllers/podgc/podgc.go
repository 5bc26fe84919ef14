package podgc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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

const (
	period = 20 * time.Second // between two looks

	// quarantine is how long a node must be missing before its pods are
	// deleted: it may be about to register again.
	quarantine = 40 * time.Second
)

// Config is what the controller needs.
type Config struct {
	kit.Kit
	Keep int // how many ended pods are kept; 0 for all
}

// Controller is the pod garbage collector. It has one key: the cluster.
type Controller struct {
	cfg     Config
	nodes   client.Resource[*corev1.Node]
	pods    client.Resource[*corev1.Pod]
	loop    *loop.Loop
	missing map[string]time.Time // nodes that pods name and that do not exist, since when
}

// New builds the controller.
func New(cfg Config) *Controller {
	c := &Controller{
		cfg: cfg, nodes: client.For[*corev1.Node](cfg.Client), pods: client.For[*corev1.Pod](cfg.Client),
		missing: map[string]time.Time{},
	}
	c.loop = cfg.Loop("pod_garbage_collector", 0, c.reconcile, cfg.Views.Pods, cfg.Views.Nodes)
	return c
}

// Run collects until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	c.loop.Wake(loop.Key{Name: "cluster"})
	return c.loop.Run(ctx)
}

func (c *Controller) reconcile(ctx context.Context, _ loop.Key) (loop.Result, error) {
	p := decide(c.cfg.Views.Pods.List(), c.cfg.Views.Nodes.List(), c.cfg.Keep)
	due, err := c.absent(ctx, p.Missing, time.Now())
	for _, node := range due {
		p.Delete = append(p.Delete, p.On[node]...)
	}
	err = errors.Join(err, loop.Parallel(ctx, len(p.Delete), func(ctx context.Context, i int) error { return c.delete(ctx, p.Delete[i]) }))
	if err != nil {
		return loop.Done, err
	}
	return loop.After(period), nil
}

// absent says which of the missing nodes have been so for the quarantine; the
// API has the last word.
func (c *Controller) absent(ctx context.Context, missing []string, now time.Time) (due []string, err error) {
	since := map[string]time.Time{}
	for _, node := range missing {
		if at, known := c.missing[node]; known {
			since[node] = at
		} else {
			since[node] = now
		}
		if now.Sub(since[node]) < quarantine {
			continue
		}
		_, getErr := c.nodes.Get(ctx, node)
		switch {
		case apierrors.IsNotFound(getErr):
			due = append(due, node)
		case getErr != nil:
			err = errors.Join(err, fmt.Errorf("look for node %s: %w", node, getErr))
		default:
			delete(since, node)
		}
	}
	c.missing = since
	return due, err
}

// victim is a pod to delete and, if it did not end by itself, why.
type victim struct {
	pod    *corev1.Pod
	reason string // message of the condition DisruptionTarget, "" for none
}

type plan struct {
	Delete  []victim
	Missing []string            // nodes that pods are bound to and that do not exist
	On      map[string][]victim // the pods of each
}

// decide sorts out all pods.
func decide(all []*corev1.Pod, nodes []*corev1.Node, keepEnded int) plan {
	p := plan{On: map[string][]victim{}}
	byName := map[string]*corev1.Node{}
	for _, n := range nodes {
		byName[n.Name] = n
	}
	var ended []*corev1.Pod
	for _, pod := range all {
		node := byName[pod.Spec.NodeName]
		switch {
		case pod.Spec.NodeName == "":
			if pod.DeletionTimestamp != nil {
				p.Delete = append(p.Delete, victim{pod: pod})
				continue
			}
		case node == nil:
			p.On[pod.Spec.NodeName] = append(p.On[pod.Spec.NodeName], victim{pod, "PodGC: node no longer exists"})
			continue
		case pod.DeletionTimestamp != nil && outOfService(node):
			p.Delete = append(p.Delete, victim{pod: pod})
			continue
		}
		if pods.Terminal(pod) && pod.DeletionTimestamp == nil {
			ended = append(ended, pod)
		}
	}
	for node := range p.On {
		p.Missing = append(p.Missing, node)
	}
	slices.Sort(p.Missing)
	if surplus := len(ended) - keepEnded; keepEnded > 0 && surplus > 0 {
		slices.SortFunc(ended, firstToGo)
		for _, pod := range ended[:surplus] {
			p.Delete = append(p.Delete, victim{pod: pod})
		}
	}
	return p
}

// firstToGo orders ended pods: evicted ones first, then the oldest.
func firstToGo(a, b *corev1.Pod) int {
	rank := func(p *corev1.Pod) int {
		if p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted" {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func outOfService(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return false
		}
	}
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// delete removes a pod at once: no kubelet is left that would end it. One that
// had not ended is marked as failed first, so that its owner counts it right.
func (c *Controller) delete(ctx context.Context, v victim) error {
	p := v.pod
	if !pods.Terminal(p) {
		patch, err := failedPatch(v, time.Now())
		if err != nil {
			return err
		}
		_, err = c.pods.In(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, "status")
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("mark pod %s/%s as failed: %w", p.Namespace, p.Name, err)
		}
	}
	opts := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(p.UID))}
	err := c.pods.In(p.Namespace).Delete(ctx, p.Name, opts)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	c.cfg.Log.Info("deleted pod", "namespace", p.Namespace, "pod", p.Name, "node", p.Spec.NodeName, "phase", p.Status.Phase)
	return nil
}

func failedPatch(v victim, now time.Time) ([]byte, error) {
	status := map[string]any{"phase": corev1.PodFailed}
	if v.reason != "" {
		status["conditions"] = []map[string]any{{
			"type": corev1.DisruptionTarget, "status": corev1.ConditionTrue, "reason": "DeletionByPodGC", "message": v.reason,
			"lastTransitionTime": now.UTC().Format(time.RFC3339),
		}}
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": v.pod.UID}, "status": status})
}
