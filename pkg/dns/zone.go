package dns

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// specVersion is the implemented version of the Kubernetes DNS specification, the
// TXT record of dns-version.<zone>.
const specVersion = "1.1.0"

// lookup returns the API's objects in their current state.
type lookup interface {
	namespace(name string) bool
	service(namespace, name string) (*corev1.Service, bool)
	slices(namespace, service string) []*discoveryv1.EndpointSlice
	servicesAt(netip.Addr) []*corev1.Service
	slicesAt(netip.Addr) []*discoveryv1.EndpointSlice
	serial() uint32
}

// zone answers queries for the cluster's domain. It is stateless.
type zone struct {
	origin string // lower case, with the trailing dot
	ttl    uint32 // of every record, in seconds
	pods   bool   // answer for 1-2-3-4.NAMESPACE.pod
	lookup lookup
}

// found is what a zone has for a name.
type found struct {
	exists bool // false: NXDOMAIN; true without answer: no records of the requested type
	answer []dns.RR
	extra  []dns.RR
	alias  string // the target of an ExternalName Service, whose records are added to the answer
}

var nothing = found{}

// nodata is a name that exists but has no records of the requested type.
var nodata = found{exists: true}

// has reports whether a name is in the zone.
func (z *zone) has(name string) bool { return dns.IsSubDomain(z.origin, name) }

// find answers a question about a name in the zone. The records have the spelling of the
// name in the question, in which some clients encode a nonce.
func (z *zone) find(q dns.Question) found {
	labels := dns.SplitDomainName(strings.TrimSuffix(strings.ToLower(q.Name), z.origin))
	switch n := len(labels); {
	case n == 0:
		return z.apex(q)
	case n == 1 && labels[0] == "dns-version":
		return z.version(q)
	case n <= 2 && labels[n-1] == "dns":
		return z.nameserver(q, labels)
	case labels[n-1] == "svc":
		return z.services(q, labels[:n-1])
	case labels[n-1] == "pod" && z.pods:
		return z.pod(q, labels[:n-1])
	}
	return nothing
}

func (z *zone) header(name string, kind uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: z.ttl}
}

func (z *zone) soa() *dns.SOA {
	return &dns.SOA{
		Hdr: z.header(z.origin, dns.TypeSOA), Ns: "ns.dns." + z.origin, Mbox: "hostmaster." + z.origin,
		Serial: z.lookup.serial(), Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: z.ttl,
	}
}

func (z *zone) apex(q dns.Question) found {
	switch q.Qtype {
	case dns.TypeSOA:
		soa := z.soa()
		soa.Hdr.Name = q.Name
		return found{exists: true, answer: []dns.RR{soa}}
	case dns.TypeNS:
		return found{exists: true, answer: []dns.RR{&dns.NS{Hdr: z.header(q.Name, dns.TypeNS), Ns: "ns.dns." + z.origin}}}
	}
	return nodata
}

func (z *zone) version(q dns.Question) found {
	if q.Qtype != dns.TypeTXT {
		return nodata
	}
	return found{exists: true, answer: []dns.RR{&dns.TXT{Hdr: z.header(q.Name, dns.TypeTXT), Txt: []string{specVersion}}}}
}

// The Service of the cluster's name servers, whose addresses ns.dns.<zone> has.
const (
	ownNamespace = "kube-system"
	ownService   = "kube-dns"
)

func (z *zone) nameserver(q dns.Question, labels []string) found {
	if len(labels) == 1 {
		return nodata
	}
	svc, ok := z.lookup.service(ownNamespace, ownService)
	if labels[0] != "ns" || !ok {
		return nothing
	}
	return found{exists: true, answer: z.addresses(q.Name, q.Qtype, clusterIPs(svc))}
}

// addresses returns the A or AAAA records of a name.
func (z *zone) addresses(name string, kind uint16, ips []netip.Addr) []dns.RR {
	var out []dns.RR
	for _, ip := range ips {
		switch {
		case kind == dns.TypeA && ip.Is4():
			out = append(out, &dns.A{Hdr: z.header(name, kind), A: ip.AsSlice()})
		case kind == dns.TypeAAAA && ip.Is6():
			out = append(out, &dns.AAAA{Hdr: z.header(name, kind), AAAA: ip.AsSlice()})
		}
	}
	return out
}

// services answers for names below svc.<zone>; labels are those before svc.
func (z *zone) services(q dns.Question, labels []string) found {
	n := len(labels)
	if n == 0 {
		return nodata
	}
	namespace := labels[n-1]
	if !z.lookup.namespace(namespace) {
		return nothing
	}
	if n == 1 {
		return nodata
	}
	svc, ok := z.lookup.service(namespace, labels[n-2])
	if !ok {
		return nothing
	}
	labels = labels[:n-2]
	switch {
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		return z.external(q, svc, labels)
	case svc.Spec.ClusterIP == corev1.ClusterIPNone:
		return z.headless(q, svc, labels)
	}
	return z.clusterIP(q, svc, labels)
}

// external answers for an ExternalName Service with a CNAME.
func (z *zone) external(q dns.Question, svc *corev1.Service, labels []string) found {
	if len(labels) > 0 {
		return nothing
	}
	target := dns.Fqdn(strings.ToLower(svc.Spec.ExternalName))
	if _, ok := dns.IsDomainName(target); !ok || target == "." {
		return nothing
	}
	f := found{exists: true, answer: []dns.RR{&dns.CNAME{Hdr: z.header(q.Name, dns.TypeCNAME), Target: target}}}
	if q.Qtype != dns.TypeCNAME {
		f.alias = target
	}
	return f
}

