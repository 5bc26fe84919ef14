// Package podtopologyspread spreads pods over topology domains according to their
// topologySpreadConstraints.
package podtopologyspread

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"podium/pkg/scheduler/framework"
	affinityplugin "podium/pkg/scheduler/plugins/nodeaffinity"
	"podium/pkg/scheduler/plugins/taints"
	"podium/pkg/scheduler/snapshot"
	"podium/pkg/scheduler/topology"
)

const (
	reasonSkew  = "node(s) didn't match pod topology spread constraints"
	reasonLabel = reasonSkew + " (missing required label)"
)

// Plugin filters by the constraints with DoNotSchedule and scores by those with ScheduleAnyway.
// A pod without constraints that belongs to a Service or a controller gets Defaults.
type Plugin struct {
	// Defaults have no label selector: they select the pods that belong together.
	Defaults []corev1.TopologySpreadConstraint
	// System means that the defaults are System(): nodes that lack a topology key are
	// ranked, too.
	System bool
}

// System returns the default constraints of a cluster whose administrator sets none.
func System() Plugin {
	return Plugin{System: true, Defaults: []corev1.TopologySpreadConstraint{
		{MaxSkew: 3, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway},
		{MaxSkew: 5, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway},
	}}
}

// Name is upstream's name of the plugin.
func (Plugin) Name() string { return "PodTopologySpread" }

// Reads returns the constraints and what selects the nodes and the pods to count. It returns
// only the labels that the selectors read, so that pods with unique labels (StatefulSets) share
// a shape.
func (p Plugin) Reads(pod *snapshot.Pod) []any {
	list := pod.Spec.TopologySpreadConstraints
	if len(list) == 0 {
		if pod.Siblings == nil || len(p.Defaults) == 0 {
			return nil
		}
		return append(affinityplugin.Plugin{}.Reads(pod), &pod.Namespace, &pod.Spec.Tolerations, pod.Siblings.String(), pod.Siblings.Matches(labels.Set(pod.Labels)))
	}
	out := append(affinityplugin.Plugin{}.Reads(pod), &pod.Namespace, &pod.Spec.Tolerations, &list)
	for i := range list {
		s := selectorOf(&list[i], pod.Labels)
		out = append(out, s.String(), s.Matches(labels.Set(pod.Labels)))
	}
	return out
}

// EventsToRegister returns the events after which a rejected pod may fit.
func (Plugin) EventsToRegister() framework.Event {
	return framework.PodAdded | framework.PodGone | framework.PodLabels |
		framework.NodeAdded | framework.NodeGone | framework.NodeLabels | framework.NodeTaints
}

// PreFilter skips pods without hard constraints.
func (p Plugin) PreFilter(pod *snapshot.Pod) framework.ClusterFilter {
	if s := p.newSpread(pod, corev1.DoNotSchedule); len(s.constraints) > 0 {
		return &filter{
			spread:  s,
			skewed:  framework.NewStatus(framework.Unschedulable, reasonSkew),
			noLabel: framework.NewStatus(framework.UnschedulableAndUnresolvable, reasonLabel),
		}
	}
	return nil
}

// PreScore skips pods without soft constraints.
func (p Plugin) PreScore(pod *snapshot.Pod) framework.ClusterScore {
	if s := p.newSpread(pod, corev1.ScheduleAnyway); len(s.constraints) > 0 {
		return &score{spread: s}
	}
	return nil
}

// spread counts the pods for the constraints of one kind.
type spread struct {
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
	constraints []constraint
	lenient     bool // nodes that lack a topology key count for the other constraints
}

type constraint struct {
	*corev1.TopologySpreadConstraint
	*topology.Counts
	self int // 1 if the pod matches its own selector
}

func (p Plugin) newSpread(pod *snapshot.Pod, action corev1.UnsatisfiableConstraintAction) spread {
	s := spread{tolerations: pod.Spec.Tolerations}
	list, namespace := pod.Spec.TopologySpreadConstraints, pod.Namespace
	if len(list) == 0 && pod.Siblings != nil {
		list, s.lenient = p.Defaults, p.System
	}
	for i := range list {
		c := constraint{TopologySpreadConstraint: &list[i]}
		if c.WhenUnsatisfiable != action {
			continue
		}
		selector := pod.Siblings
		if selector == nil {
			selector = selectorOf(c.TopologySpreadConstraint, pod.Labels)
		}
		c.Counts = topology.New(c.TopologyKey, func(p *snapshot.Pod) bool {
			return p.Namespace == namespace && p.DeletionTimestamp == nil && selector.Matches(labels.Set(p.Labels))
		})
		if selector.Matches(labels.Set(pod.Labels)) {
			c.self = 1
		}
		s.constraints = append(s.constraints, c)
	}
	if len(s.constraints) > 0 {
		s.affinity = nodeaffinity.GetRequiredNodeAffinity(pod.Pod)
	}
	return s
}

// selectorOf returns the label selector of a constraint, combined with the pod's values of the
// labels in matchLabelKeys. An invalid selector selects nothing.
func selectorOf(c *corev1.TopologySpreadConstraint, own map[string]string) labels.Selector {
	s, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
	if err != nil {
		return labels.Nothing()
	}
	same := labels.Set{}
	for _, key := range c.MatchLabelKeys {
		if value, ok := own[key]; ok {
			same[key] = value
		}
	}
	if requirements, _ := same.AsSelector().Requirements(); len(requirements) > 0 {
		s = s.Add(requirements...)
	}
	return s
}

// Update recounts the pods of a node. Unless lenient, nodes that lack one of the topology keys
// are not counted.
func (s *spread) Update(n snapshot.Node) {
	counted := n.Exists()
	for _, c := range s.constraints {
		if counted && !s.lenient {
			_, counted = n.Labels()[c.TopologyKey]
		}
	}
	for _, c := range s.constraints {
		c.Counts.Update(n, counted && s.included(c, n))
	}
}

// included applies nodeAffinityPolicy (default Honor) and nodeTaintsPolicy
// (default Ignore).
func (s *spread) included(c constraint, n snapshot.Node) bool {
	if c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor {
		if ok, _ := s.affinity.Match(n.Object()); !ok {
			return false
		}
	}
	return c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy != corev1.NodeInclusionPolicyHonor ||
		taints.Untolerated(n.Taints(), s.tolerations) == nil
}

// filter holds the hard constraints.
type filter struct {
	spread
	skewed, noLabel *framework.Status
}

// Filter implements framework.ClusterFilter.
func (f *filter) Filter(n snapshot.Node) *framework.Status {
	for _, c := range f.constraints {
		id, ok := c.Domain(n.Row())
		if !ok {
			return f.noLabel
		}
		domains, least := c.Least()
		if c.MinDomains != nil && domains < int(*c.MinDomains) {
			least = 0
		}
		if c.Pods(id)+c.self-least > int(c.MaxSkew) {
			return f.skewed
		}
	}
	return nil
}
