package conntrack

import (
	"net/netip"
)

// Flow is one tracked connection.
type Flow struct {
	Protocol            string         // udp or tcp
	Source, Destination netip.AddrPort // as the client sent it
	Backend             netip.AddrPort // after DNAT; equal to Destination without DNAT
}

// Table is the kernel's table of UDP and TCP flows.
type Table interface {
	// Delete deletes the flows for which doomed returns true, and returns their number.
	Delete(doomed func(Flow) bool) (int, error)
}

// Frontends holds the endpoints behind each served address. The zero value is empty.
// It is not safe for concurrent use.
type Frontends struct {
	byAddr     map[frontend]backends
	byNodePort map[frontend]backends // with a zero address
}

type frontend struct {
	protocol string
	addr     netip.AddrPort
}

type backends map[netip.AddrPort]struct{}

// Add adds endpoints behind an address. Endpoints of several calls for one address
// accumulate.
func (f *Frontends) Add(protocol string, addr netip.AddrPort, endpoints []netip.AddrPort) {
	f.byAddr = with(f.byAddr, frontend{protocol, addr}, endpoints)
}

// NodePort adds endpoints behind a node port.
func (f *Frontends) NodePort(protocol string, port uint16, endpoints []netip.AddrPort) {
	f.byNodePort = with(f.byNodePort, onAnyAddress(protocol, port), endpoints)
}

func onAnyAddress(protocol string, port uint16) frontend {
	return frontend{protocol, netip.AddrPortFrom(netip.Addr{}, port)}
}

func with(m map[frontend]backends, at frontend, endpoints []netip.AddrPort) map[frontend]backends {
	if m == nil {
		m = map[frontend]backends{}
	}
	if m[at] == nil {
		m[at] = backends{}
	}
	for _, e := range endpoints {
		m[at][e] = struct{}{}
	}
	return m
}

// Empty reports whether no frontend was added.
func (f *Frontends) Empty() bool { return len(f.byAddr) == 0 && len(f.byNodePort) == 0 }

// Stale reports whether the flow goes through one of the frontends to something that
// is not behind it: a removed endpoint, or no endpoint at all, from a time without
// endpoints or rules. A TCP flow to an endpoint is never stale: its two ends notice
// when it is over.
func (f *Frontends) Stale(flow Flow) bool {
	untranslated := flow.Backend == flow.Destination
	behind, ours := f.byAddr[frontend{flow.Protocol, flow.Destination}]
	if !ours {
		if untranslated {
			return false // a flow to another host that happens to use one of our ports
		}
		behind, ours = f.byNodePort[onAnyAddress(flow.Protocol, flow.Destination.Port())]
	}
	switch {
	case !ours:
		return false
	case untranslated:
		return len(behind) > 0
	}
	_, alive := behind[flow.Backend]
	return !alive && flow.Protocol == "udp"
}
