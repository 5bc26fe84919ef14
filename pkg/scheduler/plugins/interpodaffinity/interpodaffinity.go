// Package interpodaffinity places pods near or away from other pods, according to their
// spec.affinity.podAffinity and podAntiAffinity and those of the other pods.
package interpodaffinity

import (
	"slices"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
	"podium/pkg/scheduler/topology"
)

// Rejections, with upstream's texts.
const (
	reasonAffinity = "node(s) didn't match pod affinity rules"
	reasonAnti     = "node(s) didn't match pod anti-affinity rules"
	reasonExisting = "node(s) didn't satisfy existing pods anti-affinity rules"
)

// Plugin filters by the required terms of the pod and the required anti-affinity of other pods,
// and scores by the preferred terms of both and the required affinity of other pods.
type Plugin struct {
	// HardPodAffinityWeight is the weight of a required affinity term of another pod that
	// selects the pod.
	HardPodAffinityWeight int64
}

// Name is upstream's name of the plugin.
func (Plugin) Name() string { return "InterPodAffinity" }

// Reads returns the pod's terms, which of them select the pod itself, and the terms of other
// pods that select it. So labels that no term reads do not make a shape.
func (Plugin) Reads(pod *snapshot.Pod) []any {
	if len(pod.Resolved) == 0 && len(pod.Matching) == 0 {
		return nil
	}
	own := make([]string, 0, len(pod.Resolved))
	for _, t := range pod.Resolved {
		own = append(own, t.ID())
	}
	others := make([]uint64, 0, len(pod.Matching))
	for _, t := range pod.Matching {
		others = append(others, t.Number)
	}
	return []any{own, selectsItself(pod), others}
}

// EventsToRegister returns the events after which a rejected pod may fit.
func (Plugin) EventsToRegister() framework.Event {
	return framework.PodAdded | framework.PodGone | framework.PodLabels |
		framework.NodeAdded | framework.NodeLabels | framework.NamespaceLabels
}

// selectsItself reports whether all required affinity terms of the pod select the pod.
func selectsItself(pod *snapshot.Pod) bool {
	return matchesAll(ofKind(pod, snapshot.RequiredAffinity), pod)
}

func ofKind(pod *snapshot.Pod, kind snapshot.TermKind) []*snapshot.Term {
	return slices.DeleteFunc(slices.Clone(pod.Resolved), func(t *snapshot.Term) bool { return t.Kind != kind })
}

// matchesAll expects terms without namespace selectors.
func matchesAll(terms []*snapshot.Term, pod *snapshot.Pod) bool {
	for _, t := range terms {
		if !t.Matches(pod.Pod, nil) {
			return false
		}
	}
	return true
}

// counts are numbers of pods per topology domain that mean the same for the pod.
type counts []*topology.Counts

func (c counts) Update(n snapshot.Node) {
	for _, x := range c {
		x.Update(n, true)
	}
}

// any reports whether one of the domains of a row has a pod.
func (c counts) any(row int) bool {
	for _, x := range c {
		if id, ok := x.Domain(row); ok && x.Pods(id) > 0 {
			return true
		}
	}
	return false
}

// PreFilter skips pods without required terms that no required anti-affinity term selects.
func (Plugin) PreFilter(pod *snapshot.Pod) framework.ClusterFilter {
	f := &filter{first: selectsItself(pod)}
	all := ofKind(pod, snapshot.RequiredAffinity)
	for _, t := range all {
		f.near = append(f.near, topology.New(t.TopologyKey, func(p *snapshot.Pod) bool { return matchesAll(all, p) }))
	}
	for _, t := range ofKind(pod, snapshot.RequiredAntiAffinity) {
		f.apart = append(f.apart, topology.New(t.TopologyKey, func(p *snapshot.Pod) bool { return t.Matches(p.Pod, nil) }))
	}
	for _, t := range pod.Matching {
		if t.Kind == snapshot.RequiredAntiAffinity {
			f.repelled = append(f.repelled, topology.New(t.TopologyKey, func(p *snapshot.Pod) bool { return p.Has(t) }))
		}
	}
	if len(f.near)+len(f.apart)+len(f.repelled) == 0 {
		return nil
	}
	return f
}

// filter counts, for the required terms, the pods that they are about.
type filter struct {
	near     counts // pods that all affinity terms select, a count per term
	apart    counts // pods that an anti-affinity term selects
	repelled counts // pods with an anti-affinity term that selects the pod
	first    bool   // the pod's affinity terms select the pod itself
}

// Rejections of all nodes.
var (
	notNear  = framework.NewStatus(framework.UnschedulableAndUnresolvable, reasonAffinity)
	notApart = framework.NewStatus(framework.Unschedulable, reasonAnti)
	repelled = framework.NewStatus(framework.Unschedulable, reasonExisting)
)

// Update implements framework.ClusterFilter.
func (f *filter) Update(n snapshot.Node) {
	f.near.Update(n)
	f.apart.Update(n)
	f.repelled.Update(n)
}

// Filter implements framework.ClusterFilter.
func (f *filter) Filter(n snapshot.Node) *framework.Status {
	switch row := n.Row(); {
	case !f.isNear(row):
		return notNear
	case f.apart.any(row):
		return notApart
	case f.repelled.any(row):
		return repelled
	}
	return nil
}

// isNear reports whether all domains of a row have a pod that the affinity terms select. If no
// domain of the cluster has one, a pod that is selected by its own terms is the first.
func (f *filter) isNear(row int) bool {
	alone := f.first
	for _, x := range f.near {
		alone = alone && x.Total() == 0
	}
	for _, x := range f.near {
		id, ok := x.Domain(row)
		if !ok || x.Pods(id) == 0 && !alone {
			return false
		}
	}
	return true
}
