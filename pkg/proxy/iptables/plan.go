package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"strconv"
	"strings"

	"podium/pkg/proxy/rules"
	"podium/pkg/proxy/services"
)

// Planner holds what the rules depend on beside the Services themselves.
type Planner struct {
	// Family is that of all addresses.
	Family services.Family
	// PodTraffic matches packets that come from pods, as iptables syntax
	// ("-s 10.244.0.0/16", "-i podium0"); empty: nobody knows.
	PodTraffic string
	// NotPodTraffic matches all other packets.
	NotPodTraffic string
	// MasqueradeAll hides every client of a cluster IP behind the node.
	MasqueradeAll bool
	// NodePortAddresses are the local addresses that serve node ports; empty: all.
	NodePortAddresses []netip.Prefix
	// LocalhostNodePorts serves node ports on 127.0.0.1 too.
	LocalhostNodePorts bool
	// PodLinks names the node's ends of the pods' links ("veth+"), where only the
	// pod's own address may come in; empty: no source address is checked.
	PodLinks string
	// Metadata are addresses that pods do not reach but for DNS.
	Metadata []netip.Addr
	// Kernel is what the kernel's iptables can do.
	Kernel Features
}

// Service plans every port of a Service.
func (p *Planner) Service(ports []services.Port) rules.Fragment {
	var f rules.Fragment
	for i := range ports {
		if ports[i].Protocol == "sctp" && !p.Kernel.SCTP {
			continue
		}
		w := portWriter{Planner: p, f: &f, p: &ports[i], id: hash(ports[i].ID() + ports[i].Protocol)}
		w.write()
	}
	return f
}

// hash makes the tail of a chain name, which must stay below 29 characters.
func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "")))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// portWriter plans one port: which chains it has and who jumps there.
//
//	KUBE-SERVICES ─▶ KUBE-SVC (any endpoint) or KUBE-SVL (this node's) ─▶ KUBE-SEP (DNAT)
//	KUBE-NODEPORTS ─▶ KUBE-EXT (masquerade by policy) ─▶ KUBE-SVC or KUBE-SVL
type portWriter struct {
	*Planner
	f  *rules.Fragment
	p  *services.Port
	id string
}

func (w *portWriter) svc() rules.Chain {
	return rules.Chain{Table: rules.NAT, Name: "KUBE-SVC-" + w.id}
}
func (w *portWriter) svl() rules.Chain {
	return rules.Chain{Table: rules.NAT, Name: "KUBE-SVL-" + w.id}
}
func (w *portWriter) ext() rules.Chain {
	return rules.Chain{Table: rules.NAT, Name: "KUBE-EXT-" + w.id}
}
func (w *portWriter) fw() rules.Chain { return rules.Chain{Table: rules.NAT, Name: "KUBE-FW-" + w.id} }

func (w *portWriter) sep(e services.Endpoint) rules.Chain {
	return rules.Chain{Table: rules.NAT, Name: "KUBE-SEP-" + hash(w.p.ID(), w.p.Protocol, e.Addr.String())}
}

func (w *portWriter) comment(text string) string { return w.Kernel.comment(text) }

func (w *portWriter) write() {
	w.clusterIP()
	if w.p.External() {
		w.external()
	}
	usesCluster := !w.p.InternalLocal || w.p.External()
	usesLocal := w.p.InternalLocal || (w.p.External() && w.p.ExternalLocal)
	written := map[rules.Chain]bool{}
	if usesCluster && len(w.p.Cluster) > 0 {
		w.balance(w.svc(), w.p.Cluster, written)
	}
	if usesLocal && len(w.p.Local) > 0 {
		w.balance(w.svl(), w.p.Local, written)
	}
}

