package nodelifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is said about a node that is silent.
const (
	reasonSilent = "NodeStatusUnknown"
	textSilent   = "Kubelet stopped posting node status."
	reasonNever  = "NodeStatusNeverUpdated"
	textNever    = "Kubelet never posted node status."
)

// reported are the conditions that a kubelet reports, and that nobody knows
// once it is silent.
var reported = []corev1.NodeConditionType{
	corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
}

func condition(n *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == t {
			return c
		}
	}
	return nil
}

// readiness is the status of the condition Ready, "" if there is none.
func readiness(n *corev1.Node) corev1.ConditionStatus {
	if c := condition(n, corev1.NodeReady); c != nil {
		return c.Status
	}
	return ""
}

// silenced is n with the conditions of a node that is silent; n itself if it
// has them.
func silenced(n *corev1.Node, now time.Time) *corev1.Node {
	next := n.DeepCopy()
	changed := false
	at := metav1.Time{Time: now}
	for _, t := range reported {
		c := condition(next, t)
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

// fromConditions says which condition, at which status, makes which NoSchedule taint.
var fromConditions = []fromCondition{
	{corev1.NodeReady, corev1.ConditionFalse, corev1.TaintNodeNotReady},
	{corev1.NodeReady, corev1.ConditionUnknown, corev1.TaintNodeUnreachable},
	{corev1.NodeMemoryPressure, corev1.ConditionTrue, corev1.TaintNodeMemoryPressure},
	{corev1.NodeDiskPressure, corev1.ConditionTrue, corev1.TaintNodeDiskPressure},
	{corev1.NodePIDPressure, corev1.ConditionTrue, corev1.TaintNodePIDPressure},
	{corev1.NodeNetworkUnavailable, corev1.ConditionTrue, corev1.TaintNodeNetworkUnavailable},
}

// wanted are the taints that follow from the node's state. evict says whether
// the NoExecute ones may be among them.
func wanted(n *corev1.Node, evict bool) []corev1.Taint {
	var out []corev1.Taint
	for _, f := range fromConditions {
		if c := condition(n, f.condition); c != nil && c.Status == f.status {
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

// evicting is the NoExecute taint of a node that is not ready.
func evicting(n *corev1.Node) []corev1.Taint {
	switch readiness(n) {
	case corev1.ConditionFalse:
		return []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}
	case corev1.ConditionUnknown:
		return []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
	}
	return nil
}

// ours says that a taint is this controller's to set and to remove.
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

// retaint is have with exactly those of our taints that are wanted; those that
// stand keep their time. changed is false when have is right as it is.
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

// rate is how many nodes of a zone may get a NoExecute taint per second. Many
// nodes that fail at once are more likely our mistake, or the network's, than theirs.
func (c census) rate(o Options) float64 {
	total := c.ready + c.unready
	switch {
	case c.ready == 0: // the whole zone is down; others are not, or nobody would ask
		return o.EvictionRate
	case c.unready <= 2 || float64(c.unready)/float64(total) < o.UnhealthyZoneThreshold:
		return o.EvictionRate
	case total > o.LargeClusterSizeThreshold:
		return o.SecondaryEvictionRate
	}
	return 0
}

// zoneOf names the node's failure domain.
func zoneOf(n *corev1.Node) string {
	return n.Labels[corev1.LabelTopologyRegion] + "/" + n.Labels[corev1.LabelTopologyZone]
}
