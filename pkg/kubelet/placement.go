package kubelet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"podium/pkg/kubelet/cpumanager"
	"podium/pkg/kubelet/hardware"
	"podium/pkg/kubelet/memorymanager"
	"podium/pkg/kubelet/placement"
	"podium/pkg/kubelet/pods"
	"podium/pkg/kubelet/topology"
)

var _ pods.Placement = (*placement.Placement)(nil)

// placementFlags configure a Placement.
type placementFlags struct {
	cpuPolicy, topologyPolicy, topologyScope string
	cpuOptions, topologyOptions              map[string]string
	cpuPeriod                                time.Duration
	reservedCPUs                             string
	memoryPolicy                             string
	reservedMemory                           reservedMemory
}

func (p *placementFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&p.cpuPolicy, "cpu-manager-policy", cpumanager.None, "none: all containers share all CPUs; static: containers of Guaranteed pods that request whole CPUs have these for themselves")
	fs.StringToStringVar(&p.cpuOptions, "cpu-manager-policy-options", nil, "options of the policy static, as full-pcpus-only=true,...: full-pcpus-only, distribute-cpus-across-numa, distribute-cpus-across-cores, align-by-socket, strict-cpu-reservation, prefer-align-cpus-by-uncorecache")
	fs.DurationVar(&p.cpuPeriod, "cpu-manager-reconcile-period", 10*time.Second, "how often to set the CPUs of running containers when no exclusive CPUs change")
	fs.StringVar(&p.reservedCPUs, "reserved-cpus", "", "CPUs for the system and the cluster's daemons, as 0-1,8; replaces cpu in --kube-reserved and --system-reserved, and the policy static never gives them away")
	fs.StringVar(&p.memoryPolicy, "memory-manager-policy", memorymanager.None, "None: memory comes from any NUMA node; Static: containers of Guaranteed pods get it from as few nodes as possible")
	fs.Var(&p.reservedMemory, "reserved-memory", "memory of a NUMA node that is not for pods, as 0:memory=1Gi,hugepages-2Mi=4Mi; may be repeated. The sums must be what --kube-reserved, --system-reserved and, of memory, --eviction-hard reserve on the node")
	fs.StringVar(&p.topologyPolicy, "topology-manager-policy", topology.None, "how to align the CPUs, memory and devices of a container with NUMA nodes: none, best-effort, restricted or single-numa-node")
	fs.StringToStringVar(&p.topologyOptions, "topology-manager-policy-options", nil, "options of the topology manager: prefer-closest-numa-nodes, max-allowable-numa-nodes")
	fs.StringVar(&p.topologyScope, "topology-manager-scope", topology.ScopeContainer, "what to align: container or pod")
}

// validate returns all invalid values, joined.
func (p *placementFlags) validate() error {
	var errs []error
	switch p.cpuPolicy {
	case cpumanager.Static:
	case cpumanager.None:
		if len(p.cpuOptions) > 0 {
			errs = append(errs, errors.New("--cpu-manager-policy-options need --cpu-manager-policy=static"))
		}
	default:
		errs = append(errs, fmt.Errorf("--cpu-manager-policy %q: want %s or %s", p.cpuPolicy, cpumanager.None, cpumanager.Static))
	}
	options, err := cpumanager.ParseOptions(p.cpuOptions)
	errs = append(errs, err, topology.Config{Policy: p.topologyPolicy, Scope: p.topologyScope, Options: p.topologyOptions}.Validate())
	if options.Sockets && p.topologyPolicy == topology.SingleNode {
		errs = append(errs, fmt.Errorf("the CPU manager policy option align-by-socket and --topology-manager-policy=%s exclude each other", topology.SingleNode))
	}
	if p.memoryPolicy != memorymanager.None && p.memoryPolicy != memorymanager.Static {
		errs = append(errs, fmt.Errorf("--memory-manager-policy %q: want %s or %s", p.memoryPolicy, memorymanager.None, memorymanager.Static))
	}
	if len(p.reservedMemory) > 0 && p.memoryPolicy != memorymanager.Static {
		errs = append(errs, fmt.Errorf("--reserved-memory needs --memory-manager-policy=%s", memorymanager.Static))
	}
	if err := memorymanager.ValidateReservations(p.reservedMemory); err != nil {
		errs = append(errs, fmt.Errorf("--reserved-memory: %w", err))
	}
	if p.cpuPeriod <= 0 {
		errs = append(errs, fmt.Errorf("--cpu-manager-reconcile-period is %v: it must be positive", p.cpuPeriod))
	}
	if _, err := hardware.ParseList(p.reservedCPUs); err != nil {
		errs = append(errs, fmt.Errorf("--reserved-cpus: %w", err))
	}
	return errors.Join(errs...)
}

