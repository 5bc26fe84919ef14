package pool

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Range is the addresses from First to Last, inclusive, of one family.
type Range struct{ First, Last netip.Addr }

// Pool is a named set of addresses.
type Pool struct {
	Name   string
	Ranges []Range
}

// ParseRange parses "10.0.0.240-10.0.0.250", "2001:db8::/120", or one address.
func ParseRange(text string) (Range, error) {
	if first, last, ok := strings.Cut(text, "-"); ok {
		return parseEnds(text, strings.TrimSpace(first), strings.TrimSpace(last))
	}
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			return Range{}, fmt.Errorf("%q is not a range of addresses: write 10.0.0.240-10.0.0.250, 10.0.0.240/29 or one address", text)
		case p != p.Masked():
			return Range{}, fmt.Errorf("%s has bits set behind its length: did you mean %s?", p, p.Masked())
		}
		r := Range{p.Addr(), last(p)}
		return r, r.check()
	}
	return parseEnds(text, text, text)
}

func parseEnds(text, first, last string) (Range, error) {
	a, errA := netip.ParseAddr(first)
	b, errB := netip.ParseAddr(last)
	if err := errors.Join(errA, errB); err != nil {
		return Range{}, fmt.Errorf("%q is not a range of addresses: write 10.0.0.240-10.0.0.250, 10.0.0.240/29 or one address", text)
	}
	r := Range{a, b}
	return r, r.check()
}

// last returns the highest address of a network.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < p.Addr().BitLen(); bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// check returns an error for a range that load balancers cannot use.
func (r Range) check() error {
	for _, a := range []netip.Addr{r.First, r.Last} {
		switch {
		case a.Zone() != "":
			return fmt.Errorf("%s has a zone: give the address without it", a)
		case a.Is4In6():
			return fmt.Errorf("%s is an IPv4 address written as IPv6: write %s", a, a.Unmap())
		case !a.IsGlobalUnicast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
			return fmt.Errorf("%s cannot be reached from other machines: it is no unicast address, or one of a loopback or link-local network", a)
		}
	}
	switch {
	case r.First.Is4() != r.Last.Is4():
		return fmt.Errorf("%s and %s are not of one family", r.First, r.Last)
	case r.Last.Less(r.First):
		return fmt.Errorf("%s comes after %s: the lower address goes first", r.First, r.Last)
	}
	return nil
}

// String returns the range in a form that ParseRange accepts.
func (r Range) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// Contains reports whether an address is in the range.
func (r Range) Contains(a netip.Addr) bool {
	return a.Is4() == r.First.Is4() && !a.Less(r.First) && !r.Last.Less(a)
}

// Overlaps reports whether two ranges have an address in common.
func (r Range) Overlaps(o Range) bool {
	return r.Contains(o.First) || o.Contains(r.First)
}

// Contains reports whether an address is in the pool.
func (p Pool) Contains(a netip.Addr) bool {
	for _, r := range p.Ranges {
		if r.Contains(a) {
			return true
		}
	}
	return false
}

// Has reports whether the pool has addresses of a family.
func (p Pool) Has(four bool) bool {
	for _, r := range p.Ranges {
		if r.First.Is4() == four {
			return true
		}
	}
	return false
}

// Free returns the pool's first unused address of a family, false if there is none. It calls
// used at most once more than there are addresses in use.
func (p Pool) Free(four bool, used func(netip.Addr) bool) (netip.Addr, bool) {
	for _, r := range p.Ranges {
		if r.First.Is4() != four {
			continue
		}
		for a := r.First; r.Contains(a); a = a.Next() {
			if !used(a) {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}
