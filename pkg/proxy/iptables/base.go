package iptables

import (
	"net/netip"
	"strings"

	"podium/pkg/netrules"
	"podium/pkg/proxy/services"
)

const (
	chainMarkMasq = "KUBE-MARK-MASQ"
	chainPostrout = "KUBE-POSTROUTING"
	chainServices = "KUBE-SERVICES"
	chainPorts    = "KUBE-NODEPORTS"
	chainExternal = "KUBE-EXTERNAL-SERVICES"
	chainForward  = "KUBE-FORWARD"
	chainFirewall = "KUBE-PROXY-FIREWALL"
	chainLocalnet = "KUBE-FIREWALL"
	chainProbe    = "KUBE-PROXY-PROBE"
)

// masqMark is the packet mark that requests masquerading: bit 14, as upstream.
const masqMark = "0x4000/0x4000"

var (
	nodePorts        = netrules.Chain{Table: netrules.NAT, Name: chainPorts}
	healthPorts      = netrules.Chain{Table: netrules.Filter, Name: chainPorts}
	externalServices = netrules.Chain{Table: netrules.Filter, Name: chainExternal}
	firewall         = netrules.Chain{Table: netrules.Filter, Name: chainFirewall}
)

// portal returns the chain for the rules of a destination address. KUBE-SERVICES is a
// tree with one branch for each 256 addresses in use, so that a packet passes few
// rules and a new Service rewrites few.
func portal(f *netrules.Fragment, table string, ip netip.Addr) netrules.Chain {
	net, _ := ip.Prefix(ip.BitLen() - 8)
	branch := netrules.Chain{Table: table, Name: chainServices + "-" + branchName(net)}
	f.Branch(branch, netrules.Chain{Table: table, Name: chainServices}, netrules.Dst(net))
	return branch
}

// branchName returns the network as the suffix of a chain's name or, for IPv6, a hash
// of it: a chain's name has at most 28 characters.
func branchName(net netip.Prefix) string {
	text := net.Addr().String()
	if net.Addr().Is4() {
		return text[:strings.LastIndexByte(text, '.')]
	}
	const fits = 28 - len(chainServices) - 1
	return hash(text)[:fits]
}

