package dns

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// world implements lookup with slices.
type world struct {
	svcs []*corev1.Service
	sls  []*discoveryv1.EndpointSlice
}

func (w world) namespace(name string) bool { return name == "shop" || name == "kube-system" }

func (w world) service(namespace, name string) (*corev1.Service, bool) {
	for _, s := range w.svcs {
		if s.Namespace == namespace && s.Name == name {
			return s, true
		}
	}
	return nil, false
}

func (w world) slices(namespace, service string) (out []*discoveryv1.EndpointSlice) {
	for _, s := range w.sls {
		if s.Namespace == namespace && s.Labels[discoveryv1.LabelServiceName] == service {
			out = append(out, s)
		}
	}
	return out
}

func (w world) servicesAt(ip netip.Addr) (out []*corev1.Service) {
	for _, s := range w.svcs {
		if slices.Contains(clusterIPs(s), ip) {
			out = append(out, s)
		}
	}
	return out
}

func (w world) slicesAt(ip netip.Addr) (out []*discoveryv1.EndpointSlice) {
	for _, s := range w.sls {
		for _, e := range s.Endpoints {
			if e.Addresses[0] == ip.String() {
				out = append(out, s)
			}
		}
	}
	return out
}

func (w world) serial() uint32 { return 7 }

func service(name string, change func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	change(&s.Spec)
	return s
}

func slice(name, family string, ports []discoveryv1.EndpointPort, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name + "-" + family, Labels: map[string]string{
			discoveryv1.LabelServiceName: name, corev1.IsHeadlessService: "",
		}},
		AddressType: discoveryv1.AddressType(family), Ports: ports, Endpoints: endpoints,
	}
}

func at(ip, host string, ready bool) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
	if host != "" {
		e.Hostname = &host
	}
	return e
}

func shop() world {
	http := []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}}
	return world{
		svcs: []*corev1.Service{
			service("web", func(s *corev1.ServiceSpec) {
				s.ClusterIP, s.ClusterIPs = "10.96.0.7", []string{"10.96.0.7"}
				s.Ports = []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}, {Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}}
			}),
			service("six", func(s *corev1.ServiceSpec) { s.ClusterIP = "fd00::7" }),
			service("plain", func(s *corev1.ServiceSpec) {
				s.ClusterIP, s.Ports = "10.96.0.8", []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}
			}),
			service("db", func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone }),
			service("early", func(s *corev1.ServiceSpec) { s.ClusterIP, s.PublishNotReadyAddresses = corev1.ClusterIPNone, true }),
			service("empty", func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone }),
			service("away", func(s *corev1.ServiceSpec) {
				s.Type, s.ExternalName = corev1.ServiceTypeExternalName, "Example.org"
			}),
		},
		sls: []*discoveryv1.EndpointSlice{
			slice("db", "IPv4", http, at("10.244.0.5", "db-0", true), at("10.244.1.6", "", true), at("10.244.1.9", "db-9", false)),
			slice("db", "IPv6", http, at("fd01::5", "db-0", true)),
			slice("early", "IPv4", nil, at("10.244.0.8", "early-0", false)),
			slice("empty", "IPv4", http, at("10.244.0.9", "", false)),
		},
	}
}

// text formats what a zone has found, one record per line.
func text(f found) string {
	if !f.exists {
		return "NXDOMAIN"
	}
	var lines []string
	for _, rr := range f.answer {
		lines = append(lines, strings.ReplaceAll(rr.String(), "\t", " "))
	}
	for _, rr := range f.extra {
		lines = append(lines, "+ "+strings.ReplaceAll(rr.String(), "\t", " "))
	}
	return strings.Join(lines, "\n")
}

