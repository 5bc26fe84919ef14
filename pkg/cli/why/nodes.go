package why

import (
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func nodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// brokenNode explains nodes that are not ready, or short of a resource.
func brokenNode(f *Facts, n *corev1.Node) (out []Finding) {
	known := false
	for _, c := range n.Status.Conditions {
		shown := fmt.Sprintf("condition %s=%s (%s) for %s: %s", c.Type, c.Status, c.Reason, f.age(c.LastTransitionTime.Time), c.Message)
		switch {
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown:
			out = append(out, found(root, "the kubelet of node %s does not report: the machine, its kubelet or its network is down", n.Name).by(shown, heartbeat(f, n)).
				fix("on the machine %s: systemctl status kubelet; journalctl -u kubelet", n.Name))
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse:
			out = append(out, found(root, "the kubelet of node %s says that it is not ready: %s", n.Name, oneLine(c.Message)).by(shown).
				fix("on the machine %s: journalctl -u kubelet -u containerd", n.Name))
		case c.Type != corev1.NodeReady && c.Status == corev1.ConditionTrue:
			out = append(out, found(likely, "node %s is under %s", n.Name, pressure(c.Type)).by(shown).
				fix("free the resource, or move pods: podium drain %s --ignore-daemonsets", n.Name))
		}
		known = known || c.Type == corev1.NodeReady
	}
	if !known {
		out = append(out, found(root, "the kubelet of node %s has never reported", n.Name).by("status.conditions has no Ready", heartbeat(f, n)).fix("start the kubelet on the machine %s, or: podium delete node %s", n.Name, n.Name))
	}
	return out
}

func pressure(t corev1.NodeConditionType) string {
	switch t {
	case corev1.NodeMemoryPressure:
		return "memory pressure"
	case corev1.NodeDiskPressure:
		return "disk pressure"
	case corev1.NodePIDPressure:
		return "pressure of process ids"
	}
	return string(t)
}

// heartbeat returns how old the node's lease is.
func heartbeat(f *Facts, n *corev1.Node) string {
	lease := one[coordinationv1.Lease](f, "Lease", corev1.NamespaceNodeLease, n.Name)
	switch {
	case lease == nil && f.missing("leases.coordination.k8s.io", corev1.NamespaceNodeLease, n.Name):
		return "lease " + corev1.NamespaceNodeLease + "/" + n.Name + " does not exist"
	case lease == nil || lease.Spec.RenewTime == nil:
		return ""
	}
	return fmt.Sprintf("lease %s/%s was renewed %s ago", corev1.NamespaceNodeLease, n.Name, f.age(lease.Spec.RenewTime.Time))
}

// cordonedNode explains nodes that take no pods, and what keeps pods on them.
func cordonedNode(f *Facts, n *corev1.Node) (out []Finding) {
	if !n.Spec.Unschedulable {
		return nil
	}
	weight := hint
	if nameOf(f.Subject) == "node/"+n.Name {
		weight = effect
	}
	out = append(out, found(weight, "node %s is cordoned: it takes no new pods", n.Name).by("spec.unschedulable").fix("podium uncordon %s", n.Name))
	for _, b := range each[policyv1.PodDisruptionBudget](f, "PodDisruptionBudget") {
		if b.Status.DisruptionsAllowed > 0 {
			continue
		}
		if held := held(f, b, n.Name); len(held) > 0 {
			out = append(out, found(likely, "the PodDisruptionBudget %s/%s allows no eviction: a drain cannot move %s", b.Namespace, b.Name, strings.Join(held, ", ")).
				by(fmt.Sprintf("status.disruptionsAllowed: 0, %d of %d pods are healthy, %d must be", b.Status.CurrentHealthy, b.Status.ExpectedPods, b.Status.DesiredHealthy)).
				fix("podium why pdb %s -n %s", b.Name, b.Namespace))
		}
	}
	return out
}

// held returns the node's pods that a budget selects.
func held(f *Facts, b *policyv1.PodDisruptionBudget, node string) (out []string) {
	sel, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return nil
	}
	for _, p := range each[corev1.Pod](f, "Pod") {
		if p.Namespace == b.Namespace && p.Spec.NodeName == node && sel.Matches(labels.Set(p.Labels)) {
			out = append(out, "pod/"+p.Name)
		}
	}
	return out
}
