package podgc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/client/informer"
	"podium/pkg/conditions"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/controller/pods"
)

const (
	period = 20 * time.Second // between two passes

	// quarantine is how long a node must be missing before its pods are deleted: it may be
	// about to register again.
	quarantine = 40 * time.Second
)

// Spec describes the pod garbage collector. keep is the number of terminated pods to keep; 0
// keeps all.
func Spec(keep int, m *Metrics) controller.Spec {
	return controller.Spec{
		Name: "pod-garbage-collector-controller", Account: "pod-garbage-collector", Workers: 1,
		New: func(c controller.Context) (controller.Runner, error) { return build(c, keep, m), nil },
	}
}

// reconciler has a single key: the cluster.
type reconciler struct {
	controller.Context
	*loop.Loop
	keep    int
	metrics *Metrics
	client  client.Resource[*corev1.Node]
	nodes   *informer.Informer[*corev1.Node]
	pods    *informer.Informer[*corev1.Pod]
	writer  controller.Writer[*corev1.Pod]
	missing map[string]time.Time // nodes that pods are bound to and that do not exist, since when
}

func build(c controller.Context, keep int, m *Metrics) *reconciler {
	r := &reconciler{
		Context: c, keep: keep, metrics: m, client: client.For[*corev1.Node](c.Client), missing: map[string]time.Time{},
		nodes: informers.For[*corev1.Node](c.Informers), pods: informers.For[*corev1.Pod](c.Informers),
	}
	r.Loop = c.NewLoop("pod_garbage_collector", 0, r.reconcile, r.pods, r.nodes)
	r.writer = controller.NewWriter(c, r.Loop, r.pods)
	r.Wake(loop.Key{Name: "cluster"})
	return r
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	p := decide(r.pods.List(), r.nodes.List(), r.keep)
	due, err := r.absent(ctx, p.Missing, time.Now())
	for _, node := range due {
		p.Delete = append(p.Delete, p.On[node]...)
	}
	err = errors.Join(err, loop.Parallel(ctx, len(p.Delete), func(ctx context.Context, i int) error {
		deleted, err := r.delete(ctx, key, p.Delete[i])
		r.metrics.done(p.Delete[i], deleted, err)
		return err
	}))
	if err != nil {
		return loop.Done, err
	}
	return loop.After(period), nil
}

// absent returns the nodes that have been missing for the quarantine and that do not exist in
// the API either.
func (r *reconciler) absent(ctx context.Context, missing []string, now time.Time) (due []string, err error) {
	since := map[string]time.Time{}
	for _, node := range missing {
		if at, known := r.missing[node]; known {
			since[node] = at
		} else {
			since[node] = now
		}
		if now.Sub(since[node]) < quarantine {
			continue
		}
		_, getErr := r.client.Get(ctx, node)
		switch {
		case apierrors.IsNotFound(getErr):
			due = append(due, node)
		case getErr != nil:
			err = errors.Join(err, fmt.Errorf("look for node %s: %w", node, getErr))
		default:
			delete(since, node)
		}
	}
	r.missing = since
	return due, err
}

// victim is a pod to delete.
type victim struct {
	pod     *corev1.Pod
	reason  string // in metrics
	message string // of the condition DisruptionTarget, if it has not terminated; "": no condition
}

type plan struct {
	Delete  []victim
	Missing []string            // nodes that pods are bound to and that do not exist
	On      map[string][]victim // the pods of each
}

// decide returns the pods to delete, and the missing nodes to check.
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
				p.Delete = append(p.Delete, victim{pod: pod, reason: unscheduled})
				continue
			}
		case node == nil:
			p.On[pod.Spec.NodeName] = append(p.On[pod.Spec.NodeName], victim{pod, orphaned, "PodGC: node no longer exists"})
			continue
		case pod.DeletionTimestamp != nil && outOfService(node):
			p.Delete = append(p.Delete, victim{pod: pod, reason: outOfUse})
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
			p.Delete = append(p.Delete, victim{pod: pod, reason: terminated})
		}
	}
	return p
}

// firstToGo orders terminated pods: evicted ones first, then the oldest.
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
	return !conditions.IsTrue(n.Status.Conditions, corev1.NodeReady) &&
		slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// delete deletes a pod without a grace period: no kubelet would end it. It first marks a pod
// that has not terminated as failed, so that its owner counts it correctly. It reports whether
// it deleted the pod.
func (r *reconciler) delete(ctx context.Context, key loop.Key, v victim) (bool, error) {
	p := v.pod
	if !pods.Terminal(p) {
		got, err := r.writer.Patch(ctx, key, p, types.StrategicMergePatchType, failedPatch(v, time.Now()), "status")
		if got == nil {
			return false, err
		}
	}
	deleted, err := r.writer.Delete(ctx, key, p, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if deleted {
		r.Log.Info("pod deleted", "namespace", p.Namespace, "pod", p.Name, "node", p.Spec.NodeName, "phase", p.Status.Phase)
	}
	return deleted, err
}

func failedPatch(v victim, now time.Time) map[string]any {
	status := map[string]any{"phase": corev1.PodFailed}
	if v.message != "" {
		status["conditions"] = pods.DisruptionTarget("DeletionByPodGC", v.message, now)
	}
	return map[string]any{"status": status}
}
