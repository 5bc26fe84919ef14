package csrapproving

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// controlPlaneLabel marks the nodes that run an API server. The NodeRestriction admission
// plugin prevents kubelets from setting it.
const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// surroundings is what a serving certificate is compared with, besides its own node. A
// kubelet reports the addresses in the node's status itself, so they do not prove that an
// address belongs to the node.
type surroundings struct {
	services []*corev1.Service
	slices   []*discoveryv1.EndpointSlice // of default/kubernetes: the API servers' addresses
	servers  []string                     // URLs of the API: the control-plane endpoint
	nodes    []*corev1.Node
}

// check returns an error if a serving certificate must not be approved for the node.
func (s *surroundings) check(r *x509.CertificateRequest, n *corev1.Node) error {
	for _, name := range r.DNSNames {
		if err := s.checkName(strings.ToLower(name), n); err != nil {
			return err
		}
	}
	for _, ip := range r.IPAddresses {
		addr, ok := netip.AddrFromSlice(ip)
		if !ok {
			return fmt.Errorf("IP address %s is invalid", ip)
		}
		if err := s.checkAddress(addr.Unmap(), n); err != nil {
			return err
		}
	}
	return nil
}

func (s *surroundings) checkName(name string, n *corev1.Node) error {
	switch {
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return fmt.Errorf("DNS name %q is not the name of one machine", name)
	case ofService(name):
		return fmt.Errorf("DNS name %q is a Service's", name)
	case name == "localhost" || strings.HasSuffix(name, ".localhost") || strings.HasPrefix(name, "localhost."):
		return fmt.Errorf("DNS name %q is every machine's own", name)
	case s.isEndpoint(name) && !isControlPlane(n):
		return fmt.Errorf("DNS name %q is the API server's", name)
	}
	for _, other := range s.nodes {
		if names, _ := namesOf(other); other.Name != n.Name && names[name] {
			return fmt.Errorf("DNS name %q is also that of the node %s", name, other.Name)
		}
	}
	return nil
}

func (s *surroundings) checkAddress(ip netip.Addr, n *corev1.Node) error {
	if ip.IsLoopback() || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return fmt.Errorf("IP address %s is not the address of one machine", ip)
	}
	for _, service := range s.services {
		if slices.Contains(addressesOf(service), ip) {
			return fmt.Errorf("IP address %s is that of the Service %s/%s", ip, service.Namespace, service.Name)
		}
	}
	if !isControlPlane(n) && (s.isServer(ip) || s.isEndpoint(ip.String())) {
		return fmt.Errorf("IP address %s is the API server's", ip)
	}
	for _, other := range s.nodes {
		if _, addresses := namesOf(other); other.Name != n.Name && addresses[ip] {
			return fmt.Errorf("IP address %s is also that of the node %s", ip, other.Name)
		}
	}
	return nil
}

// isServer reports whether ip is the address of an API server.
func (s *surroundings) isServer(ip netip.Addr) bool {
	for _, slice := range s.slices {
		for _, endpoint := range slice.Endpoints {
			for _, text := range endpoint.Addresses {
				if a, err := netip.ParseAddr(text); err == nil && a.Unmap() == ip {
					return true
				}
			}
		}
	}
	return false
}

// isEndpoint reports whether clients reach the API by this host.
func (s *surroundings) isEndpoint(host string) bool {
	for _, text := range s.servers {
		u, err := url.Parse(text)
		if err != nil {
			continue
		}
		have := strings.ToLower(u.Hostname())
		if ip, err := netip.ParseAddr(have); err == nil {
			have = ip.Unmap().String()
		}
		if have == host {
			return true
		}
	}
	return false
}

func isControlPlane(n *corev1.Node) bool {
	_, marked := n.Labels[controlPlaneLabel]
	return marked
}

// addressesOf returns a Service's cluster IPs. It ignores external IPs, which may be those
// of nodes: a user who can write Services must not be able to block a node's certificate.
func addressesOf(s *corev1.Service) (out []netip.Addr) {
	for _, text := range append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...) {
		if ip := net.ParseIP(text); ip != nil { // nil for None and ""
			addr, _ := netip.AddrFromSlice(ip)
			out = append(out, addr.Unmap())
		}
	}
	return out
}

// ofService reports whether name is the cluster DNS name of a Service, or a short name of
// the API server.
func ofService(name string) bool {
	return name == "kubernetes" || name == "kubernetes.default" || strings.HasSuffix(name, ".svc") || strings.Contains(name, ".svc.")
}
