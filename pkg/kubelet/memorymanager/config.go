package memorymanager

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podium/pkg/kubelet/hardware"
)

// The policies.
const (
	None   = "None"
	Static = "Static"
)

// Reservation is the memory of one NUMA node that is not for pods.
type Reservation struct {
	Node   int                 `json:"numaNode"`
	Limits corev1.ResourceList `json:"limits"`
}

// ParseReservation parses upstream's form of a flag: 0:memory=1Gi,hugepages-2Mi=4Mi.
func ParseReservation(text string) (Reservation, error) {
	node, limits, _ := strings.Cut(text, ":")
	id, err := strconv.ParseUint(node, 10, 16)
	if err != nil {
		return Reservation{}, fmt.Errorf("%q: want NODE:RESOURCE=QUANTITY", text)
	}
	r := Reservation{Node: int(id), Limits: corev1.ResourceList{}}
	for _, pair := range strings.Split(limits, ",") {
		name, value, _ := strings.Cut(pair, "=")
		q, err := resource.ParseQuantity(value)
		if err != nil {
			return Reservation{}, fmt.Errorf("%q: %q: %w", text, pair, err)
		}
		r.Limits[corev1.ResourceName(name)] = q
	}
	return r, nil
}

// ValidateReservations returns everything that is wrong with the list, joined.
func ValidateReservations(list []Reservation) error {
	var errs []error
	seen := map[int]bool{}
	for _, r := range list {
		if seen[r.Node] {
			errs = append(errs, fmt.Errorf("NUMA node %d appears twice", r.Node))
		}
		seen[r.Node] = true
		for name, q := range r.Limits {
			if !managed(name) || q.Sign() < 0 {
				errs = append(errs, fmt.Errorf("NUMA node %d: %s=%s: want memory or huge pages, not negative", r.Node, name, q.String()))
			}
		}
	}
	return errors.Join(errs...)
}

// managed reports whether the package allocates the resource.
func managed(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// maxNodes limits the number of groups, which doubles with each node.
const maxNodes = 16

// Config configures a Manager.
type Config struct {
	Machine  hardware.Machine
	Reserved []Reservation
	// Expected is the sum of Reserved that the other flags require: what is reserved
	// on the node as a whole and, of memory, the hard eviction threshold.
	Expected corev1.ResourceList
	Dir      string                // of the state file
	Registry prometheus.Registerer // nil: no metrics
	Log      *slog.Logger
}

// validate checks the reservations against the machine and the node's reservation.
func (c *Config) validate() error {
	errs := []error{ValidateReservations(c.Reserved)}
	if ids := c.Machine.NodeIDs(); len(ids) > maxNodes || len(ids) > 0 && ids[len(ids)-1] >= 64 {
		return fmt.Errorf("the memory manager policy %s supports %d NUMA nodes with ids below 64, the machine has %v", Static, maxNodes, ids)
	}
	sums := map[corev1.ResourceName]int64{}
	for _, r := range c.Reserved {
		if _, known := c.Machine.Nodes[r.Node]; !known {
			errs = append(errs, fmt.Errorf("the machine has no NUMA node %d", r.Node))
		}
		for name, q := range r.Limits {
			sums[name] += q.Value()
		}
	}
	for name := range c.Expected {
		if managed(name) {
			sums[name] += 0
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		want := c.Expected[name]
		if sums[name] != want.Value() {
			errs = append(errs, fmt.Errorf("the total amount %d of type %q is not equal to the value %d determined by Node Allocatable feature: --kube-reserved, --system-reserved and, of memory, --eviction-hard", sums[name], name, want.Value()))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("reserved memory: %w", err)
	}
	return nil
}

// tables returns what each NUMA node has of each resource.
func (c *Config) tables() nodeMap {
	out := nodeMap{}
	for id, n := range c.Machine.Nodes {
		reserved := corev1.ResourceList{}
		for _, r := range c.Reserved {
			if r.Node == id {
				reserved = r.Limits
			}
		}
		tables := map[corev1.ResourceName]*memoryTable{}
		pages := int64(0)
		for size, total := range n.HugePages {
			name := corev1.ResourceName(corev1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String())
			tables[name] = newTable(total, total, reserved[name])
			pages += total
		}
		tables[corev1.ResourceMemory] = newTable(n.Memory, n.Memory-pages, reserved[corev1.ResourceMemory])
		out[id] = &nodeState{MemoryMap: tables, Cells: []int{id}}
	}
	return out
}

func newTable(total, usable int64, reserved resource.Quantity) *memoryTable {
	left := uint64(max(usable-reserved.Value(), 0))
	return &memoryTable{TotalMemSize: uint64(total), SystemReserved: uint64(reserved.Value()), Allocatable: left, Free: left}
}
