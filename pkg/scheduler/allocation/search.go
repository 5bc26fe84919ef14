package allocation

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// maxSteps bounds a search: how many devices it tries to take. A search of ordinary claims
// takes one step for each device that it allocates.
const maxSteps = 100_000

// Errors of a search. The texts are upstream's.
var (
	ErrNoFit   = errors.New("cannot allocate all claims")
	ErrTooLong = errors.New("timed out trying to allocate devices")
)

// search is the state of one search.
type search struct {
	*Problem
	pools   []*pool
	devices map[*pool][]*device // that the node can use
	local   *Usage              // what the search has taken so far
	chosen  [][]choice          // by claim
	steps   int
	err     error // ends the search
}

// choice is a device that an option takes.
type choice struct {
	*option
	device   *device
	consumed quantities
}

// On searches devices for all claims on a node. It changes nothing. The error is for a user.
func (p *Problem) On(node *corev1.Node) ([]*resourcev1.AllocationResult, error) {
	s := &search{
		Problem: p, pools: p.index.near(node.Name), devices: map[*pool][]*device{}, local: NewUsage(), chosen: make([][]choice, len(p.claims)),
	}
	for _, pool := range s.pools {
		s.devices[pool] = pool.on(node)
	}
	if s.claim(0) {
		out := make([]*resourcev1.AllocationResult, len(p.claims))
		for i := range p.claims {
			out[i] = result(&p.claims[i], s.chosen[i], node)
		}
		return out, nil
	}
	if s.err != nil {
		return nil, s.err
	}
	return nil, ErrNoFit
}

// claim, request, option, every and pick satisfy their part of the problem and all that
// follows it, or take nothing and return false.

func (s *search) claim(c int) bool { return c == len(s.claims) || s.request(c, 0) }

func (s *search) request(c, r int) bool {
	if r == len(s.claims[c].requests) {
		return s.claim(c + 1)
	}
	options := s.claims[c].requests[r].options
	for i := range options {
		if s.option(c, r, &options[i]) {
			return true
		}
		if s.err != nil {
			return false
		}
	}
	return false
}

func (s *search) option(c, r int, o *option) bool {
	fit := s.matching(o)
	switch {
	case s.err != nil:
		return false
	case !o.all:
		return s.pick(c, r, o, fit, o.count)
	case len(fit) == 0 || len(s.chosen[c])+len(fit) > resourcev1.AllocationResultsMaxSize:
		return false
	}
	return s.every(c, r, o, fit)
}

// matching returns the devices on the node that an option may take. Those of a pool that is
// being updated are not used, and an option that wants all devices has to wait for them.
func (s *search) matching(o *option) (out []*device) {
	for _, p := range s.pools {
		devices := s.devices[p]
		switch {
		case p.incomplete && o.all:
			s.err = fmt.Errorf("claim %s, request %s: asks for all devices, but resource pool %s/%s is currently being updated", o.claim, o.name, p.Driver, p.Pool)
			return nil
		case p.invalid != "" && o.all:
			s.err = fmt.Errorf("claim %s, request %s: asks for all devices, but resource pool %s/%s is currently invalid: %s", o.claim, o.name, p.Driver, p.Pool, p.invalid)
			return nil
		case p.incomplete || p.invalid != "":
			continue
		}
		for _, d := range devices {
			ok, err := o.match(d)
			if err != nil {
				s.err = err
				return nil
			}
			if ok {
				out = append(out, d)
			}
		}
	}
	return out
}

// every takes all devices of the list.
func (s *search) every(c, r int, o *option, fit []*device) bool {
	if len(fit) == 0 {
		return s.request(c, r+1)
	}
	if !s.take(c, o, fit[0]) {
		return false
	}
	if s.every(c, r, o, fit[1:]) {
		return true
	}
	s.giveBack(c)
	return false
}

// pick takes count devices of the list, in its order: other orders are the same choice. A
// device that several claims may share can be taken again.
func (s *search) pick(c, r int, o *option, fit []*device, count int) bool {
	if count == 0 {
		return s.request(c, r+1)
	}
	if len(s.chosen[c])+count > resourcev1.AllocationResultsMaxSize {
		return false
	}
	for i, d := range fit {
		if !d.multiple && len(fit)-i < count && !anyMultiple(fit[i:]) {
			return false // too few are left
		}
		if !s.take(c, o, d) {
			continue
		}
		rest := fit[i+1:]
		if d.multiple {
			rest = fit[i:]
		}
		if s.pick(c, r, o, rest, count-1) {
			return true
		}
		s.giveBack(c)
		if s.err != nil {
			return false
		}
	}
	return false
}

