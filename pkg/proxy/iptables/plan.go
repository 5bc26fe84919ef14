package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"strconv"
	"strings"

	"podium/pkg/netrules"
	"podium/pkg/proxy/services"
)

// Planner holds the inputs of the rules other than the Services themselves.
type Planner struct {
	// Family is the address family of all rules.
	Family services.Family
	// PodTraffic matches packets from pods, in iptables syntax ("-s 10.244.0.0/16",
	// "-i podium0"); empty: unknown.
	PodTraffic string
	// NotPodTraffic matches all other packets.
	NotPodTraffic string
	// MasqueradeAll masquerades all traffic to cluster IPs.
	MasqueradeAll bool
	// NodePortAddresses are the local addresses that serve node ports; empty: all.
	NodePortAddresses []netip.Prefix
	// LocalhostNodePorts serves node ports on 127.0.0.1 too.
	LocalhostNodePorts bool
	// PodLinks matches the node's ends of the pods' links ("veth+"), from which only
	// packets with the pod's own address are accepted; empty: not checked.
	PodLinks string
	// Metadata are addresses that pods can reach for DNS only.
	Metadata []netip.Addr
	// Kernel are the capabilities of the kernel's iptables.
	Kernel Features
}

// Service plans the rules of all ports of a Service.
func (p *Planner) Service(ports []services.Port) netrules.Fragment {
	var f netrules.Fragment
	for i := range ports {
		if ports[i].Protocol == "sctp" && !p.Kernel.SCTP {
			continue
		}
		w := portWriter{Planner: p, f: &f, p: &ports[i], id: hash(ports[i].ID() + ports[i].Protocol)}
		w.write()
	}
	return f
}

// hash returns the end of a chain's name, which has at most 28 characters.
func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "")))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// portWriter plans the chains of one port and the jumps to them.
//
//	KUBE-SERVICES ─▶ KUBE-SVC (any endpoint) or KUBE-SVL (this node's) ─▶ KUBE-SEP (DNAT)
//	KUBE-NODEPORTS ─▶ KUBE-EXT (masquerade by policy) ─▶ KUBE-SVC or KUBE-SVL
type portWriter struct {
	*Planner
	f  *netrules.Fragment
	p  *services.Port
	id string
}

func (w *portWriter) svc() netrules.Chain {
	return netrules.Chain{Table: netrules.NAT, Name: "KUBE-SVC-" + w.id}
}
func (w *portWriter) svl() netrules.Chain {
	return netrules.Chain{Table: netrules.NAT, Name: "KUBE-SVL-" + w.id}
}
func (w *portWriter) ext() netrules.Chain {
	return netrules.Chain{Table: netrules.NAT, Name: "KUBE-EXT-" + w.id}
}
func (w *portWriter) fw() netrules.Chain {
	return netrules.Chain{Table: netrules.NAT, Name: "KUBE-FW-" + w.id}
}

func (w *portWriter) sep(e services.Endpoint) netrules.Chain {
	return netrules.Chain{Table: netrules.NAT, Name: "KUBE-SEP-" + hash(w.p.ID(), w.p.Protocol, e.Addr.String())}
}

func (w *portWriter) comment(text string) string { return w.Kernel.comment(text) }

func (w *portWriter) write() {
	w.clusterIP()
	if w.p.External() {
		w.external()
	}
	usesCluster := !w.p.InternalLocal || w.p.External()
	usesLocal := w.p.InternalLocal || (w.p.External() && w.p.ExternalLocal)
	written := map[netrules.Chain]bool{}
	if usesCluster && len(w.p.Cluster) > 0 {
		w.balance(w.svc(), w.p.Cluster, written)
	}
	if usesLocal && len(w.p.Local) > 0 {
		w.balance(w.svl(), w.p.Local, written)
	}
}

