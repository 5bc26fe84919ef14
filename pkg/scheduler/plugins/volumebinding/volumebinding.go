package volumebinding

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// Upstream's reasons.
const (
	unbound  = "pod has unbound immediate PersistentVolumeClaims"
	conflict = "node(s) had volume node affinity conflict"
	noVolume = "node(s) didn't find available persistent volumes to bind"
)

// need is what a pod needs of a node for one of its claims.
type need struct {
	Reason     string                        // not "": no node has it
	Affinity   *corev1.NodeSelector          // of the bound volume; nil: any node
	Node       string                        // the node that was named to the provisioner
	Volumes    []*candidate                  // volumes that the claim may get, the smallest first
	Dynamic    bool                          // a volume can be provisioned
	Topologies []corev1.TopologySelectorTerm // where; nil: anywhere

	claim *corev1.PersistentVolumeClaim // that is to be bound, nil if it is; the shape has which of both
	space *space                        // where it can be provisioned; nil: anywhere
}

// candidate is a free volume.
type candidate struct {
	Name     string
	Affinity *corev1.NodeSelector
}

// Plugin is upstream's plugin VolumeBinding. Its methods, except for Permit, are called
// with the scheduler's lock held.
type Plugin struct {
	*store
	writer Writer
	node   func(name string) *corev1.Node
}

// New returns the plugin. The scheduler tells it of claims, volumes and classes; node
// returns a node that exists.
func New(w Writer, node func(name string) *corev1.Node) *Plugin { return &Plugin{newStore(), w, node} }

// Name is upstream's name of the plugin.
func (*Plugin) Name() string { return "VolumeBinding" }

// Reads returns what the pod's claims need.
func (p *Plugin) Reads(pod *snapshot.Pod) []any {
	var out []any
	for _, n := range p.needs(pod) {
		out = append(out, n.Reason, n.claim != nil, n.Affinity, n.Node, n.Volumes, n.Dynamic, n.Topologies)
		if n.space != nil {
			out = append(out, n.space.Version, n.claim.Spec.Resources.Requests.Storage().Value())
		}
	}
	return out
}

// EventsToRegister returns the events after which a rejected pod may fit.
func (*Plugin) EventsToRegister() framework.Event {
	return framework.NodeAdded | framework.NodeLabels | framework.VolumeChanged
}

// PreFilter skips pods without claims.
func (p *Plugin) PreFilter(pod *snapshot.Pod) framework.NodeFilter {
	needs := p.needs(pod)
	if len(needs) == 0 {
		return nil
	}
	return func(n snapshot.Node) *framework.Status {
		_, status := place(needs, n.Object())
		return status
	}
}

// choice is how a claim that waits for its first pod is to be bound.
type choice struct {
	claim  *corev1.PersistentVolumeClaim
	volume string // "": one is provisioned
}

// place decides how the claims that are not bound yet get volumes on a node.
func place(needs []need, node *corev1.Node) ([]choice, *framework.Status) {
	var choices []choice
	taken := map[string]bool{}
	for i := range needs {
		n := &needs[i]
		switch {
		case n.Reason != "":
			return nil, framework.NewStatus(framework.UnschedulableAndUnresolvable, n.Reason)
		case !matches(n.Affinity, node):
			return nil, framework.NewStatus(framework.UnschedulableAndUnresolvable, conflict)
		case n.claim == nil:
			continue
		case n.Node != "" && n.Node != node.Name:
			return nil, framework.NewStatus(framework.UnschedulableAndUnresolvable, noVolume)
		}
		name := firstFree(n.Volumes, taken, node)
		if name == "" && !(n.Dynamic && inTopology(n.Topologies, node)) {
			return nil, framework.NewStatus(framework.UnschedulableAndUnresolvable, noVolume)
		}
		if name == "" && !n.space.on(node) {
			return nil, framework.NewStatus(framework.UnschedulableAndUnresolvable, noSpace)
		}
		taken[name] = true
		choices = append(choices, choice{n.claim, name})
	}
	return choices, nil
}

func firstFree(volumes []*candidate, taken map[string]bool, node *corev1.Node) string {
	for _, v := range volumes {
		if !taken[v.Name] && matches(v.Affinity, node) {
			return v.Name
		}
	}
	return ""
}

func matches(selector *corev1.NodeSelector, node *corev1.Node) bool {
	if selector == nil {
		return true
	}
	s, err := nodeaffinity.NewNodeSelector(selector)
	return err == nil && s.Match(node)
}

// inTopology reports whether a node is in one of the topologies of a class; all are if it
// has none.
func inTopology(terms []corev1.TopologySelectorTerm, node *corev1.Node) bool {
	for _, term := range terms {
		all := true
		for _, e := range term.MatchLabelExpressions {
			value, ok := node.Labels[e.Key]
			all = all && ok && slices.Contains(e.Values, value)
		}
		if all {
			return true
		}
	}
	return len(terms) == 0
}
