package iptables

import (
	"net/netip"
	"strings"

	"podium/pkg/proxy/rules"
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
	chainMartians = "KUBE-FIREWALL"
	chainProbe    = "KUBE-PROXY-PROBE"
)

// masqMark is the packet mark that asks for masquerading: bit 14, as upstream.
const masqMark = "0x4000/0x4000"

var (
	nodePorts        = rules.Chain{Table: rules.NAT, Name: chainPorts}
	healthPorts      = rules.Chain{Table: rules.Filter, Name: chainPorts}
	externalServices = rules.Chain{Table: rules.Filter, Name: chainExternal}
	firewall         = rules.Chain{Table: rules.Filter, Name: chainFirewall}
)

// portal is the chain where rules for a destination address stand. KUBE-SERVICES
// is a tree: one branch for each 256 addresses in use, so that a packet passes
// few rules and a new Service rewrites few.
func portal(f *rules.Fragment, table string, ip netip.Addr) rules.Chain {
	net, _ := ip.Prefix(ip.BitLen() - 8)
	branch := rules.Chain{Table: table, Name: chainServices + "-" + branchName(net)}
	f.Branch(branch, rules.Chain{Table: table, Name: chainServices}, rules.Dst(net))
	return branch
}

// branchName is the network itself or, for IPv6, what fits of its hash: a
// chain's name has at most 28 letters.
func branchName(net netip.Prefix) string {
	text := net.Addr().String()
	if net.Addr().Is4() {
		return text[:strings.LastIndexByte(text, '.')]
	}
	const fits = 28 - len(chainServices) - 1
	return hash(text)[:fits]
}

