package nodeipam

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
)

var errFull = errors.New("no pod addresses are left for another node")

// pool allocates the subnets of one size of an address range. It is not safe for concurrent
// use.
type pool struct {
	cidr netip.Prefix
	size int // prefix length of a subnet
	used map[netip.Prefix]bool
	next int // where the search starts
	max  int

	foreign []netip.Prefix // used ranges of other sizes, such as the service addresses
}

// maxSubnets is the maximum number of subnets of a pool.
const maxSubnets = 1 << 16

func newPool(cidr netip.Prefix, size int) (*pool, error) {
	if size < cidr.Bits() || size > cidr.Addr().BitLen() {
		return nil, fmt.Errorf("--cluster-cidr %s has no subnets of /%d", cidr, size)
	}
	if size-cidr.Bits() > 16 {
		return nil, fmt.Errorf("--cluster-cidr %s has more than %d subnets of /%d: use a smaller range or bigger subnets", cidr, maxSubnets, size)
	}
	return &pool{cidr: cidr.Masked(), size: size, used: map[netip.Prefix]bool{}, max: 1 << (size - cidr.Bits())}, nil
}

// take returns an unused subnet and marks it as used. It returns errFull if there is none.
func (p *pool) take() (netip.Prefix, error) {
	for range p.max {
		s := p.subnet(p.next)
		p.next = (p.next + 1) % p.max
		if !p.used[s] && !p.reserved(s) {
			p.used[s] = true
			return s, nil
		}
	}
	return netip.Prefix{}, errFull
}

func (p *pool) subnet(i int) netip.Prefix {
	base := new(big.Int).SetBytes(p.cidr.Addr().AsSlice())
	base.Add(base, new(big.Int).Lsh(big.NewInt(int64(i)), uint(p.cidr.Addr().BitLen()-p.size)))
	bytes := base.FillBytes(make([]byte, p.cidr.Addr().BitLen()/8))
	addr, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(addr, p.size)
}

// reserved reports whether the subnet overlaps a foreign range.
func (p *pool) reserved(s netip.Prefix) bool {
	return slices.ContainsFunc(p.foreign, s.Overlaps)
}

// mark marks a range of any size as used.
func (p *pool) mark(s netip.Prefix) {
	s = s.Masked()
	switch {
	case !p.cidr.Overlaps(s):
	case s.Bits() == p.size:
		p.used[s] = true
	case !slices.Contains(p.foreign, s):
		p.foreign = append(p.foreign, s)
	}
}

func (p *pool) free(s netip.Prefix) { delete(p.used, s) }