// clusterIP answers for a Service with cluster IPs; labels are those before its name.
func (z *zone) clusterIP(q dns.Question, svc *corev1.Service, labels []string) found {
	ips := clusterIPs(svc)
	if len(ips) == 0 {
		return nothing
	}
	if len(labels) == 0 && q.Qtype != dns.TypeSRV {
		return found{exists: true, answer: z.addresses(q.Name, q.Qtype, ips)}
	}
	ports := portsNamed(svc, labels)
	switch {
	case len(labels) > 0 && len(ports) == 0:
		return nothing
	case q.Qtype != dns.TypeSRV || len(labels) == 1 || len(ports) == 0:
		return nodata
	}
	f := found{exists: true}
	target := z.serviceName(svc)
	for _, p := range ports {
		f.answer = append(f.answer, z.srv(q.Name, p, target, len(ports)))
	}
	f.extra = z.bothAddresses(target, ips)
	return f
}

// portsNamed returns the ports with the name _port._protocol; those of a protocol for its name
// alone, and all for no name.
func portsNamed(svc *corev1.Service, labels []string) (ports []uint16) {
	for _, p := range svc.Spec.Ports {
		if port := uint16(p.Port); named(labels, p.Name, p.Protocol) && !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports
}

// named reports whether a port has the name _port._protocol, or is of the protocol for its name
// alone. Without a name all ports do, also those that have none.
func named(labels []string, port string, protocol corev1.Protocol) bool {
	if len(labels) == 0 {
		return true
	}
	if port == "" || labels[len(labels)-1] != "_"+strings.ToLower(string(protocol)) {
		return false
	}
	return len(labels) == 1 || len(labels) == 2 && labels[0] == "_"+port
}

// srv returns an SRV record; among is the number of records that share the weight.
func (z *zone) srv(name string, port uint16, target string, among int) dns.RR {
	return &dns.SRV{
		Hdr: z.header(name, dns.TypeSRV), Priority: 0, Weight: uint16(max(1, 100/among)), Port: port, Target: target,
	}
}

func (z *zone) bothAddresses(name string, ips []netip.Addr) []dns.RR {
	return append(z.addresses(name, dns.TypeA, ips), z.addresses(name, dns.TypeAAAA, ips)...)
}

func (z *zone) serviceName(svc *corev1.Service) string {
	return svc.Name + "." + svc.Namespace + ".svc." + z.origin
}

// pod answers for 1-2-3-4.NAMESPACE.pod in the mode called "insecure": any address in
// an existing namespace. It does not check whether a pod has the address.
func (z *zone) pod(q dns.Question, labels []string) found {
	n := len(labels)
	if n == 0 {
		return nodata
	}
	if n > 2 || !z.lookup.namespace(labels[n-1]) {
		return nothing
	}
	if n == 1 {
		return nodata
	}
	ip, ok := undash(labels[0])
	if !ok {
		return nothing
	}
	return found{exists: true, answer: z.addresses(q.Name, q.Qtype, []netip.Addr{ip})}
}

// undash parses an address in which dashes replace dots or colons.
func undash(label string) (netip.Addr, bool) {
	for _, sep := range []string{".", ":"} {
		if ip, err := netip.ParseAddr(strings.ReplaceAll(label, "-", sep)); err == nil && ip.Zone() == "" {
			return ip.Unmap(), true
		}
	}
	return netip.Addr{}, false
}

func dash(ip netip.Addr) string {
	if ip.Is4() {
		return strings.ReplaceAll(ip.String(), ".", "-")
	}
	text := strings.ReplaceAll(ip.String(), ":", "-")
	if strings.HasPrefix(text, "-") {
		text = "0" + text // a label must not begin with a dash
	}
	if strings.HasSuffix(text, "-") {
		text += "0"
	}
	return text
}

// reverse answers for the address of a Service or of an endpoint of a headless Service.
// It returns false for any other address.
func (z *zone) reverse(q dns.Question, ip netip.Addr) (found, bool) {
	var names []string
	for _, svc := range z.lookup.servicesAt(ip) {
		names = append(names, z.serviceName(svc))
	}
	for _, s := range z.lookup.slicesAt(ip) {
		svc, ok := z.lookup.service(s.Namespace, s.Labels[discoveryv1.LabelServiceName])
		if !ok || svc.Spec.ClusterIP != corev1.ClusterIPNone {
			continue
		}
		for _, e := range endpoints(svc, []*discoveryv1.EndpointSlice{s}) {
			if e.ip == ip {
				names = append(names, e.host+"."+z.serviceName(svc))
			}
		}
	}
	if len(names) == 0 {
		return nothing, false
	}
	slices.Sort(names)
	f := found{exists: true}
	if q.Qtype != dns.TypePTR {
		return f, true
	}
	for _, name := range slices.Compact(names) {
		f.answer = append(f.answer, &dns.PTR{Hdr: z.header(q.Name, dns.TypePTR), Ptr: name})
	}
	return f, true
}

// clusterIPs returns the valid cluster IPs of a Service.
func clusterIPs(svc *corev1.Service) []netip.Addr {
	texts := svc.Spec.ClusterIPs
	if len(texts) == 0 {
		texts = []string{svc.Spec.ClusterIP}
	}
	var out []netip.Addr
	for _, t := range texts {
		if ip, err := netip.ParseAddr(t); err == nil {
			out = append(out, ip.Unmap())
		}
	}
	return out
}
