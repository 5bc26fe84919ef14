package simulation

import (
	"context"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	w.nodes = append(w.nodes, n)
	w.start(ctx, w.kubelet(len(w.daemons), n))
	return n
}

// leave turns a machine off and deletes its Node.
func (w *world) leave(ctx context.Context, gone *node) {
	w.plan.note("%s: turned off", gone.name)
	w.daemons["kubelet on "+gone.name].retire()
	var rest []*node
	for _, n := range w.nodes {
		if n != gone {
			rest = append(rest, n)
		}
	}
	w.nodes = rest
	remove[*corev1.Node](ctx, w, "", gone.name, metav1.DeletePropagationBackground)
}

// agentPods returns a rule of the pods of the DaemonSet: never two live ones for a node, and a
// rollout disrupts one node at a time. A node is disrupted if it had a ready pod, and none of
// its live pods has been ready; that a kubelet is down does not matter.
func (w *world) agentPods(leaving string) func(old, new *corev1.Pod) {
	served, beenReady := map[string]bool{}, map[types.UID]bool{}
	return func(_, p *corev1.Pod) {
		if p == nil || p.Labels["app"] != agentApp {
			return
		}
		if ready(p) {
			beenReady[p.UID], served[p.Spec.NodeName] = true, true
		}
		pods, up := map[string]int{}, map[string]bool{}
		for _, other := range w.journal.pods {
			if other.Labels["app"] != agentApp || !alive(other) {
				continue
			}
			pods[destination(other)]++
			if beenReady[other.UID] {
				up[other.Spec.NodeName] = true
			}
		}
		if n := pods[destination(p)]; n > 1 {
			w.problem("%d pods of the DaemonSet for %s", n, destination(p))
		}
		var disrupted []string
		for node := range served {
			if !up[node] && node != leaving {
				disrupted = append(disrupted, node)
			}
		}
		if len(disrupted) > 1 {
			w.problem("the rollout disrupts %s", strings.Join(disrupted, ", "))
		}
	}
}

// destination returns the node that a pod of a DaemonSet is for.
func destination(p *corev1.Pod) string {
	if p.Spec.NodeName != "" {
		return p.Spec.NodeName
	}
	return p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
}