// wholeAddress has the recent match tell clients apart by all of their address.
func wholeAddress(f services.Family) string {
	if f == services.IPv6 {
		return " --mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	}
	return " --mask 255.255.255.255"
}

// Names that order contributors inside a chain they share. Services stand
// between them under their own names.
const (
	First = "!"
	Last  = "~"
)

// Base plans what is there without any Service. It comes in two fragments,
// the rules before all others and those after.
func (p *Planner) Base() (first, last rules.Fragment) {
	nat := func(name string) rules.Chain { return rules.Chain{Table: rules.NAT, Name: name} }
	filter := func(name string) rules.Chain { return rules.Chain{Table: rules.Filter, Name: name} }
	f := &first
	for _, c := range []rules.Chain{nat(chainServices), nodePorts, filter(chainServices), healthPorts, externalServices, firewall} {
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

	if p.martians() { // route_localnet is on then: nobody else may speak to 127.0.0.1
		f.Add(filter(chainMartians), "! -s 127.0.0.0/8 -d 127.0.0.0/8", p.Kernel.comment("block incoming localnet connections"),
			"-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT", "-j DROP")
	}
	p.guard(f)
	p.nodePortJumps(&last)
	return first, last
}

// martians: packets to 127.0.0.1 may come from elsewhere, and must be dropped.
func (p *Planner) martians() bool { return p.LocalhostNodePorts && p.Family == services.IPv4 }

// nodePortJumps leads what is addressed to this machine to the node ports,
// after every other destination was tried.
func (p *Planner) nodePortJumps(f *rules.Fragment) {
	note := p.Kernel.comment("kubernetes service nodeports; NOTE: this must be the last rule in this chain")
	svc := rules.Chain{Table: rules.NAT, Name: chainServices}
	notLoopback := ""
	switch {
	case p.Family == services.IPv6:
		notLoopback = "! -d ::1/128" // IPv6 has no route_localnet
	case !p.LocalhostNodePorts:
		notLoopback = "! -d 127.0.0.0/8"
	}
	if len(p.NodePortAddresses) == 0 {
		f.Add(svc, notLoopback, note, rules.LocalDst, rules.Jump(chainPorts))
		return
	}
	for _, net := range p.NodePortAddresses {
		if net.Addr().IsLoopback() && (!p.LocalhostNodePorts || p.Family == services.IPv6) {
			continue
		}
		f.Add(svc, rules.Dst(net), note, rules.LocalDst, rules.Jump(chainPorts))
	}
}

// HealthPort accepts load balancers' questions for the health check port of a Service.
func (p *Planner) HealthPort(f *rules.Fragment, id string, port int32) {
	f.Add(healthPorts, rules.Port("tcp", port), p.Kernel.comment(id+" health check node port"), "-j ACCEPT")
}

// Announced closes addresses of load balancers that a node announces by having
// them on its interface: there only Services are to answer, and not what listens
// on all addresses of the machine. Echo and the like may pass.
func (p *Planner) Announced(addresses []netip.Addr) rules.Fragment {
	var f rules.Fragment
	icmp := "icmp"
	if p.Family == services.IPv6 {
		icmp = "ipv6-icmp"
	}
	for _, a := range addresses {
		if services.FamilyOf(a) == p.Family {
			f.Add(externalServices, rules.Dst(rules.Host(a)), "! -p "+icmp, p.Kernel.comment("no Service has this port of a load balancer"), "-j REJECT")
		}
	}
	return f
}

// Hooks are the places where our chains hang in the system's, in the order
// they shall stand there.
func (p *Planner) Hooks() []rules.Hook {
	portals := p.Kernel.commentWords("kubernetes service portals")
	external := p.Kernel.commentWords("kubernetes externally-visible service portals")
	isNew := []string{"-m", "conntrack", "--ctstate", "NEW"}
	fw := append(append([]string{}, isNew...), p.Kernel.commentWords("kubernetes load balancer firewall")...)
	with := func(a, b []string) []string { return append(append([]string{}, a...), b...) }
	hooks := append(p.guardHooks(), []rules.Hook{
		{Table: rules.Filter, Chain: "INPUT", Match: fw, Target: chainFirewall},
		{Table: rules.Filter, Chain: "INPUT", Match: p.Kernel.commentWords("kubernetes health check service ports"), Target: chainPorts},
		{Table: rules.Filter, Chain: "INPUT", Match: with(isNew, external), Target: chainExternal},
		{Table: rules.Filter, Chain: "FORWARD", Match: fw, Target: chainFirewall},
		{Table: rules.Filter, Chain: "FORWARD", Match: p.Kernel.commentWords("kubernetes forwarding rules"), Target: chainForward},
		{Table: rules.Filter, Chain: "FORWARD", Match: with(isNew, portals), Target: chainServices},
		{Table: rules.Filter, Chain: "FORWARD", Match: with(isNew, external), Target: chainExternal},
		{Table: rules.Filter, Chain: "OUTPUT", Match: fw, Target: chainFirewall},
		{Table: rules.Filter, Chain: "OUTPUT", Match: with(isNew, portals), Target: chainServices},
		{Table: rules.NAT, Chain: "PREROUTING", Match: portals, Target: chainServices},
		{Table: rules.NAT, Chain: "OUTPUT", Match: portals, Target: chainServices},
		{Table: rules.NAT, Chain: "POSTROUTING", Match: p.Kernel.commentWords("kubernetes postrouting rules"), Target: chainPostrout},
	}...)
	if p.martians() {
		hooks = append(hooks, rules.Hook{Table: rules.Filter, Chain: "INPUT", Target: chainMartians}, rules.Hook{Table: rules.Filter, Chain: "OUTPUT", Target: chainMartians})
	}
	return hooks
}

// Owned says whether a chain is of a name that only this proxy gives.
func Owned(c rules.Chain) bool {
	switch c.Name {
	case chainMarkMasq, chainPostrout, chainServices, chainPorts, chainExternal, chainForward, chainFirewall, chainMartians, chainProbe:
		return true
	}
	for _, prefix := range []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-EXT-", "KUBE-FW-", chainServices + "-", rules.PodChainPrefix} {
		if strings.HasPrefix(c.Name, prefix) {
			return true
		}
	}
	return false
}
