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

// pool is where the networks of clusters are taken from, a /24 each.
var pool = netip.MustParsePrefix("10.87.0.0/16")

// candidates are the ranges that a cluster may use, a first one of its own
// first: the same name gets the same addresses when they are free.
func candidates(cluster string) []netip.Prefix {
	hash := fnv.New32a()
	hash.Write([]byte(cluster)) // never fails
	base := pool.Addr().As4()
	out := make([]netip.Prefix, 256)
	for i := range out {
		base[2] = byte(hash.Sum32()>>8) + byte(i)
		out[i] = netip.PrefixFrom(netip.AddrFrom4(base), 24)
	}
	return out
}

// balancers are the addresses of a cluster's range for its Services, of its
// family: the last ones. To containers that do not ask for an address the engine
// gives one of the first half; nodes begin there too, and there are never so many
// that they get as far.
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

// createNetwork makes the cluster's network, and gives each node an address on
// it: the engine keeps addresses over a restart only if they were asked for,
// and only in a range that was.
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
	return fmt.Errorf("no range of %s is free for the cluster's network\n    → remove networks that nobody uses: docker network prune", pool)
}

func (o *Options) six() bool { return o.Cluster.Networking.IPFamily == v1alpha1.IPv6 }

// sixth is the IPv6 range that belongs to one of the candidates.
func sixth(p netip.Prefix) netip.Prefix {
	base := netip.MustParseAddr("fd00:10:87::").As16()
	base[7] = p.Addr().As4()[2]
	return netip.PrefixFrom(netip.AddrFrom16(base), 64)
}

// number gives the nodes their addresses, behind the gateway's.
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

// ranges are those of pods and Services.
func (o *Options) ranges() (out []netip.Prefix) {
	n := o.Cluster.Networking
	for _, text := range []string{n.PodSubnet, n.ServiceSubnet} {
		if p, err := netip.ParsePrefix(text); err == nil { // it is valid
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

// hostRanges are those of this machine's interfaces.
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
