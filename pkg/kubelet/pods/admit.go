package pods

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"podium/pkg/kubelet/resources"
)

// admit lets the pod in, or refuses it for good. A pod that is already here is
// not asked again, so that a restarted kubelet keeps what runs.
func (w *worker) admit(ctx context.Context) {
	if w.isRemoved || w.pod.DeletionTimestamp != nil || finalPhase(w.pod.Status.Phase) {
		w.enter(terminating)
		return
	}
	if w.observed.empty() && w.pod.Status.StartTime == nil {
		r := w.m.cfg.Host.refuse(w.pod)
		if r == nil {
			r = w.m.refusePIDs(w.pod)
		}
		if r == nil {
			var err error
			if r, err = w.m.refuseUserNS(ctx, w.pod); err != nil {
				w.log.Warn("container runtime does not say what it supports", "error", err)
				w.again(time.Now().Add(time.Second))
				return
			}
		}
		if r != nil {
			w.reject(r)
			return
		}
	}
	refusal, known := w.m.admit(w.pod, !w.observed.empty())
	if !known {
		w.again(time.Now().Add(100 * time.Millisecond)) // until the node is registered
		return
	}
	if refusal == nil {
		if wantsSELinux(w.pod) && !w.m.cfg.Host.SELinux && w.observed.empty() {
			w.event(corev1.EventTypeWarning, "SELinuxNotEnabled", "SELinux is not enabled on the host: seLinuxOptions have no effect")
		}
		w.enter(starting)
		return
	}
	w.reject(refusal)
}

// reject ends the pod before it has begun.
func (w *worker) reject(refusal *refusal) {
	w.verdict = &verdict{phase: corev1.PodFailed, reason: refusal.reason, message: "Pod was rejected: " + refusal.message, refused: true}
	w.log.Warn("pod refused", "reason", refusal.reason, "message", refusal.message)
	w.event(corev1.EventTypeWarning, refusal.reason, refusal.message)
	w.enter(terminating)
}

// refusal says why a node does not take a pod. The texts are upstream's.
type refusal struct{ reason, message string }

// admit decides whether the node takes the pod beside those it has.
func admit(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node) *refusal {
	if os := pod.Spec.OS; os != nil && string(os.Name) != runtime.GOOS {
		return &refusal{"PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"}
	}
	for i := range pod.Spec.InitContainers {
		if p := pod.Spec.InitContainers[i].RestartPolicy; p != nil {
			return &refusal{"InitContainerRestartPolicyForbidden", fmt.Sprintf("Init container %q may not have a non-default restartPolicy", pod.Spec.InitContainers[i].Name)}
		}
	}
	if r := fits(pod, others, node); r != nil {
		return r
	}
	switch {
	case !selects(pod, node):
		return &refusal{"NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"}
	case pod.Spec.NodeName != "" && pod.Spec.NodeName != node.Name:
		return &refusal{"NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name"}
	case portsTaken(pod, others):
		return &refusal{"NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"}
	case !tolerates(pod, node):
		return &refusal{"TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"}
	}
	return nil
}

// fits compares requests with what the node has left.
func fits(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node) *refusal {
	room := node.Status.Allocatable
	if pods := room.Pods().Value(); int64(len(others)+1) > pods {
		return insufficient(corev1.ResourcePods, 1, int64(len(others)), pods)
	}
	used := corev1.ResourceList{}
	for _, o := range others {
		for name, q := range resources.Requests(o) {
			sum := used[name]
			sum.Add(q)
			used[name] = sum
		}
	}
	value := func(list corev1.ResourceList, name corev1.ResourceName) int64 {
		q := list[name]
		if name == corev1.ResourceCPU {
			return q.MilliValue()
		}
		return q.Value()
	}
	wants := resources.Requests(pod)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		want, have := value(wants, name), value(room, name)
		if _, counted := room[name]; counted && want > 0 && want > have-value(used, name) {
			return insufficient(name, want, value(used, name), have)
		}
	}
	for name := range wants {
		if _, ordinary := room[name]; !ordinary || name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage {
			continue
		}
		if want := value(wants, name); want > value(room, name)-value(used, name) {
			return insufficient(name, want, value(used, name), value(room, name))
		}
	}
	return nil
}

func insufficient(name corev1.ResourceName, want, used, have int64) *refusal {
	return &refusal{"OutOf" + string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, want, used, have)}
}

// selects says that the node has the labels the pod asks for.
func selects(pod *corev1.Pod, node *corev1.Node) bool {
	for k, v := range pod.Spec.NodeSelector {
		if have, ok := node.Labels[k]; !ok || have != v {
			return false
		}
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(term.MatchExpressions)+len(term.MatchFields) > 0 &&
			matchAll(term.MatchExpressions, node.Labels) &&
			matchAll(term.MatchFields, map[string]string{metav1.ObjectNameField: node.Name}) {
			return true
		}
	}
	return false
}

func matchAll(requirements []corev1.NodeSelectorRequirement, set map[string]string) bool {
	operators := map[corev1.NodeSelectorOperator]selection.Operator{
		corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
		corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
		corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
	}
	for _, r := range requirements {
		req, err := labels.NewRequirement(r.Key, operators[r.Operator], r.Values)
		if err != nil || !req.Matches(labels.Set(set)) {
			return false
		}
	}
	return true
}

// tolerates looks at NoExecute taints only: the others are the scheduler's.
func tolerates(pod *corev1.Pod, node *corev1.Node) bool {
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return toleratesTaint(&t, taint) }) {
			return false
		}
	}
	return true
}

func toleratesTaint(t *corev1.Toleration, taint *corev1.Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
		return false
	}
	switch t.Operator {
	case "", corev1.TolerationOpEqual:
		return t.Key != "" && t.Value == taint.Value
	case corev1.TolerationOpExists:
		return true
	}
	return false
}

// hostPort is a port of the node that a pod takes.
type hostPort struct {
	ip       string
	protocol corev1.Protocol
	port     int32
}

func hostPorts(pod *corev1.Pod) []hostPort {
	var out []hostPort
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			port := p.HostPort
			if pod.Spec.HostNetwork && port == 0 {
				port = p.ContainerPort
			}
			if port > 0 {
				out = append(out, hostPort{p.HostIP, p.Protocol, port})
			}
		}
	}
	return out
}

func portsTaken(pod *corev1.Pod, others []*corev1.Pod) bool {
	wants := hostPorts(pod)
	if len(wants) == 0 {
		return false
	}
	any := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	for _, o := range others {
		for _, has := range hostPorts(o) {
			for _, want := range wants {
				if has.port == want.port && has.protocol == want.protocol && (has.ip == want.ip || any(has.ip) || any(want.ip)) {
					return true
				}
			}
		}
	}
	return false
}