// clusterIP leads the Service's own address to its endpoints, or refuses.
func (w *portWriter) clusterIP() {
	target, endpoints := w.svc(), w.p.Cluster
	if w.p.InternalLocal {
		target, endpoints = w.svl(), w.p.Local
	}
	match := []string{rules.Dst(rules.Host(w.p.ClusterIP)), rules.Port(w.p.Protocol, w.p.Port)}
	if len(endpoints) == 0 {
		w.refuse(portal(w.f, rules.Filter, w.p.ClusterIP), w.p.InternalLocal, match...)
		return
	}
	w.f.Add(portal(w.f, rules.NAT, w.p.ClusterIP),
		append(match, w.comment(w.p.ID()+" cluster IP"), rules.Jump(target.Name))...)
	// Clients whose answers would not come back through this node must see the
	// node as their peer.
	masq := append([]string{w.comment(w.p.ID() + " cluster IP")}, match...)
	switch {
	case w.MasqueradeAll:
		w.f.Add(target, append(masq, rules.Jump(chainMarkMasq))...)
	case w.NotPodTraffic != "":
		w.f.Add(target, append(append([]string{w.NotPodTraffic}, masq...), rules.Jump(chainMarkMasq))...)
	}
}

// refuse answers for a port without usable endpoints: at once with REJECT when
// the Service has none, silently when another node has some, so that a load
// balancer tries there.
func (w *portWriter) refuse(c rules.Chain, local bool, match ...string) {
	if local && w.p.Any {
		w.f.Add(c, append(match, w.comment(w.p.ID()+" has no local endpoints"), "-j DROP")...)
		return
	}
	w.f.Add(c, append(match, w.comment(w.p.ID()+" has no endpoints"), "-j REJECT")...)
}

// external leads external IPs, load balancers and the node port to the endpoints.
func (w *portWriter) external() {
	endpoints := w.p.Cluster
	if w.p.ExternalLocal {
		endpoints = w.p.Local
	}
	reachable := len(endpoints) > 0 || (w.p.ExternalLocal && len(w.p.Cluster) > 0)
	for _, ip := range w.p.ExternalIPs {
		w.address(ip, "external IP", w.ext(), reachable, len(endpoints) > 0)
	}
	for _, ip := range w.p.Balancers {
		target := w.ext()
		if len(w.p.AllowedSource) > 0 {
			target = w.fw()
		}
		w.address(ip, "loadbalancer IP", target, reachable, len(endpoints) > 0)
		if len(w.p.AllowedSource) > 0 {
			w.f.Add(firewall, rules.Dst(rules.Host(ip)), rules.Port(w.p.Protocol, w.p.Port),
				w.comment(w.p.ID()+" traffic not accepted by "+w.fw().Name), "-j DROP")
		}
	}
	if w.p.NodePort != 0 {
		w.nodePort(reachable, len(endpoints) > 0)
	}
	if !reachable {
		return
	}
	w.extChain()
	if len(w.p.AllowedSource) > 0 && len(w.p.Balancers) > 0 {
		w.fwChain()
	}
}

func (w *portWriter) address(ip netip.Addr, what string, target rules.Chain, reachable, usable bool) {
	match := []string{rules.Dst(rules.Host(ip)), rules.Port(w.p.Protocol, w.p.Port)}
	if reachable {
		w.f.Add(portal(w.f, rules.NAT, ip), append(match, w.comment(w.p.ID()+" "+what), rules.Jump(target.Name))...)
	}
	if !usable {
		w.refuse(externalServices, w.p.ExternalLocal, match...)
	}
}

func (w *portWriter) nodePort(reachable, usable bool) {
	match := []string{rules.Port(w.p.Protocol, w.p.NodePort)}
	if reachable {
		w.f.Add(nodePorts, append(match, w.comment(w.p.ID()), rules.Jump(w.ext().Name))...)
	}
	if !usable {
		w.refuse(externalServices, w.p.ExternalLocal, append([]string{rules.LocalDst}, match...)...)
	}
}

