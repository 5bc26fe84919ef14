package simulation

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podium/pkg/client"
)

const (
	quotaNamespace = "limited"
	quotaPods      = 6
	quotaReplicas  = 4
)

// limited creates more pods at once than a quota admits, and then as many as it does.
func limited(ctx context.Context, w *world) {
	w.journal.onPod(w.quotaPods)
	create(ctx, w, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: quotaNamespace}})
	create(ctx, w, settings(quotaNamespace))
	create(ctx, w, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: quotaNamespace, Name: "pods"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(quotaPods, resource.DecimalSI)}},
	})
	w.await(ctx, "status of the quota", func() bool {
		q := list[*corev1.ResourceQuota](ctx, w)
		return len(q) == 1 && q[0].Status.Hard.Pods().Value() == quotaPods
	})
	create(ctx, w, deployment(quotaNamespace, "web", "web:1", quotaReplicas))
	for round := range 3 {
		w.someTime(ctx, fmt.Sprint("quota ", round), 10*time.Second)
		w.crowd(ctx, round)
		for i := range 2 * quotaPods {
			remove[*corev1.Pod](ctx, w, quotaNamespace, crowdName(round, i), metav1.DeletePropagationBackground)
		}
	}
	for i := range quotaPods - quotaReplicas {
		p := crowdPod(9, i)
		create(ctx, w, p)
	}
}

func crowdName(round, i int) string { return fmt.Sprintf("extra-%d-%d", round, i) }

func crowdPod(round, i int) *corev1.Pod {
	t := template("extra", "extra:1")
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: quotaNamespace, Name: crowdName(round, i), Labels: t.Labels}, Spec: t.Spec}
}

// crowd creates twice as many pods as the quota admits, all at once, and waits for the answers.
func (w *world) crowd(ctx context.Context, round int) {
	var all sync.WaitGroup
	for i := range 2 * quotaPods {
		all.Go(func() {
			w.insist(ctx, "create or be refused", func() error {
				_, err := client.For[*corev1.Pod](w.user).Create(ctx, crowdPod(round, i))
				if apierrors.IsAlreadyExists(err) || apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota") {
					return nil
				}
				return err
			})
		})
	}
	all.Wait()
}

// quotaPods is a rule: there are never more pods than the quota admits.
func (w *world) quotaPods(_, p *corev1.Pod) {
	if p == nil || p.Namespace != quotaNamespace {
		return
	}
	n := 0
	for _, other := range w.journal.pods {
		if other.Namespace == quotaNamespace && alive(other) {
			n++
		}
	}
	if n > quotaPods {
		w.problem("%d pods in a namespace with a quota of %d", n, quotaPods)
	}
}

const (
	guardedApp       = "guarded"
	guardedReplicas  = 4
	guardedAvailable = 3
)

// drain drains two nodes that run pods of a PodDisruptionBudget, one after the other.
func drain(ctx context.Context, w *world) {
	w.journal.onPod(w.guardedPods())
	create(ctx, w, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: guardedApp},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(guardedAvailable)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": guardedApp}},
		},
	})
	create(ctx, w, deployment("default", guardedApp, "web:1", guardedReplicas))
	w.await(ctx, "pods of the budget", func() bool { return w.ran(ctx, guardedApp) == guardedReplicas })
	for range 2 {
		var node string
		w.await(ctx, "a pod to evict", func() bool {
			for _, p := range list[*corev1.Pod](ctx, w) {
				if p.Labels["app"] == guardedApp && alive(p) && p.Spec.NodeName != "" {
					node = p.Spec.NodeName
				}
			}
			return node != ""
		})
		w.drainNode(ctx, node)
	}
}

// drainNode cordons a node, evicts the pods of the budget from it, and uncordons it.
func (w *world) drainNode(ctx context.Context, name string) {
	w.plan.note("drain %s", name)
	edit(ctx, w, "", name, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	w.await(ctx, "the eviction of all pods", func() bool {
		left := 0
		for _, p := range list[*corev1.Pod](ctx, w) {
			if p.Labels["app"] != guardedApp || p.Spec.NodeName != name {
				continue
			}
			left++
			// The budget may refuse the eviction, and a server may fail: both are tried again.
			_ = client.For[*corev1.Pod](w.user).In(p.Namespace).Post(ctx, p.Name, "eviction",
				&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}, nil)
		}
		return left == 0
	})
	edit(ctx, w, "", name, func(n *corev1.Node) { n.Spec.Unschedulable = false })
}

// guardedPods returns a rule: evictions leave minAvailable pods that have become ready. That the
// kubelet of one of these is down does not matter: no budget protects from it.
func (w *world) guardedPods() func(old, new *corev1.Pod) {
	beenReady, reached := map[types.UID]bool{}, false
	return func(old, p *corev1.Pod) {
		if p == nil || p.Labels["app"] != guardedApp {
			return
		}
		if ready(p) {
			beenReady[p.UID] = true
		}
		n := 0
		for _, other := range w.journal.pods {
			if beenReady[other.UID] && alive(other) {
				n++
			}
		}
		reached = reached || n == guardedReplicas
		if evicted := old != nil && alive(old) && !alive(p); evicted && reached && n < guardedAvailable {
			w.problem("%d of %d pods are available after the eviction of %s", n, guardedAvailable, p.Name)
		}
	}
}

const crampedApp = "cramped"

// preemption fills a node with pods of low priority, and then wants room for one of a high one.
func preemption(ctx context.Context, w *world) {
	w.journal.onPod(w.victims())
	for name, value := range map[string]int32{"low": -10, "high": 1000} {
		create(ctx, w, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value})
	}
	for i := range 3 {
		create(ctx, w, cramped(fmt.Sprint("cramped-", i), "low"))
	}
	w.await(ctx, "pods of low priority", func() bool { return w.ran(ctx, crampedApp) == 3 })
	create(ctx, w, cramped("cramped-high", "high"))
	w.await(ctx, "the pod of high priority", func() bool {
		for _, p := range list[*corev1.Pod](ctx, w) {
			if p.Name == "cramped-high" {
				return ready(p)
			}
		}
		return false
	})
}

// cramped returns a pod of which three fit on the first node.
func cramped(name, class string) *corev1.Pod {
	t := template(crampedApp, class+":1")
	t.Spec.PriorityClassName = class
	t.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-0"}
	t.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2400m")
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: t.Labels}, Spec: t.Spec}
}

// victims returns a rule: preemption evicts one pod of low priority, and no other pod.
func (w *world) victims() func(old, new *corev1.Pod) {
	victims := map[types.UID]string{}
	return func(old, p *corev1.Pod) {
		if p == nil || old == nil || !alive(old) || alive(p) || final(p) {
			return
		}
		preempted := false
		for _, c := range p.Status.Conditions {
			preempted = preempted || c.Type == corev1.DisruptionTarget && c.Reason == corev1.PodReasonPreemptionByScheduler
		}
		if !preempted && p.Labels["app"] != crampedApp {
			return
		}
		victims[p.UID] = p.Name
		if len(victims) > 1 || p.Spec.PriorityClassName != "low" {
			w.problem("preempted for one pod: %v", victims)
		}
	}
}
