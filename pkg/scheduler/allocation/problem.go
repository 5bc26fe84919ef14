package allocation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"podium/pkg/deviceselector"
)

// Claim is a claim that has no devices yet.
type Claim struct {
	Name string // in messages
	Spec *resourcev1.ResourceClaimSpec
}

// Problem is what the claims of a pod ask for. It remembers which devices match. It is not
// safe for concurrent use.
type Problem struct {
	claims []problemClaim
	index  *Index
	usage  *Usage
}

type problemClaim struct {
	Claim
	requests []request
}

// request is satisfied by the first of its options that can be.
type request struct {
	name    string
	options []option
}

// option is what a request, or one of its alternatives, asks for.
type option struct {
	claim, request, name string // name is "request" or "request/subrequest"
	class                *resourcev1.DeviceClass
	selectors            []selector
	all                  bool
	count                int
	admin                bool
	tolerations          []resourcev1.DeviceToleration
	capacity             quantities
	constraints          []int // indexes of the claim's constraints that apply

	matches map[*device]match
}

// match is a cached answer: whether a device has what an option asks for.
type match struct {
	ok  bool
	err error
}

// maxMatches is how many answers an option caches before it drops them all.
const maxMatches = 1 << 17

type selector struct {
	*deviceselector.Selector
	where string // in messages
}

// NewProblem prepares the claims of a pod. class returns a class, nil if it does not exist.
// The error is for a user: a class is missing, or a selector does not compile.
func NewProblem(claims []Claim, class func(name string) *resourcev1.DeviceClass, compiler *deviceselector.Compiler, index *Index, usage *Usage) (*Problem, error) {
	p := &Problem{index: index, usage: usage}
	for _, c := range claims {
		pc := problemClaim{Claim: c}
		for i := range c.Spec.Devices.Requests {
			r := &c.Spec.Devices.Requests[i]
			out := request{name: r.Name}
			for _, o := range optionsOf(c.Name, r) {
				if err := o.prepare(c.Spec, class, compiler); err != nil {
					return nil, err
				}
				out.options = append(out.options, o.option)
			}
			pc.requests = append(pc.requests, out)
		}
		p.claims = append(p.claims, pc)
	}
	return p, nil
}

// draft is an option that is being prepared.
type draft struct {
	option
	className string
	own       []resourcev1.DeviceSelector
}

func optionsOf(claim string, r *resourcev1.DeviceRequest) []draft {
	if e := r.Exactly; e != nil {
		return []draft{{
			option: option{
				claim: claim, request: r.Name, name: r.Name, all: e.AllocationMode == resourcev1.DeviceAllocationModeAll,
				count: int(e.Count), admin: isTrue(e.AdminAccess), tolerations: e.Tolerations, capacity: capacityOf(e.Capacity),
			},
			className: e.DeviceClassName, own: e.Selectors,
		}}
	}
	var out []draft
	for i := range r.FirstAvailable {
		s := &r.FirstAvailable[i]
		out = append(out, draft{
			option: option{
				claim: claim, request: r.Name, name: r.Name + "/" + s.Name, all: s.AllocationMode == resourcev1.DeviceAllocationModeAll,
				count: int(s.Count), tolerations: s.Tolerations, capacity: capacityOf(s.Capacity),
			},
			className: s.DeviceClassName, own: s.Selectors,
		})
	}
	return out
}

func capacityOf(c *resourcev1.CapacityRequirements) quantities {
	if c == nil {
		return nil
	}
	return c.Requests
}

// prepare finds the class, compiles the selectors and finds the constraints of an option.
func (o *draft) prepare(spec *resourcev1.ResourceClaimSpec, class func(name string) *resourcev1.DeviceClass, compiler *deviceselector.Compiler) error {
	o.matches = map[*device]match{}
	if o.class = class(o.className); o.class == nil {
		return fmt.Errorf("claim %s: request %s: device class %s does not exist", o.claim, o.name, o.className)
	}
	add := func(list []resourcev1.DeviceSelector, where string) error {
		for i := range list {
			if list[i].CEL == nil {
				continue
			}
			s := compiler.Compile(list[i].CEL.Expression, true)
			where := fmt.Sprintf("%s: selector #%d", where, i)
			if s.Error != nil {
				return fmt.Errorf("claim %s: %s: CEL compile error: %w", o.claim, where, s.Error)
			}
			o.selectors = append(o.selectors, selector{s, where})
		}
		return nil
	}
	if err := add(o.class.Spec.Selectors, "class "+o.class.Name); err != nil {
		return err
	}
	if err := add(o.own, "request "+o.name); err != nil {
		return err
	}
	for i := range spec.Devices.Constraints {
		if applies(spec.Devices.Constraints[i].Requests, o.name) {
			o.constraints = append(o.constraints, i)
		}
	}
	return nil
}

// applies reports whether a list of names of requests includes an option. An empty list
// includes all; the name of a request includes all of its options.
func applies(requests []string, name string) bool {
	base, _, _ := strings.Cut(name, "/")
	return len(requests) == 0 || slices.Contains(requests, name) || slices.Contains(requests, base)
}

// match reports whether a device has what the option asks for, allocated or not.
func (o *option) match(d *device) (bool, error) {
	m, known := o.matches[d]
	if !known {
		m.ok, m.err = o.evaluate(d)
		if len(o.matches) >= maxMatches {
			clear(o.matches)
		}
		o.matches[d] = m
	}
	return m.ok, m.err
}

func (o *option) evaluate(d *device) (bool, error) {
	for _, s := range o.selectors {
		ok, err := s.Matches(context.Background(), d.seen)
		if err != nil {
			return false, fmt.Errorf("claim %s: %s: device %s/%s/%s: CEL %w", o.claim, s.where, d.id.Driver, d.id.Pool, d.id.Device, err)
		}
		if !ok {
			return false, nil
		}
	}
	_, enough := consumes(d, o.capacity)
	return enough, nil
}