func anyMultiple(devices []*device) bool {
	for _, d := range devices {
		if d.multiple {
			return true
		}
	}
	return false
}

// take adds a device to the choice for a claim. It reports whether that is possible.
func (s *search) take(c int, o *option, d *device) bool {
	if s.steps++; s.steps > maxSteps {
		s.err = ErrTooLong
		return false
	}
	consumed, _ := consumes(d, o.capacity)
	if !s.index.tolerated(d, o.tolerations) || !s.satisfies(c, o, d) {
		return false
	}
	if o.admin {
		consumed = nil
		if s.mine(c, o, d) {
			return false
		}
	} else if !s.free(d, consumed) {
		return false
	}
	s.chosen[c] = append(s.chosen[c], choice{o, d, consumed})
	if !o.admin {
		s.local.add(d.id, consumed)
	}
	return true
}

// mine reports whether an option has taken a device already.
func (s *search) mine(c int, o *option, d *device) bool {
	for _, ch := range s.chosen[c] {
		if ch.option == o && ch.device == d {
			return true
		}
	}
	return false
}

// giveBack undoes the last take for a claim.
func (s *search) giveBack(c int) {
	last := s.chosen[c][len(s.chosen[c])-1]
	s.chosen[c] = s.chosen[c][:len(s.chosen[c])-1]
	if !last.admin {
		s.local.remove(last.device.id, last.consumed)
	}
}

// free reports whether a device, or that much of a shared one, is not allocated.
func (s *search) free(d *device, consumed quantities) bool {
	used, mine := s.usage.used(d.id), s.local.used(d.id)
	if !d.multiple {
		return !used && !mine && s.countersLeft(d)
	}
	for name, amount := range consumed {
		sum := s.usage.taken(d.id, name).DeepCopy()
		sum.Add(s.local.taken(d.id, name))
		sum.Add(amount)
		total := d.Capacity[name].Value
		if sum.Cmp(total) > 0 {
			return false
		}
	}
	return used || mine || s.countersLeft(d)
}

// countersLeft reports whether the counters that a device consumes have enough left.
func (s *search) countersLeft(d *device) bool {
	for _, want := range d.ConsumesCounters {
		for name, amount := range want.Counters {
			sum := amount.Value.DeepCopy()
			for _, other := range d.pool.consuming {
				if !s.usage.used(other.id) && !s.local.used(other.id) {
					continue
				}
				for _, c := range other.ConsumesCounters {
					if of, consumes := c.Counters[name]; consumes && c.CounterSet == want.CounterSet {
						sum.Add(of.Value)
					}
				}
			}
			if sum.Cmp(d.pool.counters[want.CounterSet][name]) > 0 {
				return false
			}
		}
	}
	return true
}

// satisfies reports whether a device fits the claim's constraints, together with the devices
// that are taken for the claim already.
func (s *search) satisfies(c int, o *option, d *device) bool {
	for _, i := range o.constraints {
		constraint := &s.claims[c].Spec.Devices.Constraints[i]
		for _, ch := range s.chosen[c] {
			if !applies(constraint.Requests, ch.name) {
				continue
			}
			if !agree(constraint, d, ch.device) {
				return false
			}
		}
		if !agree(constraint, d, nil) {
			return false
		}
	}
	return true
}

// agree reports whether two devices satisfy a constraint; with a nil other, whether the
// device has the attribute.
func agree(c *resourcev1.DeviceConstraint, d, other *device) bool {
	name, distinct := c.MatchAttribute, false
	if name == nil {
		name, distinct = c.DistinctAttribute, true
	}
	if name == nil {
		return false // of a version that is not known: it cannot be satisfied
	}
	value, ok := attribute(d, *name)
	if !ok || other == nil {
		return ok
	}
	theirs, ok := attribute(other, *name)
	return ok && (value == theirs) != distinct
}

// Stamp changes whenever the answer of On for a node may change, as long as the node does not.
type Stamp struct{ index, usage int64 }

// Stamp returns the present stamp of a node.
func (p *Problem) Stamp(node string) Stamp {
	s := Stamp{index: p.index.version}
	for _, pool := range p.index.near(node) {
		s.usage += p.usage.versions[pool.PoolID] // each only grows
	}
	return s
}
