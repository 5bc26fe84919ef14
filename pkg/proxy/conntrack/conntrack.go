package conntrack

import (
	"net/netip"
)

// Flow is one tracked UDP connection: what the client asked for and who answers.
type Flow struct {
	Source, Destination netip.AddrPort // as the client sent it
	Backend             netip.AddrPort // after DNAT; equal to Destination without
}

// Table is the kernel's list of UDP flows.
type Table interface {
	// Delete removes the flows for which doomed holds, and counts them.
	Delete(doomed func(Flow) bool) (int, error)
}

// Frontends says which endpoints stand behind each address that serves UDP.
type Frontends struct {
	byAddr     map[netip.AddrPort]backends
	byNodePort map[uint16]backends
}

type backends map[netip.AddrPort]struct{}

// Add notes endpoints behind an address, NodePort those behind a port of the
// node. One address may be added several times; the endpoints add up.
func (f *Frontends) Add(addr netip.AddrPort, endpoints []netip.AddrPort) {
	if f.byAddr == nil {
		f.byAddr = map[netip.AddrPort]backends{}
	}
	f.byAddr[addr] = f.byAddr[addr].with(endpoints)
}

// NodePort notes endpoints behind a node port.
func (f *Frontends) NodePort(port uint16, endpoints []netip.AddrPort) {
	if f.byNodePort == nil {
		f.byNodePort = map[uint16]backends{}
	}
	f.byNodePort[port] = f.byNodePort[port].with(endpoints)
}

// Empty says that no frontend was added.
func (f *Frontends) Empty() bool { return len(f.byAddr) == 0 && len(f.byNodePort) == 0 }

func (b backends) with(endpoints []netip.AddrPort) backends {
	if b == nil {
		b = backends{}
	}
	for _, e := range endpoints {
		b[e] = struct{}{}
	}
	return b
}

// Stale says that the flow goes through one of the frontends to something
// that is not behind it: a dead endpoint, or nothing at all from the time
// before there were endpoints.
func (f *Frontends) Stale(flow Flow) bool {
	behind, ours := f.byAddr[flow.Destination]
	if !ours {
		behind, ours = f.byNodePort[flow.Destination.Port()]
		if flow.Backend == flow.Destination {
			return false // a port number of ours in a flow that was never translated
		}
	}
	if !ours {
		return false
	}
	if flow.Backend == flow.Destination {
		return len(behind) > 0
	}
	_, alive := behind[flow.Backend]
	return !alive
}