// extChain decides for traffic from outside. With policy Cluster it is
// masqueraded, since the endpoint may be on another node. With policy Local
// the client's address is kept; only pods and the node itself may go anywhere.
func (w *portWriter) extChain() {
	ext := w.ext()
	if !w.p.ExternalLocal {
		w.f.Add(ext, w.comment("masquerade traffic for "+w.p.ID()+" external destinations"), rules.Jump(chainMarkMasq))
		w.f.Add(ext, rules.Jump(w.svc().Name))
		return
	}
	if len(w.p.Cluster) > 0 {
		if w.PodTraffic != "" {
			w.f.Add(ext, w.PodTraffic, w.comment("pod traffic for "+w.p.ID()+" external destinations"), rules.Jump(w.svc().Name))
		}
		w.f.Add(ext, w.comment("masquerade LOCAL traffic for "+w.p.ID()+" external destinations"), rules.LocalSrc, rules.Jump(chainMarkMasq))
		w.f.Add(ext, w.comment("route LOCAL traffic for "+w.p.ID()+" external destinations"), rules.LocalSrc, rules.Jump(w.svc().Name))
	}
	if len(w.p.Local) > 0 {
		w.f.Add(ext, rules.Jump(w.svl().Name))
	}
}

func (w *portWriter) fwChain() {
	nodeMayUse := false
	for _, src := range w.p.AllowedSource {
		w.f.Add(w.fw(), rules.Src(src), w.comment(w.p.ID()+" loadbalancer IP"), rules.Jump(w.ext().Name))
		nodeMayUse = nodeMayUse || src.Bits() == 0
	}
	if nodeMayUse {
		return
	}
	for _, ip := range w.p.Balancers { // a balancer's own health checks come from its address
		w.f.Add(w.fw(), rules.Src(rules.Host(ip)), w.comment(w.p.ID()+" loadbalancer IP"), rules.Jump(w.ext().Name))
	}
}

// balance spreads connections over the endpoints, and writes their chains.
func (w *portWriter) balance(c rules.Chain, endpoints []services.Endpoint, written map[rules.Chain]bool) {
	if w.p.Affinity > 0 && w.Kernel.Recent {
		for _, e := range endpoints {
			w.f.Add(c, w.comment(w.toward(e)), w.recent(e, "--rcheck --seconds "+strconv.Itoa(int(w.p.Affinity.Seconds()))+" --reap"),
				rules.Jump(w.sep(e).Name))
		}
	}
	bySource := !w.Kernel.Statistic || (w.p.Affinity > 0 && !w.Kernel.Recent)
	if bySource {
		w.bySource(c, endpoints)
	} else {
		for i, e := range endpoints {
			w.f.Add(c, w.comment(w.toward(e)), rules.Share(len(endpoints)-i), rules.Jump(w.sep(e).Name))
		}
	}
	for _, e := range endpoints {
		if sep := w.sep(e); !written[sep] {
			written[sep] = true
			w.endpoint(sep, e)
		}
	}
}

// bySource gives each client one endpoint by the lowest bits of its address:
// for kernels that cannot remember clients or throw dice.
func (w *portWriter) bySource(c rules.Chain, endpoints []services.Endpoint) {
	bits := 0
	for bits < 8 && 1<<bits < 2*len(endpoints) && len(endpoints) > 1 {
		bits++
	}
	for v := range 1 << bits {
		e := endpoints[v%len(endpoints)]
		match := ""
		if bits > 0 {
			match = rules.SourceBits(v, bits, w.Family == services.IPv6)
		}
		w.f.Add(c, match, w.comment(w.toward(e)), rules.Jump(w.sep(e).Name))
	}
}

func (w *portWriter) endpoint(sep rules.Chain, e services.Endpoint) {
	// A pod that reaches itself through its Service must not see its own address as the client's.
	w.f.Add(sep, rules.Src(rules.Host(e.Addr.Addr())), w.comment(w.p.ID()), rules.Jump(chainMarkMasq))
	remember := ""
	if w.p.Affinity > 0 && w.Kernel.Recent {
		remember = w.recent(e, "--set")
	}
	w.f.Add(sep, rules.Protocol(w.p.Protocol), w.comment(w.p.ID()), remember, rules.DNAT(e.Addr))
}

func (w *portWriter) recent(e services.Endpoint, what string) string {
	return "-m recent --name " + w.sep(e).Name + " " + what + wholeAddress(w.Family) + " --rsource"
}

func (w *portWriter) toward(e services.Endpoint) string { return w.p.ID() + " -> " + e.Addr.String() }
