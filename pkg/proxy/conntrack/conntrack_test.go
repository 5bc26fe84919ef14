package conntrack

import (
	"net/netip"
	"testing"
)

func TestStale(t *testing.T) {
	at := netip.MustParseAddrPort
	var f Frontends
	f.Add("udp", at("10.96.0.10:53"), []netip.AddrPort{at("10.244.0.1:1053")})
	f.Add("udp", at("10.96.0.11:53"), nil)
	f.NodePort("udp", 30053, []netip.AddrPort{at("10.244.0.1:1053")})
	f.Add("tcp", at("10.96.0.10:53"), []netip.AddrPort{at("10.244.0.1:1053")})
	for name, tc := range map[string]struct {
		reason      string
		dst, behind string
		want        bool
	}{
		"Alive":            {"the endpoint is there", "10.96.0.10:53", "10.244.0.1:1053", false},
		"Dead":             {"the endpoint is gone", "10.96.0.10:53", "10.244.0.2:1053", true},
		"NeverTranslated":  {"from before there were endpoints: it would stay blind to them", "10.96.0.10:53", "10.96.0.10:53", true},
		"StillNowhere":     {"nothing is gained by ending it", "10.96.0.11:53", "10.96.0.11:53", false},
		"LastEndpointGone": {"answers cannot come any more", "10.96.0.11:53", "10.244.0.1:1053", true},
		"NodePortAlive":    {"any address of the node", "192.0.2.10:30053", "10.244.0.1:1053", false},
		"NodePortDead":     {"any address of the node", "192.0.2.10:30053", "10.244.0.2:1053", true},
		"SamePortNotOurs":  {"a flow through this node to a port of that number elsewhere", "198.51.100.1:30053", "198.51.100.1:30053", false},
		"Foreign":          {"none of our addresses", "8.8.8.8:53", "8.8.8.8:53", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := f.Stale(Flow{Protocol: "udp", Destination: at(tc.dst), Backend: at(tc.behind)}); got != tc.want {
				t.Errorf("got %v, want %v: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestTCPFlowsEndThemselves(t *testing.T) {
	at := netip.MustParseAddrPort
	var f Frontends
	f.Add("tcp", at("10.96.0.10:80"), []netip.AddrPort{at("10.244.0.1:8080")})
	flow := Flow{Protocol: "tcp", Destination: at("10.96.0.10:80"), Backend: at("10.244.0.2:8080")}
	if f.Stale(flow) {
		t.Error("a connection to an endpoint that leaves must be let finish")
	}
	flow.Backend = flow.Destination
	if !f.Stale(flow) {
		t.Error("a connection from before the rules leads nowhere, and keeps its port from leading anywhere")
	}
}
