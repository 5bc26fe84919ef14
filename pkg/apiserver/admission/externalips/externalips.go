// Package externalips is the admission plugin DenyServiceExternalIPs. Without it
// the writer of a Service in any namespace can take over connections to any
// address on every node (CVE-2020-8554). Upstream's plugin denies all new
// addresses; this one can allow ranges of them, except the addresses of nodes,
// pods, Services and the API server.
package externalips

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/admission"
	"podium/pkg/scheme"
)

// plugin is the state of the plugin.
type plugin struct {
	admission.Host
	allowed []netip.Prefix
}

// New returns the plugin, which admits new external IPs only inside allowed. As
// upstream, an update may keep and remove existing ones.
func New(h admission.Host, allowed []netip.Prefix) admission.Plugin {
	p := &plugin{h, allowed}
	return admission.Plugin{
		Operations: []admission.Operation{admission.Create, admission.Update},
		Resource:   corev1.Resource("services"),
		Validate:   p.validate,
	}
}

func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
	fresh := added(a.Object.(*corev1.Service), a.Old)
	if len(fresh) == 0 {
		return nil
	}
	if len(p.allowed) == 0 {
		return admission.Forbidden(a, "Use of external IPs is denied by admission control")
	}
	found, err := p.lookUp(ctx)
	if err != nil {
		return err
	}
	for _, text := range fresh {
		if reason := p.refuse(found, text); reason != "" {
			return admission.Forbidden(a, "Use of external IPs is denied by admission control: spec.externalIPs: %s", reason)
		}
	}
	return nil
}

// added returns the external IPs of svc that old does not have; old may be nil.
func added(svc *corev1.Service, old scheme.Object) []string {
	var before []string
	if s, ok := old.(*corev1.Service); ok {
		before = s.Spec.ExternalIPs
	}
	var out []string
	for _, ip := range svc.Spec.ExternalIPs {
		if !slices.Contains(before, ip) {
			out = append(out, ip)
		}
	}
	return out
}

// refuse returns why text may not be an external IP, "" if it may.
func (p *plugin) refuse(found *cluster, text string) string {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return err.Error()
	}
	ip = ip.Unmap()
	switch {
	case !slices.ContainsFunc(p.allowed, func(r netip.Prefix) bool { return r.Contains(ip) }):
		return fmt.Sprintf("%s is in none of the ranges of --service-external-ip-ranges", ip)
	case ip.IsUnspecified(), ip.IsLoopback(), ip.IsLinkLocalUnicast():
		return fmt.Sprintf("%s means another machine on each node", ip)
	case ip.IsMulticast():
		return fmt.Sprintf("%s is a multicast address", ip)
	case ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Sprintf("%s is the broadcast address", ip)
	case p.ServiceCIDR.Contains(ip):
		return fmt.Sprintf("%s is in the Service range %s", ip, p.ServiceCIDR)
	case ip == p.Address.Unmap() || slices.Contains(found.servers, ip):
		return fmt.Sprintf("%s is an address of the API server", ip)
	}
	if i := slices.IndexFunc(found.ranges, func(r netip.Prefix) bool { return r.Contains(ip) }); i >= 0 {
		return fmt.Sprintf("%s is in the Service range %s", ip, found.ranges[i])
	}
	return found.refuse(ip)
}

// cluster holds the addresses of the cluster's own machines and pods.
type cluster struct {
	servers []netip.Addr
	nodes   []*corev1.Node
	ranges  []netip.Prefix // of ServiceCIDRs
}

// lookUp reads the addresses that must not be used.
func (p *plugin) lookUp(ctx context.Context) (*cluster, error) {
	out := &cluster{}
	cidrs, err := p.Objects.List(ctx, networkingv1.SchemeGroupVersion.WithResource("servicecidrs"), "")
	if err != nil {
		return nil, fmt.Errorf("list ServiceCIDRs: %w", err)
	}
	for _, obj := range cidrs {
		for _, text := range obj.(*networkingv1.ServiceCIDR).Spec.CIDRs {
			if r, err := netip.ParsePrefix(text); err == nil {
				out.ranges = append(out.ranges, r)
			}
		}
	}
	nodes, err := p.Objects.List(ctx, corev1.SchemeGroupVersion.WithResource("nodes"), "")
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range nodes {
		out.nodes = append(out.nodes, n.(*corev1.Node))
	}
	servers, err := p.Objects.Get(ctx, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), metav1.NamespaceDefault, "kubernetes")
	if apierrors.IsNotFound(err) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get the API server's endpoints: %w", err)
	}
	for _, e := range servers.(*discoveryv1.EndpointSlice).Endpoints {
		for _, text := range e.Addresses {
			if ip, err := netip.ParseAddr(text); err == nil {
				out.servers = append(out.servers, ip.Unmap())
			}
		}
	}
	return out, nil
}

// refuse returns a reason if ip is an address of a node or in a pod CIDR, else
// "".
func (c *cluster) refuse(ip netip.Addr) string {
	for _, n := range c.nodes {
		for _, a := range n.Status.Addresses {
			if have, err := netip.ParseAddr(a.Address); err == nil && have.Unmap() == ip {
				return fmt.Sprintf("%s is an address of node %s", ip, n.Name)
			}
		}
		for _, cidr := range append([]string{n.Spec.PodCIDR}, n.Spec.PodCIDRs...) {
			if r, err := netip.ParsePrefix(cidr); err == nil && r.Contains(ip) {
				return fmt.Sprintf("%s is in the pod range %s of node %s", ip, r, n.Name)
			}
		}
	}
	return ""
}
