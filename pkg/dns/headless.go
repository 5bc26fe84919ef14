package dns

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// endpoint is one address of a headless Service.
type endpoint struct {
	ip    netip.Addr
	host  string // the pod's hostname, or derived from the address
	ports []discoveryv1.EndpointPort
}

// endpoints returns the ready endpoints, or all if the Service publishes addresses that
// are not ready, sorted by address and host.
func endpoints(svc *corev1.Service, sl []*discoveryv1.EndpointSlice) []endpoint {
	var out []endpoint
	for _, s := range sl {
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			ready := e.Conditions.Ready == nil || *e.Conditions.Ready
			if !ready && !svc.Spec.PublishNotReadyAddresses {
				continue
			}
			for _, text := range e.Addresses {
				ip, err := netip.ParseAddr(text)
				if err != nil {
					continue // address type FQDN
				}
				out = append(out, endpoint{ip: ip.Unmap(), host: hostOf(e, ip.Unmap()), ports: s.Ports})
			}
		}
	}
	slices.SortFunc(out, func(a, b endpoint) int { return cmp.Or(a.ip.Compare(b.ip), cmp.Compare(a.host, b.host)) })
	return out
}

func hostOf(e *discoveryv1.Endpoint, ip netip.Addr) string {
	if e.Hostname != nil {
		if host := strings.ToLower(*e.Hostname); len(validation.IsDNS1123Label(host)) == 0 {
			return host
		}
	}
	return dash(ip)
}

// headless answers for a headless Service with its endpoints. As the specification
// requires, the name does not exist without a ready endpoint.
func (z *zone) headless(q dns.Question, svc *corev1.Service, labels []string) found {
	all := endpoints(svc, z.lookup.slices(svc.Namespace, svc.Name))
	if len(all) == 0 {
		return nothing
	}
	switch {
	case len(labels) == 0:
		return z.hosts(q, svc, all)
	case strings.HasPrefix(labels[len(labels)-1], "_"):
		return z.headlessPorts(q, svc, all, labels)
	case len(labels) > 1:
		return nothing
	}
	return z.hosts(q, svc, slices.DeleteFunc(all, func(e endpoint) bool { return e.host != labels[0] }))
}

// hosts answers for a name of these endpoints: with their addresses, or all of their ports.
func (z *zone) hosts(q dns.Question, svc *corev1.Service, all []endpoint) found {
	switch {
	case len(all) == 0:
		return nothing
	case q.Qtype == dns.TypeSRV:
		return z.headlessPorts(q, svc, all, nil)
	}
	return found{exists: true, answer: z.addresses(q.Name, q.Qtype, unique(all))}
}

// unique returns the addresses of the sorted endpoints without duplicates.
func unique(all []endpoint) []netip.Addr {
	var out []netip.Addr
	for _, e := range all {
		if len(out) == 0 || out[len(out)-1] != e.ip { // all is sorted
			out = append(out, e.ip)
		}
	}
	return out
}

// headlessPorts answers for _port._protocol, or for no port's name, with a record for each
// such port of each endpoint.
func (z *zone) headlessPorts(q dns.Question, svc *corev1.Service, all []endpoint, labels []string) found {
	type target struct {
		host string
		port uint16
	}
	seen := map[target]bool{}
	var targets []target
	f := found{exists: len(labels) == 0}
	for _, e := range all {
		for _, p := range e.ports {
			if !matches(p, labels) {
				continue
			}
			f.exists = true
			if p.Port == nil || len(labels) == 1 {
				continue
			}
			t := target{e.host + "." + z.serviceName(svc), uint16(*p.Port)}
			if !seen[t] {
				seen[t] = true
				targets = append(targets, t)
			}
			f.extra = append(f.extra, z.bothAddresses(t.host, []netip.Addr{e.ip})...)
		}
	}
	if q.Qtype != dns.TypeSRV {
		return found{exists: f.exists}
	}
	for _, t := range targets {
		f.answer = append(f.answer, z.srv(q.Name, t.port, t.host, len(targets)))
	}
	f.extra = dns.Dedup(f.extra, nil)
	return f
}

func matches(p discoveryv1.EndpointPort, labels []string) bool {
	name, protocol := "", corev1.ProtocolTCP
	if p.Name != nil {
		name = *p.Name
	}
	if p.Protocol != nil {
		protocol = *p.Protocol
	}
	return named(labels, name, protocol)
}
