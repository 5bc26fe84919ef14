package services

import (
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// candidate is an endpoint with the conditions and hints that decide whether it is used.
type candidate struct {
	Endpoint
	ready       bool
	serving     bool
	terminating bool
	zones       []string // topology hints; nil: none
	nodes       []string
}

// better reports whether c takes precedence over another entry for the same address:
// two slices may have it while the controller moves it.
func (c candidate) better(than candidate) bool {
	if c.ready != than.ready {
		return c.ready
	}
	return c.serving && !than.serving
}

// gather returns the candidates of one service port in all slices.
func gather(sl []*discoveryv1.EndpointSlice, port, protocol string, node Node) []candidate {
	byAddr := map[netip.AddrPort]candidate{}
	for _, s := range sl {
		if s.AddressType != node.Family.addressType() || hasLabel(s, labelHeadless) {
			continue
		}
		number, ok := portNumber(s, port, protocol)
		if !ok {
			continue
		}
		for i := range s.Endpoints {
			for _, c := range candidates(&s.Endpoints[i], number, node) {
				if old, dup := byAddr[c.Addr]; !dup || c.better(old) {
					byAddr[c.Addr] = c
				}
			}
		}
	}
	out := make([]candidate, 0, len(byAddr))
	for _, c := range byAddr {
		out = append(out, c)
	}
	return out
}

func hasLabel(s *discoveryv1.EndpointSlice, label string) bool {
	_, ok := s.Labels[label]
	return ok
}

func portNumber(s *discoveryv1.EndpointSlice, name, proto string) (uint16, bool) {
	for _, p := range s.Ports {
		var pn, pp = "", "tcp"
		if p.Name != nil {
			pn = *p.Name
		}
		if p.Protocol != nil {
			pp = protocol(*p.Protocol)
		}
		if pn == name && pp == proto && p.Port != nil {
			return uint16(*p.Port), true
		}
	}
	return 0, false
}

// candidates returns a candidate for each address of the endpoint in node's family.
func candidates(e *discoveryv1.Endpoint, port uint16, node Node) []candidate {
	c := candidate{ready: e.Conditions.Ready == nil || *e.Conditions.Ready}
	c.serving = c.ready
	if e.Conditions.Serving != nil {
		c.serving = *e.Conditions.Serving
	}
	c.terminating = e.Conditions.Terminating != nil && *e.Conditions.Terminating
	c.Local = e.NodeName != nil && *e.NodeName == node.Name
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			c.zones = append(c.zones, z.Name)
		}
		for _, n := range e.Hints.ForNodes {
			c.nodes = append(c.nodes, n.Name)
		}
	}
	var out []candidate
	for _, text := range e.Addresses {
		if a, ok := node.Family.address(text); ok {
			c.Addr = netip.AddrPortFrom(a, port)
			out = append(out, c)
		}
	}
	return out
}

// choose returns the ready endpoints that match or, if there are none, those that are
// terminating but still serving (KEP-1669).
func choose(all []candidate, match func(candidate) bool) []Endpoint {
	var ready, leaving []Endpoint
	for _, c := range all {
		switch {
		case !match(c):
		case c.ready:
			ready = append(ready, c.Endpoint)
		case c.serving && c.terminating:
			leaving = append(leaving, c.Endpoint)
		}
	}
	if len(ready) == 0 {
		ready = leaving
	}
	sortEndpoints(ready)
	return ready
}

// chooseCluster applies topology hints: it returns this node's endpoints if every
// ready one has hints for nodes, else this zone's if every one has hints for zones,
// else all.
func chooseCluster(all []candidate, node Node) []Endpoint {
	everyReady := func(hinted func(candidate) bool) bool {
		return !slices.ContainsFunc(all, func(c candidate) bool { return c.ready && !hinted(c) })
	}
	if everyReady(func(c candidate) bool { return c.nodes != nil }) {
		near := choose(all, func(c candidate) bool { return c.ready && slices.Contains(c.nodes, node.Name) })
		if len(near) > 0 {
			return near
		}
	}
	if node.Zone != "" && everyReady(func(c candidate) bool { return c.zones != nil }) {
		near := choose(all, func(c candidate) bool { return c.ready && slices.Contains(c.zones, node.Zone) })
		if len(near) > 0 {
			return near
		}
	}
	return choose(all, func(candidate) bool { return true })
}

// localReady returns the number of this node's ready pods. It counts an address once
// even if several slices have it (one per set of ports).
func localReady(sl []*discoveryv1.EndpointSlice, node Node) int {
	seen := map[string]bool{}
	for _, s := range sl {
		for _, e := range s.Endpoints {
			local := e.NodeName != nil && *e.NodeName == node.Name
			if local && (e.Conditions.Ready == nil || *e.Conditions.Ready) && len(e.Addresses) > 0 {
				seen[e.Addresses[0]] = true
			}
		}
	}
	return len(seen)
}

// Terminating returns the UIDs of the pods of a slice's terminating endpoints.
func Terminating(s *discoveryv1.EndpointSlice) []string {
	var out []string
	for _, e := range s.Endpoints {
		if e.Conditions.Terminating != nil && *e.Conditions.Terminating && e.TargetRef != nil {
			out = append(out, string(e.TargetRef.UID))
		}
	}
	return out
}
