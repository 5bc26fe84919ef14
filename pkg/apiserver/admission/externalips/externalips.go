package externalips

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/admission"
	"podium/pkg/scheme"
)

// Objects reads the Nodes and the endpoints of the API server.
type Objects interface {
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (scheme.Object, error)
	List(ctx context.Context, gvr schema.GroupVersionResource, namespace string) ([]scheme.Object, error)
}

// Config is what the plugin compares addresses with.
type Config struct {
	Allowed  []netip.Prefix // where new external IPs may be; empty: nowhere
	Services netip.Prefix   // the range of cluster IPs
	Server   netip.Addr     // this API server's address; the zero value: none
	Objects  Objects
}

// New returns the plugin. An update may keep and remove addresses, as upstream.
func New(cfg Config) admission.Func {
	return func(ctx context.Context, a *admission.Attributes) error {
		if a.Kind.Group != "" || a.Kind.Resource != "services" || a.Subresource != "" {
			return nil
		}
		svc, ok := a.Object.(*corev1.Service)
		if !ok {
			return nil // a delete
		}
		fresh := added(svc, a.Old)
		if len(fresh) == 0 {
			return nil
		}
		if len(cfg.Allowed) == 0 {
			return admission.Forbidden(a, "Use of external IPs is denied by admission control")
		}
		found, err := cfg.lookUp(ctx)
		if err != nil {
			return err
		}
		for _, text := range fresh {
			if reason := cfg.refuse(found, text); reason != "" {
				return admission.Forbidden(a, "Use of external IPs is denied by admission control: spec.externalIPs: %s", reason)
			}
		}
		return nil
	}
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
func (c *Config) refuse(found *cluster, text string) string {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return err.Error()
	}
	ip = ip.Unmap()
	switch {
	case !slices.ContainsFunc(c.Allowed, func(r netip.Prefix) bool { return r.Contains(ip) }):
		return fmt.Sprintf("%s is in none of the ranges of --service-external-ip-ranges", ip)
	case ip.IsUnspecified(), ip.IsLoopback(), ip.IsLinkLocalUnicast():
		return fmt.Sprintf("%s means another machine on each node", ip)
	case ip.IsMulticast():
		return fmt.Sprintf("%s is a multicast address", ip)
	case ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Sprintf("%s is the broadcast address", ip)
	case c.Services.Contains(ip):
		return fmt.Sprintf("%s is in the Service range %s", ip, c.Services)
	case ip == c.Server.Unmap() || slices.Contains(found.servers, ip):
		return fmt.Sprintf("%s is an address of the API server", ip)
	}
	return found.refuse(ip)
}

// cluster is the addresses that the cluster's own machines and pods have.
type cluster struct {
	servers []netip.Addr
	nodes   []*corev1.Node
}

func (c *Config) lookUp(ctx context.Context) (*cluster, error) {
	out := &cluster{}
	nodes, err := c.Objects.List(ctx, corev1.SchemeGroupVersion.WithResource("nodes"), "")
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range nodes {
		out.nodes = append(out.nodes, n.(*corev1.Node))
	}
	servers, err := c.Objects.Get(ctx, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), metav1.NamespaceDefault, "kubernetes")
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
