package topology

import (
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Provider allocates a kind of resource whose units are near certain NUMA nodes. The
// Manager calls it from one goroutine at a time.
type Provider interface {
	// Hints returns the hints for the container, by resource. nil: the container
	// does not use the provider's resources, or it has no preference. An empty list
	// of hints: no node can serve it.
	Hints(pod *corev1.Pod, c *corev1.Container) map[string][]Hint
	// PodHints returns the hints for all containers of the pod together.
	PodHints(pod *corev1.Pod) map[string][]Hint
	// Allocate gives the container its resources, from the nodes of the hint as far
	// as they suffice. A container that has them keeps them. An error may have the
	// method Reason() string: the reason of the pod's status.
	Allocate(pod *corev1.Pod, c *corev1.Container, at Hint) error
	// Release frees everything that the pod has. A pod without anything is not an
	// error.
	Release(uid types.UID)
}

// The reasons of refusals that clients match.
const (
	ReasonAffinity   = "TopologyAffinityError"
	ReasonUnexpected = "UnexpectedAdmissionError"
)

// Refusal is why a pod cannot have its resources. The texts are upstream's.
type Refusal struct{ Reason, Message string }

// Manager aligns the resources of pods. Its methods are safe for concurrent use.
type Manager struct {
	policy, scope string
	closest       bool
	all           Mask
	distances     map[int]map[int]int
	providers     []Provider
	metrics       *metrics
	aligned       *Aligned // nil: the policy does not guarantee an alignment

	// mu makes hints and allocations of a pod one step: no other pod takes what the
	// hints have promised.
	mu sync.Mutex
}

// New returns a Manager, or an error if the machine does not permit the policy.
func New(c Config) (*Manager, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	m := &Manager{policy: c.Policy, scope: c.Scope, providers: c.Providers, metrics: newMetrics(c.Registry)}
	if m.policy == "" || m.policy == None {
		m.policy = None
		return m, nil
	}
	if m.policy == SingleNode {
		m.aligned = c.Aligned
	}
	s, err := c.settings()
	if err != nil {
		return nil, err
	}
	if err := c.check(s); err != nil {
		return nil, err
	}
	m.closest, m.all, m.distances = s.closest, Of(c.Machine.NodeIDs()...), map[int]map[int]int{}
	for id, n := range c.Machine.Nodes {
		m.distances[id] = n.Distances
	}
	return m, nil
}

// Add adds a provider. It must be called before the first Admit.
func (m *Manager) Add(p Provider) { m.providers = append(m.providers, p) }

// Nodes returns the machine's NUMA nodes; 0 with the policy none, which asks for no hints.
func (m *Manager) Nodes() Mask { return m.all }

// Admit gives all containers of a new pod their resources and returns nil, or it
// allocates nothing and returns why.
func (m *Manager) Admit(pod *corev1.Pod) *Refusal {
	began := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.admit(pod)
	m.metrics.admitted(time.Since(began), err)
	if err == nil {
		return nil
	}
	m.release(pod.UID)
	return refusal(err)
}

// Restore gives a pod that already runs what it has, and what it still lacks where
// that is possible. It refuses nothing: the pod keeps running. It returns why the pod
// lacks something.
func (m *Manager) Restore(pod *corev1.Pod) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, c := range containers(pod) {
		errs = append(errs, m.allocate(pod, c, Hint{}))
	}
	return errors.Join(errs...)
}

// Release frees everything that the pod has.
func (m *Manager) Release(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.release(uid)
}

func (m *Manager) release(uid types.UID) {
	for _, p := range m.providers {
		p.Release(uid)
	}
}

// containers returns the containers that have resources: all but ephemeral ones, in
// the order in which they are started.
func containers(pod *corev1.Pod) []*corev1.Container {
	var out []*corev1.Container
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			out = append(out, &list[i])
		}
	}
	return out
}

// admit decides and allocates container by container, so that the hints of a
// container account for those before it.
func (m *Manager) admit(pod *corev1.Pod) error {
	var whole Hint
	if m.policy != None && m.scope == ScopePod {
		var err error
		if whole, err = m.choose(m.ask(func(p Provider) map[string][]Hint { return p.PodHints(pod) })); err != nil {
			m.aligned.Count(ScopePod, WithinNode, err)
			return err
		}
	}
	for _, c := range containers(pod) {
		at := whole
		if m.policy != None && m.scope != ScopePod {
			var err error
			if at, err = m.choose(m.ask(func(p Provider) map[string][]Hint { return p.Hints(pod, c) })); err != nil {
				m.aligned.Count(ScopeContainer, WithinNode, err)
				return err
			}
		}
		if err := m.allocate(pod, c, at); err != nil {
			return err
		}
		if m.scope != ScopePod {
			m.aligned.Count(ScopeContainer, WithinNode, nil)
		}
	}
	if m.scope == ScopePod {
		m.aligned.Count(ScopePod, WithinNode, nil)
	}
	return nil
}

func (m *Manager) ask(hints func(Provider) map[string][]Hint) [][]Hint {
	var all []map[string][]Hint
	for _, p := range m.providers {
		all = append(all, hints(p))
	}
	return flatten(all)
}

// choose returns where to allocate, or errAffinity if the policy refuses that.
func (m *Manager) choose(resources [][]Hint) (Hint, error) {
	if m.policy == SingleNode {
		resources = onlySingle(resources)
	}
	best := m.merge(resources)
	if best.Nodes == m.all && m.policy == SingleNode {
		best.Nodes = 0 // no container resource named a node
	}
	if !best.Preferred && m.policy != BestEffort {
		return Hint{}, errAffinity{}
	}
	return best, nil
}

func (m *Manager) allocate(pod *corev1.Pod, c *corev1.Container, at Hint) error {
	for _, p := range m.providers {
		if err := p.Allocate(pod, c, at); err != nil {
			return err
		}
	}
	return nil
}

// errAffinity says that the nodes cannot serve a pod as the policy requires.
type errAffinity struct{}

func (errAffinity) Error() string  { return "Resources cannot be allocated with Topology locality" }
func (errAffinity) Reason() string { return ReasonAffinity }

func refusal(err error) *Refusal {
	var named interface{ Reason() string }
	if errors.As(err, &named) {
		return &Refusal{named.Reason(), err.Error()}
	}
	return &Refusal{ReasonUnexpected, fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)}
}
