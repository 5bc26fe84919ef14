package conntrack

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Kernel is this machine's connection tracking, by netlink.
type Kernel struct{}

// Delete implements Table.
func (Kernel) Delete(doomed func(Flow) bool) (int, error) {
	n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, filter(doomed))
	if err != nil {
		return int(n), fmt.Errorf("delete tracked connections: %w", err)
	}
	return int(n), nil
}

type filter func(Flow) bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (doomed filter) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	return f.Forward.Protocol == unix.IPPROTO_UDP && doomed(read(f))
}

func read(f *netlink.ConntrackFlow) Flow {
	return Flow{
		Source:      addrPort(f.Forward.SrcIP, f.Forward.SrcPort),
		Destination: addrPort(f.Forward.DstIP, f.Forward.DstPort),
		Backend:     addrPort(f.Reverse.SrcIP, f.Reverse.SrcPort),
	}
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}
