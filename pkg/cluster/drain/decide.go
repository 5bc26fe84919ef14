package drain

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"podium/pkg/cluster/poll"
)

// Sorted groups the pods of a node by what a drain does with them.
type Sorted struct {
	Go   []*corev1.Pod // evicted; a controller replaces them on another node
	Lost []*corev1.Pod // evicted, but without a controller that would replace them
	Stay []*corev1.Pod // not evicted: no other node accepts them, or they belong to this one
}

// Sort groups the pods of node. nodes are all nodes of the cluster. Finished
// pods are in no group.
func Sort(node string, pods []*corev1.Pod, nodes []*corev1.Node) (s Sorted) {
	for _, p := range pods {
		owner := metav1.GetControllerOf(p)
		switch {
		case p.Spec.NodeName != node || ended(p):
		case owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "Node"):
			s.Stay = append(s.Stay, p)
		case !slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.Name != node && takes(n, p) }):
			s.Stay = append(s.Stay, p)
		case owner == nil:
			s.Lost = append(s.Lost, p)
		default:
			s.Go = append(s.Go, p)
		}
	}
	return s
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// takes reports whether a pod could be scheduled to a node, by readiness, node
// selector and taints. It does not check resources.
func takes(n *corev1.Node, p *corev1.Pod) bool {
	if n.Spec.Unschedulable || poll.NodeReady(n) != nil {
		return false
	}
	for key, value := range p.Spec.NodeSelector {
		if n.Labels[key] != value {
			return false
		}
	}
	for i := range n.Spec.Taints {
		taint := &n.Spec.Taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if !slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Logger{}, taint, false) }) {
			return false
		}
	}
	return true
}

// needed returns a Service that the eviction of a pod would leave without a
// ready endpoint; "" if there is none. leaving are the pods that are being
// evicted. A Service whose only endpoint is the pod does not count: its
// replacement starts after the eviction.
func needed(p *corev1.Pod, leaving map[types.UID]bool, all []*discoveryv1.EndpointSlice) string {
	type count struct{ ours, ready, total int }
	services := map[string]*count{}
	for _, s := range all {
		name := s.Labels[discoveryv1.LabelServiceName]
		if name == "" || s.Namespace != p.Namespace {
			continue
		}
		c := services[name]
		if c == nil {
			c = &count{}
			services[name] = c
		}
		for _, e := range s.Endpoints {
			c.total++
			switch {
			case e.TargetRef != nil && e.TargetRef.UID == p.UID:
				c.ours++
			case e.TargetRef != nil && leaving[e.TargetRef.UID]:
			case e.Conditions.Ready == nil || *e.Conditions.Ready:
				c.ready++
			}
		}
	}
	for name, c := range services {
		if c.ours > 0 && c.total > c.ours && c.ready == 0 {
			return fmt.Sprintf("%s/%s", p.Namespace, name)
		}
	}
	return ""
}