// wholeAddress makes the recent match distinguish clients by their whole address.
func wholeAddress(f services.Family) string {
	if f == services.IPv6 {
		return " --mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	}
	return " --mask 255.255.255.255"
}

// Contributor names that sort before and after those of Services, in a chain that
// they share.
const (
	First = "!"
	Last  = "~"
)

// Base plans the rules that do not depend on Services: those before all others and
// those after.
func (p *Planner) Base() (first, last netrules.Fragment) {
	nat := func(name string) netrules.Chain { return netrules.Chain{Table: netrules.NAT, Name: name} }
	filter := func(name string) netrules.Chain { return netrules.Chain{Table: netrules.Filter, Name: name} }
	f := &first
	for _, c := range []netrules.Chain{nat(chainServices), nodePorts, filter(chainServices), healthPorts, externalServices, firewall} {
		f.Ensure(c)
	}
	f.Add(nat(chainMarkMasq), "-j MARK --or-mark 0x4000")
	f.Add(nat(chainPostrout), "-m mark ! --mark "+masqMark, "-j RETURN")
	f.Add(nat(chainPostrout), "-j MARK --xor-mark 0x4000")
	masquerade := "-j MASQUERADE"
	if p.Kernel.RandomFully {
		masquerade += " --random-fully"
	}
	f.Add(nat(chainPostrout), p.Kernel.comment("kubernetes service traffic requiring SNAT"), masquerade)

	f.Add(filter(chainForward), "-m conntrack --ctstate INVALID", "-j DROP")
	f.Add(filter(chainForward), p.Kernel.comment("kubernetes forwarding rules"), "-m mark --mark "+masqMark, "-j ACCEPT")
	f.Add(filter(chainForward), p.Kernel.comment("kubernetes forwarding conntrack rule"), "-m conntrack --ctstate RELATED,ESTABLISHED", "-j ACCEPT")

	if p.blocksLocalnet() { // with route_localnet, other machines could send to 127.0.0.1
		f.Add(filter(chainLocalnet), "! -s 127.0.0.0/8 -d 127.0.0.0/8", p.Kernel.comment("block incoming localnet connections"),
			"-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT", "-j DROP")
	}
	p.guard(f)
	p.nodePortJumps(&last)
	return first, last
}

// blocksLocalnet reports whether packets from other machines to 127.0.0.1 can arrive and
// must be dropped.
func (p *Planner) blocksLocalnet() bool { return p.LocalhostNodePorts && p.Family == services.IPv4 }

// nodePortJumps adds the jumps to the node ports for packets to this machine, after
// all other destinations.
func (p *Planner) nodePortJumps(f *netrules.Fragment) {
	note := p.Kernel.comment("kubernetes service nodeports; NOTE: this must be the last rule in this chain")
	svc := netrules.Chain{Table: netrules.NAT, Name: chainServices}
	notLoopback := ""
	switch {
	case p.Family == services.IPv6:
		notLoopback = "! -d ::1/128" // IPv6 has no route_localnet
	case !p.LocalhostNodePorts:
		notLoopback = "! -d 127.0.0.0/8"
	}
	if len(p.NodePortAddresses) == 0 {
		f.Add(svc, notLoopback, note, netrules.LocalDst, netrules.Jump(chainPorts))
		return
	}
	for _, net := range p.NodePortAddresses {
		if net.Addr().IsLoopback() && (!p.LocalhostNodePorts || p.Family == services.IPv6) {
			continue
		}
		f.Add(svc, netrules.Dst(net), note, netrules.LocalDst, netrules.Jump(chainPorts))
	}
}

// HealthPort accepts health checks of load balancers at the health check port of a
// Service.
func (p *Planner) HealthPort(f *netrules.Fragment, id string, port int32) {
	f.Add(healthPorts, netrules.Port("tcp", port), p.Kernel.comment(id+" health check node port"), "-j ACCEPT")
}

// Announced plans rules that reject traffic to announced load-balancer addresses if no
// Service matches it. Otherwise programs that listen on all addresses of the machine
// would answer. ICMP is accepted.
func (p *Planner) Announced(addresses []netip.Addr) netrules.Fragment {
	var f netrules.Fragment
	icmp := "icmp"
	if p.Family == services.IPv6 {
		icmp = "ipv6-icmp"
	}
	for _, a := range addresses {
		if services.FamilyOf(a) == p.Family {
			f.Add(externalServices, netrules.Dst(netrules.Host(a)), "! -p "+icmp, p.Kernel.comment("no Service has this port of a load balancer"), "-j REJECT")
		}
	}
	return f
}

// Hooks returns the jumps from the system's chains to ours, in the order in which they
// must stand there.
func (p *Planner) Hooks() []netrules.Hook {
	portals := p.Kernel.commentWords("kubernetes service portals")
	external := p.Kernel.commentWords("kubernetes externally-visible service portals")
	isNew := []string{"-m", "conntrack", "--ctstate", "NEW"}
	fw := append(append([]string{}, isNew...), p.Kernel.commentWords("kubernetes load balancer firewall")...)
	with := func(a, b []string) []string { return append(append([]string{}, a...), b...) }
	hooks := append(p.guardHooks(), []netrules.Hook{
		{Table: netrules.Filter, Chain: "INPUT", Match: fw, Target: chainFirewall},
		{Table: netrules.Filter, Chain: "INPUT", Match: p.Kernel.commentWords("kubernetes health check service ports"), Target: chainPorts},
		{Table: netrules.Filter, Chain: "INPUT", Match: with(isNew, external), Target: chainExternal},
		{Table: netrules.Filter, Chain: "FORWARD", Match: fw, Target: chainFirewall},
		{Table: netrules.Filter, Chain: "FORWARD", Match: p.Kernel.commentWords("kubernetes forwarding rules"), Target: chainForward},
		{Table: netrules.Filter, Chain: "FORWARD", Match: with(isNew, portals), Target: chainServices},
		{Table: netrules.Filter, Chain: "FORWARD", Match: with(isNew, external), Target: chainExternal},
		{Table: netrules.Filter, Chain: "OUTPUT", Match: fw, Target: chainFirewall},
		{Table: netrules.Filter, Chain: "OUTPUT", Match: with(isNew, portals), Target: chainServices},
		{Table: netrules.NAT, Chain: "PREROUTING", Match: portals, Target: chainServices},
		{Table: netrules.NAT, Chain: "OUTPUT", Match: portals, Target: chainServices},
		{Table: netrules.NAT, Chain: "POSTROUTING", Match: p.Kernel.commentWords("kubernetes postrouting rules"), Target: chainPostrout},
	}...)
	if p.blocksLocalnet() {
		hooks = append(hooks, netrules.Hook{Table: netrules.Filter, Chain: "INPUT", Target: chainLocalnet}, netrules.Hook{Table: netrules.Filter, Chain: "OUTPUT", Target: chainLocalnet})
	}
	return hooks
}

// Owned reports whether a chain's name is one that only this proxy uses.
func Owned(c netrules.Chain) bool {
	switch c.Name {
	case chainMarkMasq, chainPostrout, chainServices, chainPorts, chainExternal, chainForward, chainFirewall, chainLocalnet, chainProbe:
		return true
	}
	for _, prefix := range []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-EXT-", "KUBE-FW-", chainServices + "-", netrules.PodChainPrefix} {
		if strings.HasPrefix(c.Name, prefix) {
			return true
		}
	}
	return false
}