// clusterIP plans the rules for the cluster IP: jump to the endpoints, or reject.
func (w *portWriter) clusterIP() {
	target, endpoints := w.svc(), w.p.Cluster
	if w.p.InternalLocal {
		target, endpoints = w.svl(), w.p.Local
	}
	match := []string{netrules.Dst(netrules.Host(w.p.ClusterIP)), netrules.Port(w.p.Protocol, w.p.Port)}
	if len(endpoints) == 0 {
		w.refuse(portal(w.f, netrules.Filter, w.p.ClusterIP), w.p.InternalLocal, match...)
		return
	}
	w.f.Add(portal(w.f, netrules.NAT, w.p.ClusterIP),
		append(match, w.comment(w.p.ID()+" cluster IP"), netrules.Jump(target.Name))...)
	// Clients whose replies would not return through this node must see the node as
	// their peer.
	masq := append([]string{w.comment(w.p.ID() + " cluster IP")}, match...)
	switch {
	case w.MasqueradeAll:
		w.f.Add(target, append(masq, netrules.Jump(chainMarkMasq))...)
	case w.NotPodTraffic != "":
		w.f.Add(target, append(append([]string{w.NotPodTraffic}, masq...), netrules.Jump(chainMarkMasq))...)
	}
}

// refuse rejects traffic to a port without usable endpoints: with REJECT if the
// Service has none, with DROP if another node has some, so that a load balancer tries
// that node.
func (w *portWriter) refuse(c netrules.Chain, local bool, match ...string) {
	if local && w.p.Any {
		w.f.Add(c, append(match, w.comment(w.p.ID()+" has no local endpoints"), "-j DROP")...)
		return
	}
	w.f.Add(c, append(match, w.comment(w.p.ID()+" has no endpoints"), "-j REJECT")...)
}

