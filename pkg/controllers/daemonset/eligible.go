package daemonset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// eligibility tells which nodes the pods of a daemon set belong on.
type eligibility struct {
	nodeName    string // the only node, "" for any
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
}

func eligibilityOf(ds *appsv1.DaemonSet) eligibility {
	spec := &ds.Spec.Template.Spec
	return eligibility{
		nodeName:    spec.NodeName,
		affinity:    nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *spec}),
		tolerations: tolerationsOf(spec),
	}
}

// on reports whether a pod should be created on the node, and whether one that runs there
// may stay: a taint of effect NoSchedule does not evict.
func (e eligibility) on(n *corev1.Node) (run, keep bool) {
	if e.nodeName != "" && e.nodeName != n.Name {
		return false, false
	}
	if ok, err := e.affinity.Match(n); !ok || err != nil {
		return false, false
	}
	if !e.tolerates(n, corev1.TaintEffectNoExecute) {
		return false, false
	}
	return e.tolerates(n, corev1.TaintEffectNoSchedule), true
}

func (e eligibility) tolerates(n *corev1.Node, effect corev1.TaintEffect) bool {
	_, untolerated := scheduling.FindMatchingUntoleratedTaint(klog.Logger{}, n.Spec.Taints, e.tolerations,
		func(t *corev1.Taint) bool { return t.Effect == effect }, false)
	return !untolerated
}

// sameForPods reports whether two states of a node are equal for eligibility.
func sameForPods(a, b *corev1.Node) bool {
	return equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints)
}

// tolerationsOf returns the tolerations of a template with those that all daemon pods have:
// they stay on nodes with problems, and run on cordoned ones.
func tolerationsOf(spec *corev1.PodSpec) []corev1.Toleration {
	tolerated := []corev1.Toleration{
		{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodePIDPressure, Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
	}
	if spec.HostNetwork {
		tolerated = append(tolerated, corev1.Toleration{Key: corev1.TaintNodeNetworkUnavailable, Effect: corev1.TaintEffectNoSchedule})
	}
	out := slices.Clone(spec.Tolerations)
	for _, t := range tolerated {
		t.Operator = corev1.TolerationOpExists
		out = slices.DeleteFunc(out, func(have corev1.Toleration) bool { return have.MatchToleration(&t) })
		out = append(out, t)
	}
	return out
}
