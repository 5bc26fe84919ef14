package services

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// The labels of Services and slices that the proxy ignores.
const (
	labelProxyName = "service.kubernetes.io/service-proxy-name"
	labelHeadless  = corev1.IsHeadlessService
)

// Node is the node for which the model is built.
type Node struct {
	Name   string
	Zone   string
	Family Family
	// Captured returns why an external IP must not be served; "" if it may be. nil:
	// all are served.
	Captured func(netip.Addr) string
}

// Port is one port of one Service as this node serves it.
type Port struct {
	Namespace, Service, Name string // Name is the port's; it may be empty
	Protocol                 string // tcp, udp or sctp

	ClusterIP     netip.Addr
	ExternalIPs   []netip.Addr
	Balancers     []netip.Addr   // load-balancer addresses that the node serves itself
	AllowedSource []netip.Prefix // clients that may use the balancers; empty: all
	Port          int32
	NodePort      int32 // 0: none

	Affinity      time.Duration // 0: none
	InternalLocal bool          // internalTrafficPolicy: Local
	ExternalLocal bool          // externalTrafficPolicy: Local

	Cluster []Endpoint // for the Cluster policies: the preferred ones, sorted by address
	Local   []Endpoint // for the Local policies: those on this node
	Any     bool       // any endpoint of the Service is usable, on any node
}

// ID returns the port's name for comments: "namespace/service:port".
func (p *Port) ID() string {
	if p.Name == "" {
		return p.Namespace + "/" + p.Service
	}
	return p.Namespace + "/" + p.Service + ":" + p.Name
}

// External reports whether the port is reachable from outside the cluster network.
func (p *Port) External() bool {
	return p.NodePort != 0 || len(p.ExternalIPs) > 0 || len(p.Balancers) > 0
}

// Endpoint is one backend of a port.
type Endpoint struct {
	Addr  netip.AddrPort
	Local bool // it is on this node
}

// Service is what the node serves for one Service.
type Service struct {
	Ports           []Port
	HealthCheckPort int32    // where load balancers check whether this node has endpoints; 0: nowhere
	LocalReady      int      // number of ready endpoints on this node, for that port
	Notes           []string // what the proxy cannot provide for the Service
}

// Build computes the model of one Service; sl are all its EndpointSlices. The result
// has no ports if svc is nil or if the proxy does not serve it.
func Build(svc *corev1.Service, sl []*discoveryv1.EndpointSlice, node Node) Service {
	if svc == nil || !ours(svc) {
		return Service{}
	}
	family := node.Family
	ip, ok := clusterIP(svc, family)
	if !ok {
		return Service{Notes: []string{fmt.Sprintf("the Service has no %s cluster IP, and only %[1]s is proxied", family)}}
	}
	base := Port{
		Namespace: svc.Namespace, Service: svc.Name,
		ClusterIP:     ip,
		ExternalIPs:   addresses(svc.Spec.ExternalIPs, family),
		Balancers:     balancers(svc, family),
		AllowedSource: prefixes(svc.Spec.LoadBalancerSourceRanges, family),
		Affinity:      affinity(svc),
		InternalLocal: svc.Spec.InternalTrafficPolicy != nil && *svc.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
		ExternalLocal: svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
	}
	out := Service{}
	if node.Captured != nil {
		base.ExternalIPs = slices.DeleteFunc(base.ExternalIPs, func(ip netip.Addr) bool {
			why := node.Captured(ip)
			if why != "" {
				out.Notes = append(out.Notes, why)
			}
			return why != ""
		})
	}
	for _, sp := range svc.Spec.Ports {
		p := base
		p.Name, p.Port, p.NodePort = sp.Name, sp.Port, sp.NodePort
		p.Protocol = protocol(sp.Protocol)
		candidates := gather(sl, sp.Name, p.Protocol, node)
		p.Cluster = chooseCluster(candidates, node)
		p.Local = choose(candidates, func(c candidate) bool { return c.Local })
		p.Any = len(choose(candidates, func(candidate) bool { return true })) > 0
		out.Ports = append(out.Ports, p)
	}
	if svc.Spec.HealthCheckNodePort != 0 && base.ExternalLocal {
		out.HealthCheckPort = svc.Spec.HealthCheckNodePort
		out.LocalReady = localReady(sl, node)
	}
	return out
}

func ours(svc *corev1.Service) bool {
	_, elsewhere := svc.Labels[labelProxyName]
	return !elsewhere && svc.Spec.Type != corev1.ServiceTypeExternalName &&
		svc.Spec.ClusterIP != "" && svc.Spec.ClusterIP != corev1.ClusterIPNone
}

func clusterIP(svc *corev1.Service, family Family) (netip.Addr, bool) {
	all := addresses(append([]string{svc.Spec.ClusterIP}, svc.Spec.ClusterIPs...), family)
	if len(all) == 0 {
		return netip.Addr{}, false
	}
	return all[0], true
}

// addresses returns the addresses of the family, in their order.
func addresses(texts []string, family Family) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		if a, ok := family.address(t); ok {
			out = append(out, a)
		}
	}
	return out
}

func prefixes(texts []string, family Family) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		if p, err := netip.ParsePrefix(strings.TrimSpace(t)); err == nil && FamilyOf(p.Addr()) == family {
			out = append(out, p.Masked())
		}
	}
	return out
}

func balancers(svc *corev1.Service, family Family) []netip.Addr {
	var texts []string
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if in.IPMode == nil || *in.IPMode == corev1.LoadBalancerIPModeVIP {
			texts = append(texts, in.IP)
		}
	}
	return addresses(texts, family)
}

func affinity(svc *corev1.Service) time.Duration {
	if svc.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	seconds := corev1.DefaultClientIPServiceAffinitySeconds
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	return time.Duration(seconds) * time.Second
}

func protocol(p corev1.Protocol) string {
	if p == "" {
		return "tcp"
	}
	return strings.ToLower(string(p))
}

// Describe returns the port as text, for logs and tests.
func (p *Port) Describe() string {
	return fmt.Sprintf("%s %s %s:%d cluster=%v local=%v", p.ID(), p.Protocol, p.ClusterIP, p.Port, p.Cluster, p.Local)
}

func sortEndpoints(eps []Endpoint) {
	slices.SortFunc(eps, func(a, b Endpoint) int {
		return cmp.Or(a.Addr.Addr().Compare(b.Addr.Addr()), cmp.Compare(a.Addr.Port(), b.Addr.Port()))
	})
}