// external plans the rules for external IPs, load balancers and the node port.
func (w *portWriter) external() {
	endpoints := w.p.Cluster
	if w.p.ExternalLocal {
		endpoints = w.p.Local
	}
	reachable := len(endpoints) > 0 || (w.p.ExternalLocal && len(w.p.Cluster) > 0)
	for _, ip := range w.p.ExternalIPs {
		w.address(ip, "external IP", w.ext(), reachable, len(endpoints) > 0)
	}
	restricted := reachable && len(w.p.AllowedSource) > 0 // without endpoints all clients are refused
	for _, ip := range w.p.Balancers {
		target := w.ext()
		if restricted {
			target = w.fw()
		}
		w.address(ip, "loadbalancer IP", target, reachable, len(endpoints) > 0)
		if restricted {
			w.f.Add(firewall, netrules.Dst(netrules.Host(ip)), netrules.Port(w.p.Protocol, w.p.Port),
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
	if restricted && len(w.p.Balancers) > 0 {
		w.fwChain()
	}
}

func (w *portWriter) address(ip netip.Addr, what string, target netrules.Chain, reachable, usable bool) {
	match := []string{netrules.Dst(netrules.Host(ip)), netrules.Port(w.p.Protocol, w.p.Port)}
	if reachable {
		w.f.Add(portal(w.f, netrules.NAT, ip), append(match, w.comment(w.p.ID()+" "+what), netrules.Jump(target.Name))...)
	}
	if !usable {
		w.refuse(externalServices, w.p.ExternalLocal, match...)
	}
}

func (w *portWriter) nodePort(reachable, usable bool) {
	match := []string{netrules.Port(w.p.Protocol, w.p.NodePort)}
	if reachable {
		w.f.Add(nodePorts, append(match, w.comment(w.p.ID()), netrules.Jump(w.ext().Name))...)
	}
	if !usable {
		w.refuse(externalServices, w.p.ExternalLocal, append([]string{netrules.LocalDst}, match...)...)
	}
}

// extChain plans the chain for traffic from outside. With policy Cluster it
// masquerades, since the endpoint may be on another node. With policy Local it keeps
// the client's address; only pods and the node itself may use all endpoints.
func (w *portWriter) extChain() {
	ext := w.ext()
	if !w.p.ExternalLocal {
		w.f.Add(ext, w.comment("masquerade traffic for "+w.p.ID()+" external destinations"), netrules.Jump(chainMarkMasq))
		w.f.Add(ext, netrules.Jump(w.svc().Name))
		return
	}
	if len(w.p.Cluster) > 0 {
		if w.PodTraffic != "" {
			w.f.Add(ext, w.PodTraffic, w.comment("pod traffic for "+w.p.ID()+" external destinations"), netrules.Jump(w.svc().Name))
		}
		w.f.Add(ext, w.comment("masquerade LOCAL traffic for "+w.p.ID()+" external destinations"), netrules.LocalSrc, netrules.Jump(chainMarkMasq))
		w.f.Add(ext, w.comment("route LOCAL traffic for "+w.p.ID()+" external destinations"), netrules.LocalSrc, netrules.Jump(w.svc().Name))
	}
	if len(w.p.Local) > 0 {
		w.f.Add(ext, netrules.Jump(w.svl().Name))
	}
}

func (w *portWriter) fwChain() {
	nodeMayUse := false
	for _, src := range w.p.AllowedSource {
		w.f.Add(w.fw(), netrules.Src(src), w.comment(w.p.ID()+" loadbalancer IP"), netrules.Jump(w.ext().Name))
		nodeMayUse = nodeMayUse || src.Bits() == 0
	}
	if nodeMayUse {
		return
	}
	for _, ip := range w.p.Balancers { // health checks of a load balancer come from its own address
		w.f.Add(w.fw(), netrules.Src(netrules.Host(ip)), w.comment(w.p.ID()+" loadbalancer IP"), netrules.Jump(w.ext().Name))
	}
}

// balance plans the distribution of connections over the endpoints, and their chains.
func (w *portWriter) balance(c netrules.Chain, endpoints []services.Endpoint, written map[netrules.Chain]bool) {
	if w.p.Affinity > 0 && w.Kernel.Recent {
		for _, e := range endpoints {
			w.f.Add(c, w.comment(w.toward(e)), w.recent(e, "--rcheck --seconds "+strconv.Itoa(int(w.p.Affinity.Seconds()))+" --reap"),
				netrules.Jump(w.sep(e).Name))
		}
	}
	bySource := !w.Kernel.Statistic || (w.p.Affinity > 0 && !w.Kernel.Recent)
	if bySource {
		w.bySource(c, endpoints)
	} else {
		for i, e := range endpoints {
			w.f.Add(c, w.comment(w.toward(e)), netrules.Share(len(endpoints)-i), netrules.Jump(w.sep(e).Name))
		}
	}
	for _, e := range endpoints {
		if sep := w.sep(e); !written[sep] {
			written[sep] = true
			w.endpoint(sep, e)
		}
	}
}

// bySource assigns each client to one endpoint by the lowest bits of its address, for
// kernels without the recent or the statistic match.
func (w *portWriter) bySource(c netrules.Chain, endpoints []services.Endpoint) {
	bits := 0
	for bits < 8 && 1<<bits < 2*len(endpoints) && len(endpoints) > 1 {
		bits++
	}
	for v := range 1 << bits {
		e := endpoints[v%len(endpoints)]
		match := ""
		if bits > 0 {
			match = netrules.SourceBits(v, bits, w.Family == services.IPv6)
		}
		w.f.Add(c, match, w.comment(w.toward(e)), netrules.Jump(w.sep(e).Name))
	}
}

func (w *portWriter) endpoint(sep netrules.Chain, e services.Endpoint) {
	// A pod that reaches itself through its Service must not see its own address as
	// the client's.
	w.f.Add(sep, netrules.Src(netrules.Host(e.Addr.Addr())), w.comment(w.p.ID()), netrules.Jump(chainMarkMasq))
	remember := ""
	if w.p.Affinity > 0 && w.Kernel.Recent {
		remember = w.recent(e, "--set")
	}
	w.f.Add(sep, netrules.Protocol(w.p.Protocol), w.comment(w.p.ID()), remember, netrules.DNAT(e.Addr))
}

func (w *portWriter) recent(e services.Endpoint, what string) string {
	return "-m recent --name " + w.sep(e).Name + " " + what + wholeAddress(w.Family) + " --rsource"
}

func (w *portWriter) toward(e services.Endpoint) string { return w.p.ID() + " -> " + e.Addr.String() }
