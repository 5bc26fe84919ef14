package dynamicresources

import (
	"fmt"
	"slices"

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
	switch e := s.leftover(pod); {
	case e != nil && !isExtendedClaim(pod, e.claim):
		out = append(out, need{Reason: fmt.Sprintf("resourceclaim %q was not created by the scheduler for the pod", e.claim.Name)})
	case e != nil:
		out = append(out, need{Reason: fmt.Sprintf("waiting for resourceclaim %q of an earlier attempt to be deleted", e.claim.Name)})
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

// mayUse reports whether the plugin has to look at a pod: it has claims, or asks for extended
// resources.
func mayUse(pod *snapshot.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || len(pod.Requests.Extended) > 0
}

// Reads returns what the claims and the containers ask for, and the version of the classes. Pods with
// claims of one template have the same shape until they get devices.
func (p *Plugin) Reads(pod *snapshot.Pod) []any {
	if !mayUse(pod) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	needs, requests := p.needs(pod.Pod), p.requests(pod)
	if len(needs) == 0 && len(requests) == 0 {
		return nil
	}
	out := []any{p.version, requests}
	for _, n := range needs {
		out = append(out, n.Reason, n.Entry, n.Spec, n.Allocated, n.Nodes)
	}
	return out
}

// PreFilter skips pods that need no devices.
func (p *Plugin) PreFilter(pod *snapshot.Pod) framework.ClusterFilter {
	if !mayUse(pod) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	needs, requests := p.needs(pod.Pod), p.requests(pod)
	if len(needs) == 0 && len(requests) == 0 {
		return nil
	}
	return p.filter(needs, requests)
}

// filter answers for pods with the same needs. The caller holds s.mu.
func (s *store) filter(needs []need, requests []containerRequest) *filter {
	f := &filter{store: s, answers: map[string]answer{}, requests: requests, variants: map[string]*variant{}}
	for i := range needs {
		n := &needs[i]
		switch {
		case n.Reason != "":
			f.never = reject(n.Reason)
			return f
		case !n.Allocated:
			f.claims = append(f.claims, allocation.Claim{Name: n.Entry, Spec: n.Spec})
		case n.Nodes != nil:
			selector, err := nodeaffinity.NewNodeSelector(n.Nodes)
			if err != nil {
				f.never = reject(err.Error())
				return f
			}
			f.nodes = append(f.nodes, selector)
		}
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
	never    *framework.Status            // rejects all nodes
	nodes    []*nodeaffinity.NodeSelector // of allocated claims
	claims   []allocation.Claim           // without devices
	requests []containerRequest
	variants map[string]*variant // by the extended resources that a node lacks
	answers  map[string]answer   // by node
}

// variant is what nodes have to provide that lack the same of the extended resources which the pod
// asks for.
type variant struct {
	problem  *allocation.Problem
	err      error          // rejects these nodes
	extended *extendedClaim // the last claim of the problem; nil: the nodes lack none
}

// variant returns the variant for a node. The caller holds s.mu.
func (f *filter) variant(node *corev1.Node) *variant {
	var lacking []containerRequest
	var key []byte
	for _, w := range f.requests {
		if has := node.Status.Allocatable[w.Resource]; has.IsZero() {
			lacking = append(lacking, w)
			key = fmt.Appendf(key, "%s ", w.Resource)
		}
	}
	v := f.variants[string(key)]
	if v == nil {
		v = &variant{}
		claims := f.claims
		if len(lacking) > 0 {
			v.extended = extendedClaimFor(lacking)
			claims = append(slices.Clone(claims), allocation.Claim{Name: "of extended resources", Spec: &v.extended.spec})
		}
		v.problem, v.err = allocation.NewProblem(claims, func(name string) *resourcev1.DeviceClass { return f.classes[name] }, f.compiler, f.index, f.usage)
		f.variants[string(key)] = v
	}
	return v
}

// answer is a cached answer for a node.
type answer struct {
	stamp  allocation.Stamp
	status *framework.Status
	rank   int64 // of the alternatives that requests get
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
	return f.answer(n.Object()).status
}

// answer returns the answer for a node, from the cache if it is still valid. The caller holds s.mu.
func (f *filter) answer(node *corev1.Node) answer {
	if f.never != nil {
		return answer{status: f.never}
	}
	v := f.variant(node)
	if v.err != nil {
		return answer{status: reject(v.err.Error())}
	}
	stamp := v.problem.Stamp(node.Name)
	a, known := f.answers[node.Name]
	if !known || a.stamp != stamp {
		a = answer{stamp: stamp}
		var allocations []*resourcev1.AllocationResult
		if allocations, a.status = f.place(node, v); a.status == nil {
			a.rank = rank(f.claims, allocations)
		}
		f.answers[node.Name] = a
	}
	return a
}

// place chooses devices on a node for the claims that have none, and last for extended resources that
// the node lacks. The caller holds s.mu.
func (f *filter) place(node *corev1.Node, v *variant) ([]*resourcev1.AllocationResult, *framework.Status) {
	switch {
	case f.never != nil:
		return nil, f.never
	case v.err != nil:
		return nil, reject(v.err.Error())
	}
	for _, selector := range f.nodes {
		if !selector.Match(node) {
			return nil, reject(unavailable)
		}
	}
	allocations, err := v.problem.On(node)
	if err != nil {
		return nil, reject(err.Error())
	}
	return allocations, nil
}
