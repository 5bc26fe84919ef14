package topology

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/kubelet/hardware"
)

// The policies.
const (
	None       = "none"             // no alignment
	BestEffort = "best-effort"      // pods are admitted without alignment if none is possible
	Restricted = "restricted"       // pods are refused if a better alignment would be possible on the idle machine
	SingleNode = "single-numa-node" // pods are refused if one node cannot serve them
)

// The scopes: what is aligned.
const (
	ScopeContainer = "container" // each container by itself
	ScopePod       = "pod"       // all containers of a pod together
)

// The options of the policies.
const (
	optionClosest  = "prefer-closest-numa-nodes"
	optionMaxNodes = "max-allowable-numa-nodes"
)

// defaultMaxNodes limits the number of hints, which doubles with each node.
const defaultMaxNodes = 8

// Config configures a Manager.
type Config struct {
	Policy    string            // "": None
	Scope     string            // "": ScopeContainer
	Options   map[string]string // of the policy
	Machine   hardware.Machine  // not used by None
	Providers []Provider
	Registry  prometheus.Registerer // nil: no metrics
	Aligned   *Aligned              // nil: not counted
}

// settings are the parsed options.
type settings struct {
	closest  bool
	maxNodes int
}

// Validate returns everything that is wrong with the names and options, joined.
func (c Config) Validate() error {
	var errs []error
	if !slices.Contains([]string{"", None, BestEffort, Restricted, SingleNode}, c.Policy) {
		errs = append(errs, fmt.Errorf("topology manager policy %q: want %s", c.Policy, strings.Join([]string{None, BestEffort, Restricted, SingleNode}, ", ")))
	}
	if !slices.Contains([]string{"", ScopeContainer, ScopePod}, c.Scope) {
		errs = append(errs, fmt.Errorf("topology manager scope %q: want %s or %s", c.Scope, ScopeContainer, ScopePod))
	}
	_, err := c.settings()
	return errors.Join(append(errs, err)...)
}

func (c Config) settings() (settings, error) {
	out := settings{maxNodes: defaultMaxNodes}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Options)) {
		var err error
		switch value := c.Options[name]; name {
		case optionClosest:
			out.closest, err = strconv.ParseBool(value)
		case optionMaxNodes:
			if out.maxNodes, err = strconv.Atoi(value); err == nil && (out.maxNodes < defaultMaxNodes || out.maxNodes > maxNodes) {
				err = fmt.Errorf("want %d to %d", defaultMaxNodes, maxNodes)
			}
		default:
			err = errors.New("the option is not supported")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("topology manager policy option %s=%s: %w", name, c.Options[name], err))
		}
	}
	return out, errors.Join(errs...)
}

// check returns why the machine cannot have the policy.
func (c Config) check(s settings) error {
	ids := c.Machine.NodeIDs()
	if len(ids) > s.maxNodes {
		return fmt.Errorf("topology manager policy %s: the machine has %d NUMA nodes, the option %s permits %d", c.Policy, len(ids), optionMaxNodes, s.maxNodes)
	}
	if len(ids) > 0 && ids[len(ids)-1] >= maxNodes {
		return fmt.Errorf("topology manager policy %s: NUMA node %d: only ids below %d are supported", c.Policy, ids[len(ids)-1], maxNodes)
	}
	if !s.closest {
		return nil
	}
	for _, n := range c.Machine.Nodes {
		if n.Distances == nil {
			return fmt.Errorf("topology manager policy option %s: the kernel does not tell the distances of NUMA node %d", optionClosest, n.ID)
		}
	}
	return nil
}
