package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"podium/pkg/kubelet/cpumanager"
	"podium/pkg/kubelet/memorymanager"
	"podium/pkg/kubelet/resources"
	"podium/pkg/kubelet/topology"
)

// Placement are the managers of what has a place on the machine. A nil *Placement has
// none of them.
type Placement struct {
	*topology.Manager
	cpus   *cpumanager.Manager    // nil: the policy none
	memory *memorymanager.Manager // nil: the policy None
	period time.Duration          // of cpus
}

// Config configures a Placement.
type Config struct {
	Topology topology.Config       // without Providers
	CPUs     *cpumanager.Config    // nil: the policy none
	Memory   *memorymanager.Config // nil: the policy None
	Period   time.Duration         // between the updates of containers' CPUs
	Dir      string                // of the state files
}

// New returns a Placement. It refuses the state of an earlier kubelet that does not fit
// the configuration.
func New(c Config) (*Placement, error) {
	p := &Placement{period: c.Period}
	c.Topology.Aligned = topology.NewAligned(c.Topology.Registry)
	if err := errors.Join(p.addCPUs(&c), p.addMemory(&c)); err != nil {
		return nil, err
	}
	var err error
	p.Manager, err = topology.New(c.Topology)
	return p, err
}

func (p *Placement) addCPUs(c *Config) (err error) {
	if c.CPUs == nil {
		return cpumanager.CheckNone(c.Dir)
	}
	c.CPUs.Aligned = c.Topology.Aligned
	p.cpus, err = cpumanager.New(*c.CPUs)
	c.Topology.Providers = append(c.Topology.Providers, p.cpus)
	return err
}

func (p *Placement) addMemory(c *Config) (err error) {
	if c.Memory == nil {
		return memorymanager.CheckNone(c.Dir)
	}
	p.memory, err = memorymanager.New(*c.Memory)
	c.Topology.Providers = append(c.Topology.Providers, p.memory)
	return err
}

// Run sets the CPUs of running containers until ctx ends.
func (p *Placement) Run(ctx context.Context, r cpumanager.Runtime) error {
	if p != nil && p.cpus != nil {
		p.cpus.Run(ctx, r, p.period)
	}
	return nil
}

// Holders returns the pods that have resources according to the state files.
func (p *Placement) Holders() []types.UID {
	var out []types.UID
	if p.cpus != nil {
		out = p.cpus.Holders()
	}
	if p.memory != nil {
		out = append(out, p.memory.Holders()...)
	}
	return out
}

// ExclusiveCPUs returns the CPUs that a container has for itself.
func (p *Placement) ExclusiveCPUs(pod types.UID, container string) []int {
	if p.cpus == nil {
		return nil
	}
	return p.cpus.Exclusive(pod, container).List()
}

// AllocatableCPUs returns the CPUs that containers may have for themselves.
func (p *Placement) AllocatableCPUs() []int {
	if p.cpus == nil {
		return nil
	}
	return p.cpus.Allocatable().List()
}

// Memory returns the memory that a container has of NUMA nodes.
func (p *Placement) Memory(pod types.UID, container string) []memorymanager.Block {
	if p.memory == nil {
		return nil
	}
	return p.memory.Blocks(pod, container)
}

// AllocatableMemory returns the memory of NUMA nodes that containers may have.
func (p *Placement) AllocatableMemory() []memorymanager.Block {
	if p.memory == nil {
		return nil
	}
	return p.memory.Allocatable()
}

// Place sets the CPUs on which the container may run and the NUMA nodes from which it
// gets memory. As upstream, a container with exclusive CPUs has no CPU quota.
func (p *Placement) Place(pod *corev1.Pod, spec *corev1.Container, r *runtimeapi.LinuxContainerResources) {
	if p.memory != nil {
		if nodes := p.memory.Nodes(pod.UID, spec.Name); nodes != 0 {
			r.CpusetMems = cpuset.New(nodes.Nodes()...).String()
		}
	}
	if p.cpus == nil {
		return
	}
	r.CpusetCpus = p.cpus.Of(pod.UID, spec.Name).String()
	if !p.cpus.Exclusive(pod.UID, spec.Name).IsEmpty() {
		r.CpuQuota, r.CpuPeriod = 0, 0
	}
}

// Unthrottled reports whether the pod's cgroup has no CPU quota: a container has
// exclusive CPUs.
func (p *Placement) Unthrottled(uid types.UID) bool {
	return p != nil && p.cpus != nil && slices.Contains(p.cpus.Holders(), uid)
}

// Infeasible returns why a pod cannot have other resources while it runs; "": it can.
// The text is upstream's.
func (p *Placement) Infeasible(has, wants *corev1.Pod) string {
	switch {
	case resources.QOS(wants) != corev1.PodQOSGuaranteed:
	case p.cpus != nil && requestsDiffer(has, wants, corev1.ResourceCPU):
		return fmt.Sprintf("Resize is infeasible for Guaranteed Pods alongside CPU Manager policy %q", cpumanager.Static)
	case p.memory != nil && requestsDiffer(has, wants, corev1.ResourceMemory):
		return fmt.Sprintf("Resize is infeasible for Guaranteed Pods alongside Memory Manager policy %q", memorymanager.Static)
	}
	return ""
}

func requestsDiffer(a, b *corev1.Pod, name corev1.ResourceName) bool {
	same := func(x, y corev1.Container) bool {
		p, q := x.Resources.Requests[name], y.Resources.Requests[name]
		return p.Cmp(q) == 0
	}
	return !slices.EqualFunc(a.Spec.InitContainers, b.Spec.InitContainers, same) || !slices.EqualFunc(a.Spec.Containers, b.Spec.Containers, same)
}
