package docker

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"strings"

	"podium/api/config/v1alpha1"
)

// pool is the range from which each cluster gets a /24.
var pool = netip.MustParsePrefix("10.87.0.0/16")

// candidates returns the ranges that a cluster may use, in order of preference.
// The first depends on the name only, so that a cluster gets the same addresses
// again if they are free.
func candidates(cluster string) []netip.Prefix {
	hash := fnv.New32a()
	hash.Write([]byte(cluster)) // never returns an error
	base := pool.Addr().As4()
	out := make([]netip.Prefix, 256)
	for i := range out {
		base[2] = byte(hash.Sum32()>>8) + byte(i)
		out[i] = netip.PrefixFrom(netip.AddrFrom4(base), 24)
	}
	return out
}

// balancers returns the addresses at the end of a cluster's range, in its IP
// family, for Services of type LoadBalancer. They do not overlap with others:
// the engine assigns addresses from the first half, and nodes get theirs from
// its start.
func (o *Options) balancers(p netip.Prefix) string {
	if o.six() {
		p = sixth(p)
	}
	first, last := p.Addr().AsSlice(), p.Addr().AsSlice()
	first[len(first)-1], last[len(last)-1] = 224, 254
	a, _ := netip.AddrFromSlice(first)
	b, _ := netip.AddrFromSlice(last)
	return a.String() + "-" + b.String()
}

// createNetwork creates the cluster's network in a free range, and assigns an
// address to each node: the engine keeps an address over a restart only if it
// was requested, and only in a subnet that was.
func (o *Options) createNetwork(ctx context.Context, nodes []*node) error {
	taken, err := hostRanges()
	if err != nil {
		return err
	}
	taken = append(taken, o.ranges()...)
	cluster := o.Cluster.Metadata.Name
	for _, p := range candidates(cluster) {
		if overlaps(p, taken) || o.six() && overlaps(sixth(p), taken) {
			continue
		}
		args := []string{"network", "create", "--driver", "bridge",
			"--subnet", p.String(), "--gateway", p.Addr().Next().String(), "--ip-range", netip.PrefixFrom(p.Addr(), 25).String(),
			"--label", labelled(cluster), "--label", v1alpha1.LabelBalancers + "=" + o.balancers(p)}
		if o.six() {
			args = append(args, "--ipv6", "--subnet", sixth(p).String())
		}
		_, err := o.Engine.output(ctx, append(args, v1alpha1.NetworkName(cluster))...)
		if err == nil {
			o.number(nodes, p)
			return nil
		}
		if !strings.Contains(err.Error(), "overlaps") {
			return err
		}
	}
	return fmt.Errorf("no range of %s is free for the cluster's network\n    → remove unused networks: docker network prune", pool)
}

func (o *Options) six() bool { return o.Cluster.Networking.IPFamily == v1alpha1.IPv6 }

// sixth returns the IPv6 range that belongs to a range of candidates.
func sixth(p netip.Prefix) netip.Prefix {
	base := netip.MustParseAddr("fd00:10:87::").As16()
	base[7] = p.Addr().As4()[2]
	return netip.PrefixFrom(netip.AddrFrom16(base), 64)
}

// number assigns addresses to the nodes, from the one after the gateway's.
func (o *Options) number(nodes []*node, p netip.Prefix) {
	four, six := p.Addr().Next(), sixth(p).Addr().Next()
	for _, n := range nodes {
		four, six = four.Next(), six.Next()
		n.ipv4, n.address = four.String(), four.String()
		if o.six() {
			n.address = six.String()
		}
	}
}

// ranges returns the ranges of pods and Services.
func (o *Options) ranges() (out []netip.Prefix) {
	n := o.Cluster.Networking
	for _, text := range []string{n.PodSubnet, n.ServiceSubnet} {
		if p, err := netip.ParsePrefix(text); err == nil { // Options.Cluster is valid
			out = append(out, p)
		}
	}
	return out
}

func overlaps(p netip.Prefix, others []netip.Prefix) bool {
	for _, other := range others {
		if p.Overlaps(other) {
			return true
		}
	}
	return false
}

// hostRanges returns the ranges of this machine's interfaces.
func hostRanges() (out []netip.Prefix, err error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list this machine's addresses: %w", err)
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out, nil
}
