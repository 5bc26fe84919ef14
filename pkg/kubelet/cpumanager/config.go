package cpumanager

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/cpuset"

	"podium/pkg/kubelet/hardware"
	"podium/pkg/kubelet/topology"
)

// The policies.
const (
	None   = "none"
	Static = "static"
)

// The options of the static policy.
const (
	optionFullCores   = "full-pcpus-only"
	optionSpreadNodes = "distribute-cpus-across-numa"
	optionSpreadCores = "distribute-cpus-across-cores"
	optionSockets     = "align-by-socket"
	optionStrict      = "strict-cpu-reservation"
	optionCaches      = "prefer-align-cpus-by-uncorecache"
)

// Options are the options of the static policy.
type Options struct {
	FullCores   bool // only whole cores
	SpreadNodes bool // as many CPUs from each NUMA node, if one does not suffice
	SpreadCores bool // as few CPUs of each core as possible
	Sockets     bool // align with sockets instead of NUMA nodes
	Strict      bool // the reserved CPUs are not part of the shared pool
	Caches      bool // CPUs that share a cache, if that is possible
}

// ParseOptions parses the options and returns everything that is wrong with them,
// joined.
func ParseOptions(options map[string]string) (Options, error) {
	var o Options
	fields := map[string]*bool{
		optionFullCores: &o.FullCores, optionSpreadNodes: &o.SpreadNodes, optionSpreadCores: &o.SpreadCores,
		optionSockets: &o.Sockets, optionStrict: &o.Strict, optionCaches: &o.Caches,
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(options)) {
		field, known := fields[name]
		if !known {
			errs = append(errs, fmt.Errorf("CPU manager policy option %s is not supported", name))
			continue
		}
		var err error
		if *field, err = strconv.ParseBool(options[name]); err != nil {
			errs = append(errs, fmt.Errorf("CPU manager policy option %s=%s: want true or false", name, options[name]))
		}
	}
	for _, pair := range [][2]string{
		{optionFullCores, optionSpreadCores}, {optionSpreadNodes, optionSpreadCores},
		{optionCaches, optionSpreadCores}, {optionCaches, optionSpreadNodes},
	} {
		if *fields[pair[0]] && *fields[pair[1]] {
			errs = append(errs, fmt.Errorf("CPU manager policy options %s and %s exclude each other", pair[0], pair[1]))
		}
	}
	return o, errors.Join(errs...)
}

// Config configures a Manager.
type Config struct {
	Options  Options
	Machine  hardware.Machine
	Reserved cpuset.CPUSet // never exclusive; empty: the first ReservedMilli / 1000 CPUs, rounded up
	// ReservedMilli is what --kube-reserved and --system-reserved reserve, in millicores.
	ReservedMilli int64
	Dir           string                // of the state file
	Registry      prometheus.Registerer // nil: no metrics
	Aligned       *topology.Aligned     // nil: not counted
	Log           *slog.Logger
}

// reserve returns the reserved CPUs: at least one, and not all.
func (c *Config) reserve() (cpuset.CPUSet, error) {
	all := c.Machine.All()
	if !c.Reserved.IsEmpty() {
		if !c.Reserved.IsSubsetOf(all) {
			return all, fmt.Errorf("the reserved CPUs %s are not all among the machine's CPUs %s", c.Reserved, all)
		}
		return c.Reserved, nil
	}
	if c.ReservedMilli <= 0 {
		return all, errors.New("the CPU manager policy static needs reserved CPUs: set --reserved-cpus, or cpu in --kube-reserved or --system-reserved")
	}
	n := int((c.ReservedMilli + 999) / 1000)
	if n > all.Size() {
		return all, fmt.Errorf("%d CPUs are to be reserved, the machine has %s", n, all)
	}
	return taker{machine: c.Machine}.take(all, n)
}

func (c *Config) validate() error {
	sockets := len(c.Machine.Groups(c.Machine.All(), hardware.BySocket))
	if c.Options.Sockets && sockets > len(c.Machine.Nodes) {
		return fmt.Errorf("CPU manager policy option %s: the machine has more sockets (%d) than NUMA nodes (%d)", optionSockets, sockets, len(c.Machine.Nodes))
	}
	return nil
}
