package nodelifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/conditions"
)

// Reasons and messages of the conditions of a node that does not report.
const (
	reasonSilent = "NodeStatusUnknown"
	textSilent   = "Kubelet stopped posting node status."
	reasonNever  = "NodeStatusNeverUpdated"
	textNever    = "Kubelet never posted node status."
)

// reported are the conditions that a kubelet reports. They become Unknown when it stops
// reporting.
var reported = []corev1.NodeConditionType{
	corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
}

// readiness returns the status of the condition Ready, "" if there is none.
func readiness(n *corev1.Node) corev1.ConditionStatus {
	return conditions.Status(n.Status.Conditions, corev1.NodeReady)
}

// silenced returns a copy of n with the conditions of a node that has stopped reporting, or n
// itself if it has them.
func silenced(n *corev1.Node, now time.Time) *corev1.Node {
	next := n.DeepCopy()
	changed := false
	at := metav1.Time{Time: now}
	for _, t := range reported {
		c := conditions.Find(next.Status.Conditions, t)
		switch {
		case c == nil:
			changed = true
			next.Status.Conditions = append(next.Status.Conditions, corev1.NodeCondition{
				Type: t, Status: corev1.ConditionUnknown, Reason: reasonNever, Message: textNever,
				LastHeartbeatTime: n.CreationTimestamp, LastTransitionTime: at,
			})
		case c.Status != corev1.ConditionUnknown:
			changed = true
			c.Status, c.Reason, c.Message, c.LastTransitionTime = corev1.ConditionUnknown, reasonSilent, textSilent, at
		}
	}
	if !changed {
		return n
	}
	return next
}

type fromCondition struct {
	condition corev1.NodeConditionType
	status    corev1.ConditionStatus
	key       string
}

// fromConditions maps a condition and its status to a NoSchedule taint.
var fromConditions = []fromCondition{
	{corev1.NodeReady, corev1.ConditionFalse, corev1.TaintNodeNotReady},
	{corev1.NodeReady, corev1.ConditionUnknown, corev1.TaintNodeUnreachable},
	{corev1.NodeMemoryPressure, corev1.ConditionTrue, corev1.TaintNodeMemoryPressure},
	{corev1.NodeDiskPressure, corev1.ConditionTrue, corev1.TaintNodeDiskPressure},
	{corev1.NodePIDPressure, corev1.ConditionTrue, corev1.TaintNodePIDPressure},
	{corev1.NodeNetworkUnavailable, corev1.ConditionTrue, corev1.TaintNodeNetworkUnavailable},
}

// wanted returns the taints that follow from the node's state, NoExecute taints only if evict
// is true.
func wanted(n *corev1.Node, evict bool) []corev1.Taint {
	var out []corev1.Taint
	for _, f := range fromConditions {
		if conditions.Status(n.Status.Conditions, f.condition) == f.status {
			out = append(out, corev1.Taint{Key: f.key, Effect: corev1.TaintEffectNoSchedule})
		}
	}
	if n.Spec.Unschedulable {
		out = append(out, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	if evict {
		out = append(out, evicting(n)...)
	}
	return out
}

// evicting returns the NoExecute taint of a node that is not ready.
func evicting(n *corev1.Node) []corev1.Taint {
	switch readiness(n) {
	case corev1.ConditionFalse:
		return []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}
	case corev1.ConditionUnknown:
		return []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
	}
	return nil
}

// evicted reports whether a node has a NoExecute taint of this controller.
func evicted(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return ours(t) && t.Effect == corev1.TaintEffectNoExecute })
}

// ours reports whether this controller manages a taint.
func ours(t corev1.Taint) bool {
	switch t.Effect {
	case corev1.TaintEffectNoExecute:
		return t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
	case corev1.TaintEffectNoSchedule:
		return t.Key == corev1.TaintNodeUnschedulable ||
			slices.ContainsFunc(fromConditions, func(f fromCondition) bool { return f.key == t.Key })
	}
	return false
}

// retaint returns have with exactly the desired ones of this controller's taints; existing
// ones keep their time. changed is false if have is already correct.
func retaint(have, want []corev1.Taint, now time.Time) (out []corev1.Taint, changed bool) {
	same := func(a corev1.Taint) func(corev1.Taint) bool {
		return func(b corev1.Taint) bool { return a.Key == b.Key && a.Effect == b.Effect }
	}
	for _, t := range have {
		if ours(t) && !slices.ContainsFunc(want, same(t)) {
			changed = true
			continue
		}
		out = append(out, t)
	}
	for _, t := range want {
		if slices.ContainsFunc(have, same(t)) {
			continue
		}
		if t.Effect == corev1.TaintEffectNoExecute {
			t.TimeAdded = &metav1.Time{Time: now}
		}
		out, changed = append(out, t), true
	}
	return out, changed
}

// census counts the nodes of a zone.
type census struct{ ready, unready int }

// rate returns how many nodes of a zone may get a NoExecute taint per second. If many nodes
// fail at once, the network or the control plane is the likely cause.
func (c census) rate(o Options) float64 {
	total := c.ready + c.unready
	switch {
	case c.ready == 0: // the whole zone is down, but other zones are not
		return o.EvictionRate
	case c.unready <= 2 || float64(c.unready)/float64(total) < o.UnhealthyZoneThreshold:
		return o.EvictionRate
	case total > o.LargeClusterSizeThreshold:
		return o.SecondaryEvictionRate
	}
	return 0
}

// zoneOf returns the node's failure domain.
func zoneOf(n *corev1.Node) string {
	return n.Labels[corev1.LabelTopologyRegion] + "/" + n.Labels[corev1.LabelTopologyZone]
}
