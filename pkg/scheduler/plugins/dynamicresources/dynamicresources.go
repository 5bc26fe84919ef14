package dynamicresources

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"podium/pkg/resourceclaim"
	"podium/pkg/scheduler/allocation"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// The texts are upstream's.
const (
	inUse       = "resourceclaim in use"
	unavailable = "resourceclaim not available on the node"
)

// Plugin is upstream's plugin DynamicResources. All profiles share one: devices that a pod of
// one profile gets are not free for the others.
type Plugin struct {
	*store
	writer Writer
	node   func(name string) *corev1.Node
}

// New returns the plugin. node returns a node, nil if it does not exist. The caller tells the
// plugin of all claims, classes, slices and rules.
func New(w Writer, node func(name string) *corev1.Node) *Plugin {
	return &Plugin{newStore(), w, node}
}

// Name is upstream's name of the plugin.
func (*Plugin) Name() string { return "DynamicResources" }

// EventsToRegister returns the events after which a rejected pod may fit.
func (*Plugin) EventsToRegister() framework.Event {
	return framework.NodeAdded | framework.NodeLabels | framework.DeviceChanged
}

// need is what one of a pod's claims asks for.
type need struct {
	Reason    string                        // why the pod cannot be placed on any node; "" if it may
	Entry     string                        // of spec.resourceClaims
	Spec      *resourcev1.ResourceClaimSpec // of a claim without devices
	Allocated bool
	Nodes     *corev1.NodeSelector // that can use the devices of an allocated claim; nil: all

	entry *entry
}

// needs returns what the pod's claims ask for. The caller holds s.mu.
func (s *store) needs(pod *corev1.Pod) (out []need) {
	for i := range pod.Spec.ResourceClaims {
		c := &pod.Spec.ResourceClaims[i]
		name, made := resourceclaim.Name(pod, c)
		switch {
		case !made:
			out = append(out, need{Reason: fmt.Sprintf("waiting for dynamic resource controller to create the resourceclaim %q", c.Name)})
		case name != "":
			out = append(out, s.need(pod, c, name))
		}
	}
	return out
}

func (s *store) need(pod *corev1.Pod, c *corev1.PodResourceClaim, name string) need {
	e := s.claims[types.NamespacedName{Namespace: pod.Namespace, Name: name}]
	if e == nil {
		return need{Reason: fmt.Sprintf("resourceclaim %q not found", name)}
	}
	if err := resourceclaim.Check(pod, c, e.claim); err != nil {
		return need{Reason: err.Error()}
	}
	if e.claim.DeletionTimestamp != nil {
		return need{Reason: fmt.Sprintf("resourceclaim %q is being deleted", name)}
	}
	if e.full() && !e.users[pod.UID] && !resourceclaim.ReservedFor(e.claim, pod.UID) {
		return need{Reason: inUse}
	}
	if a := e.allocation(); a != nil {
		return need{Allocated: true, Nodes: a.NodeSelector, entry: e}
	}
	return need{Entry: c.Name, Spec: &e.claim.Spec, entry: e}
}

// Reads returns what the claims ask for, and the version of the classes. Pods with claims of
// one template have the same shape until they get devices.
func (p *Plugin) Reads(pod *snapshot.Pod) []any {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []any{p.version}
	for _, n := range p.needs(pod.Pod) {
		out = append(out, n.Reason, n.Entry, n.Spec, n.Allocated, n.Nodes)
	}
	return out
}

// PreFilter skips pods without claims.
func (p *Plugin) PreFilter(pod *snapshot.Pod) framework.ClusterFilter {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.filter(p.needs(pod.Pod))
}

// filter answers for pods with the same needs. The caller holds s.mu.
func (s *store) filter(needs []need) *filter {
	f := &filter{store: s, answers: map[string]answer{}}
	var claims []allocation.Claim
	for i := range needs {
		n := &needs[i]
		switch {
		case n.Reason != "":
			f.never = reject(n.Reason)
			return f
		case !n.Allocated:
			claims = append(claims, allocation.Claim{Name: n.Entry, Spec: n.Spec})
		case n.Nodes != nil:
			selector, err := nodeaffinity.NewNodeSelector(n.Nodes)
			if err != nil {
				f.never = reject(err.Error())
				return f
			}
			f.nodes = append(f.nodes, selector)
		}
	}
	var err error
	f.problem, err = allocation.NewProblem(claims, func(name string) *resourcev1.DeviceClass { return s.classes[name] }, s.compiler, s.index, s.usage)
	if err != nil {
		f.never = reject(err.Error())
	}
	return f
}

// reject returns a status. The removal of pods from a node does not free devices before the
// claims of these pods are freed: preemption does not help.
func reject(reason string) *framework.Status {
	return framework.NewStatus(framework.UnschedulableAndUnresolvable, reason)
}

// filter is a framework.ClusterFilter: an answer depends on devices and claims, which change
// without the node.
type filter struct {
	*store
	never   *framework.Status            // rejects all nodes
	nodes   []*nodeaffinity.NodeSelector // of allocated claims
	problem *allocation.Problem
	answers map[string]answer // by node
}

// answer is a cached answer for a node.
type answer struct {
	stamp  allocation.Stamp
	status *framework.Status
}

// Update implements framework.ClusterFilter.
func (f *filter) Update(n snapshot.Node) {
	if n.Exists() {
		delete(f.answers, n.Name())
	} else {
		clear(f.answers) // the node's name is not known any more
	}
}

// Filter implements framework.ClusterFilter.
func (f *filter) Filter(n snapshot.Node) *framework.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.never != nil {
		return f.never
	}
	stamp := f.problem.Stamp(n.Name())
	a, known := f.answers[n.Name()]
	if !known || a.stamp != stamp {
		_, status := f.place(n.Object())
		a = answer{stamp, status}
		f.answers[n.Name()] = a
	}
	return a.status
}

// place chooses devices on a node for the claims that have none. The caller holds s.mu.
func (f *filter) place(node *corev1.Node) ([]*resourcev1.AllocationResult, *framework.Status) {
	if f.never != nil {
		return nil, f.never
	}
	for _, selector := range f.nodes {
		if !selector.Match(node) {
			return nil, reject(unavailable)
		}
	}
	allocations, err := f.problem.On(node)
	if err != nil {
		return nil, reject(err.Error())
	}
	return allocations, nil
}