// reserve makes --reserved-cpus the reservation of CPUs. validate has accepted it.
func (p *placementFlags) reserve(reserved corev1.ResourceList) cpuset.CPUSet {
	cpus, _ := hardware.ParseList(p.reservedCPUs)
	if !cpus.IsEmpty() {
		reserved[corev1.ResourceCPU] = *quantity(int64(cpus.Size()))
	}
	return cpus
}

// placement returns the managers for the flags. It refuses the state of an earlier
// kubelet that does not fit them. expected is what --reserved-memory must add up to.
func (p *placementFlags) placement(cfg *Config, expected corev1.ResourceList, paths hardware.Paths) (*placement.Placement, error) {
	c := placement.Config{Period: p.cpuPeriod, Dir: cfg.RootDir, Topology: topology.Config{
		Policy: p.topologyPolicy, Scope: p.topologyScope, Options: p.topologyOptions, Registry: registerer(cfg.Registry),
	}}
	if p.cpuPolicy != cpumanager.None || p.memoryPolicy != memorymanager.None || p.topologyPolicy != topology.None {
		var err error
		if c.Topology.Machine, err = hardware.Discover(paths); err != nil {
			return nil, err
		}
	}
	if p.cpuPolicy == cpumanager.Static {
		options, err := cpumanager.ParseOptions(p.cpuOptions)
		if err != nil {
			return nil, err
		}
		c.CPUs = &cpumanager.Config{
			Options: options, Machine: c.Topology.Machine, Reserved: p.reserve(cfg.Reserved), ReservedMilli: cfg.Reserved.Cpu().MilliValue(),
			Dir: cfg.RootDir, Registry: registerer(cfg.Registry), Log: cfg.Log,
		}
	}
	if p.memoryPolicy == memorymanager.Static {
		c.Memory = &memorymanager.Config{
			Machine: c.Topology.Machine, Reserved: p.reservedMemory, Expected: expected, Dir: cfg.RootDir, Registry: registerer(cfg.Registry), Log: cfg.Log,
		}
	}
	return placement.New(c)
}

// registerer returns r as an interface that is nil without a registry.
func registerer(r *prometheus.Registry) prometheus.Registerer {
	if r == nil {
		return nil
	}
	return r
}

// reservedMemory is the value of --reserved-memory. In a config file it is a list of
// objects, as upstream's.
type reservedMemory []memorymanager.Reservation

// Set adds the reservations of one flag, which may have several, separated by semicolons.
func (r *reservedMemory) Set(text string) error {
	for _, part := range strings.Split(text, ";") {
		one, err := memorymanager.ParseReservation(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		*r = append(*r, one)
	}
	return nil
}

// Type returns the name of the type in the help.
func (*reservedMemory) Type() string { return "reserved-memory" }

// String returns the reservations as JSON; "" if there are none.
func (r *reservedMemory) String() string {
	if len(*r) == 0 {
		return ""
	}
	text, _ := json.Marshal([]memorymanager.Reservation(*r)) // quantities always encode
	return string(text)
}

// SetJSON sets the reservations of a config file.
func (r *reservedMemory) SetJSON(data []byte) error {
	var list []memorymanager.Reservation
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(&list)
	*r = list
	return err
}
