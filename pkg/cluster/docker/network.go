package docker

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"strings"
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

// createNetwork makes the cluster's network, and gives each node an address on
// it: the engine keeps addresses over a restart only if they were asked for,
// and only in a range that was.
func (o *Options) createNetwork(ctx context.Context, nodes []*node) error {
	taken, err := hostRanges()
	if err != nil {
		return err
	}
	cluster := o.Cluster.Metadata.Name
	for _, p := range candidates(cluster) {
		if overlaps(p, append(taken, o.ranges()...)) {
			continue
		}
		_, err := o.Engine.output(ctx, "network", "create", "--driver", "bridge", "--subnet", p.String(), "--label", labelled(cluster), networkName(cluster))
		if err == nil {
			address := p.Addr().Next() // the gateway's
			for _, n := range nodes {
				address = address.Next()
				n.address = address.String()
			}
			return nil
		}
		if !strings.Contains(err.Error(), "overlaps") {
			return err
		}
	}
	return fmt.Errorf("no range of %s is free for the cluster's network\n    → remove networks that nobody uses: docker network prune", pool)
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
