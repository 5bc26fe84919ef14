package conntrack

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Kernel implements Table by netlink. It needs CAP_NET_ADMIN.
type Kernel struct {
	Six bool // IPv6 flows, else IPv4 flows
}

// Delete implements Table.
func (k Kernel) Delete(doomed func(Flow) bool) (int, error) {
	family := netlink.InetFamily(unix.AF_INET)
	if k.Six {
		family = unix.AF_INET6
	}
	n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, filter(doomed))
	if err != nil {
		return int(n), fmt.Errorf("delete tracked connections: %w", err)
	}
	return int(n), nil
}

type filter func(Flow) bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (doomed filter) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	switch f.Forward.Protocol {
	case unix.IPPROTO_UDP:
		return doomed(read(f, "udp"))
	case unix.IPPROTO_TCP:
		return doomed(read(f, "tcp"))
	}
	return false
}

func read(f *netlink.ConntrackFlow, protocol string) Flow {
	return Flow{
		Protocol:    protocol,
		Source:      addrPort(f.Forward.SrcIP, f.Forward.SrcPort),
		Destination: addrPort(f.Forward.DstIP, f.Forward.DstPort),
		Backend:     addrPort(f.Reverse.SrcIP, f.Reverse.SrcPort),
	}
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}