func TestZone(t *testing.T) {
	const z = "cluster.local."
	tests := map[string]struct {
		name string
		kind uint16
		want string
	}{
		"a Service's address":                   {"web.shop.svc." + z, dns.TypeA, "web.shop.svc.cluster.local. 5 IN A 10.96.0.7"},
		"the case asked in is the one answered": {"WEB.Shop.svc.Cluster.Local.", dns.TypeA, "WEB.Shop.svc.Cluster.Local. 5 IN A 10.96.0.7"},
		"the other family is empty":             {"web.shop.svc." + z, dns.TypeAAAA, ""},
		"IPv6":                                  {"six.shop.svc." + z, dns.TypeAAAA, "six.shop.svc.cluster.local. 5 IN AAAA fd00::7"},
		"no such Service":                       {"none.shop.svc." + z, dns.TypeA, "NXDOMAIN"},
		"no such namespace":                     {"web.none.svc." + z, dns.TypeA, "NXDOMAIN"},
		"a namespace is a name":                 {"shop.svc." + z, dns.TypeA, ""},
		"svc is a name":                         {"svc." + z, dns.TypeA, ""},
		"nothing is below an address":           {"x.web.shop.svc." + z, dns.TypeA, "NXDOMAIN"},
		"SRV of a Service": {"_http._tcp.web.shop.svc." + z, dns.TypeSRV,
			"_http._tcp.web.shop.svc.cluster.local. 5 IN SRV 0 100 80 web.shop.svc.cluster.local.\n+ web.shop.svc.cluster.local. 5 IN A 10.96.0.7"},
		"SRV of a Service's own name has all ports": {"web.shop.svc." + z, dns.TypeSRV, strings.Join([]string{
			"web.shop.svc.cluster.local. 5 IN SRV 0 50 80 web.shop.svc.cluster.local.",
			"web.shop.svc.cluster.local. 5 IN SRV 0 50 53 web.shop.svc.cluster.local.",
			"+ web.shop.svc.cluster.local. 5 IN A 10.96.0.7",
		}, "\n")},
		"and the one without a name": {"plain.shop.svc." + z, dns.TypeSRV,
			"plain.shop.svc.cluster.local. 5 IN SRV 0 100 80 plain.shop.svc.cluster.local.\n+ plain.shop.svc.cluster.local. 5 IN A 10.96.0.8"},
		"but nothing without ports":        {"six.shop.svc." + z, dns.TypeSRV, ""},
		"the port's protocol must fit":     {"_http._udp.web.shop.svc." + z, dns.TypeSRV, "NXDOMAIN"},
		"a protocol alone is only a name":  {"_tcp.web.shop.svc." + z, dns.TypeSRV, ""},
		"a protocol nobody has is no name": {"_sctp.web.shop.svc." + z, dns.TypeSRV, "NXDOMAIN"},
		"headless: the ready ones": {"db.shop.svc." + z, dns.TypeA,
			"db.shop.svc.cluster.local. 5 IN A 10.244.0.5\ndb.shop.svc.cluster.local. 5 IN A 10.244.1.6"},
		"headless, IPv6":              {"db.shop.svc." + z, dns.TypeAAAA, "db.shop.svc.cluster.local. 5 IN AAAA fd01::5"},
		"an endpoint by its hostname": {"db-0.db.shop.svc." + z, dns.TypeA, "db-0.db.shop.svc.cluster.local. 5 IN A 10.244.0.5"},
		"one without, by its address": {"10-244-1-6.db.shop.svc." + z, dns.TypeA, "10-244-1-6.db.shop.svc.cluster.local. 5 IN A 10.244.1.6"},
		"one that is not ready":       {"db-9.db.shop.svc." + z, dns.TypeA, "NXDOMAIN"},
		"not ready, but published":    {"early-0.early.shop.svc." + z, dns.TypeA, "early-0.early.shop.svc.cluster.local. 5 IN A 10.244.0.8"},
		"headless without a ready endpoint (specification 1.1, 2.4.1)": {"empty.shop.svc." + z, dns.TypeA, "NXDOMAIN"},
		"SRV of a headless Service": {"_http._tcp.db.shop.svc." + z, dns.TypeSRV, strings.Join([]string{
			"_http._tcp.db.shop.svc.cluster.local. 5 IN SRV 0 50 8080 db-0.db.shop.svc.cluster.local.",
			"_http._tcp.db.shop.svc.cluster.local. 5 IN SRV 0 50 8080 10-244-1-6.db.shop.svc.cluster.local.",
			"+ db-0.db.shop.svc.cluster.local. 5 IN A 10.244.0.5",
			"+ 10-244-1-6.db.shop.svc.cluster.local. 5 IN A 10.244.1.6",
			"+ db-0.db.shop.svc.cluster.local. 5 IN AAAA fd01::5",
		}, "\n")},
		"SRV of a headless Service's own name": {"db.shop.svc." + z, dns.TypeSRV, strings.Join([]string{
			"db.shop.svc.cluster.local. 5 IN SRV 0 50 8080 db-0.db.shop.svc.cluster.local.",
			"db.shop.svc.cluster.local. 5 IN SRV 0 50 8080 10-244-1-6.db.shop.svc.cluster.local.",
			"+ db-0.db.shop.svc.cluster.local. 5 IN A 10.244.0.5",
			"+ 10-244-1-6.db.shop.svc.cluster.local. 5 IN A 10.244.1.6",
			"+ db-0.db.shop.svc.cluster.local. 5 IN AAAA fd01::5",
		}, "\n")},
		"SRV of an endpoint": {"10-244-1-6.db.shop.svc." + z, dns.TypeSRV, strings.Join([]string{
			"10-244-1-6.db.shop.svc.cluster.local. 5 IN SRV 0 100 8080 10-244-1-6.db.shop.svc.cluster.local.",
			"+ 10-244-1-6.db.shop.svc.cluster.local. 5 IN A 10.244.1.6",
		}, "\n")},
		"SRV of endpoints without ports":   {"early.shop.svc." + z, dns.TypeSRV, ""},
		"ExternalName":                     {"away.shop.svc." + z, dns.TypeA, "away.shop.svc.cluster.local. 5 IN CNAME example.org."},
		"nothing is below an ExternalName": {"x.away.shop.svc." + z, dns.TypeA, "NXDOMAIN"},
		"a pod by its address":             {"10-1-2-3.shop.pod." + z, dns.TypeA, "10-1-2-3.shop.pod.cluster.local. 5 IN A 10.1.2.3"},
		"a pod by its IPv6 address":        {"fd00--1.shop.pod." + z, dns.TypeAAAA, "fd00--1.shop.pod.cluster.local. 5 IN AAAA fd00::1"},
		"not an address":                   {"ten-1-2-3.shop.pod." + z, dns.TypeA, "NXDOMAIN"},
		"a pod of no namespace":            {"10-1-2-3.none.pod." + z, dns.TypeA, "NXDOMAIN"},
		"the specification's version":      {"dns-version." + z, dns.TypeTXT, `dns-version.cluster.local. 5 IN TXT "1.1.0"`},
		"the zone's SOA": {z, dns.TypeSOA,
			"cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 7 7200 1800 86400 5"},
		"the zone's NS":   {z, dns.TypeNS, "cluster.local. 5 IN NS ns.dns.cluster.local."},
		"another subtree": {"example." + z, dns.TypeA, "NXDOMAIN"},
	}
	zone := &zone{origin: z, ttl: 5, pods: true, lookup: shop()}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := text(zone.find(dns.Question{Name: tt.name, Qtype: tt.kind, Qclass: dns.ClassINET}))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReverse(t *testing.T) {
	zone := &zone{origin: "cluster.local.", ttl: 5, lookup: shop()}
	for name, tt := range map[string]struct{ question, want string }{
		"a Service":                 {"7.0.96.10.in-addr.arpa.", "7.0.96.10.in-addr.arpa. 5 IN PTR web.shop.svc.cluster.local."},
		"an IPv6 Service":           {"7.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.", "7.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa. 5 IN PTR six.shop.svc.cluster.local."},
		"an endpoint":               {"5.0.244.10.in-addr.arpa.", "5.0.244.10.in-addr.arpa. 5 IN PTR db-0.db.shop.svc.cluster.local."},
		"an endpoint without name":  {"6.1.244.10.in-addr.arpa.", "6.1.244.10.in-addr.arpa. 5 IN PTR 10-244-1-6.db.shop.svc.cluster.local."},
		"one that is not ready":     {"9.1.244.10.in-addr.arpa.", "not ours"},
		"an address of the world's": {"1.1.1.1.in-addr.arpa.", "not ours"},
		"too short":                 {"1.1.in-addr.arpa.", "not ours"},
	} {
		t.Run(name, func(t *testing.T) {
			got := "not ours"
			if ip, ok := addressOf(tt.question); ok {
				if f, ours := zone.reverse(dns.Question{Name: tt.question, Qtype: dns.TypePTR}, ip); ours {
					got = text(f)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDashedAddresses(t *testing.T) {
	for _, text := range []string{"10.0.0.1", "fd00::", "::1", "fd00::1:2", "2001:db8:1:2:3:4:5:6"} {
		ip := netip.MustParseAddr(text)
		label := dash(ip)
		if strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			t.Errorf("%s becomes %q, which is no label", text, label)
		}
		if back, ok := undash(label); !ok || back != ip {
			t.Errorf("%s becomes %q and that %v", text, label, back)
		}
	}
}
