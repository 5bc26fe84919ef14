package dns

import (
	"context"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"podium/pkg/client"
	"podium/pkg/client/informer"
	"podium/pkg/scheme"
)

// views are informers of the objects that answers are made from.
type views struct {
	namespaces *informer.Informer[*corev1.Namespace]
	svcs       *informer.Informer[*corev1.Service]
	sls        *informer.Informer[*discoveryv1.EndpointSlice]
	changed    atomic.Uint32 // Unix time of the last change, used as the zone's serial number
}

const (
	byAddress = "address"
	byOwner   = "service"
)

// newViews returns informers that are not running yet, with their indexes.
func newViews(cfg Config) *views {
	opts := informer.Options{Log: cfg.Log, Transform: lean}
	v := &views{
		namespaces: informer.New(client.For[*corev1.Namespace](cfg.Client), opts),
		svcs:       informer.New(client.For[*corev1.Service](cfg.Client), opts),
		sls:        informer.New(client.For[*discoveryv1.EndpointSlice](cfg.Client), opts),
	}
	v.svcs.Index(byAddress, func(s *corev1.Service) []string { return texts(clusterIPs(s)) })
	v.sls.Index(byOwner, func(s *discoveryv1.EndpointSlice) []string {
		return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}
	})
	v.sls.Index(byAddress, func(s *discoveryv1.EndpointSlice) []string {
		if _, headless := s.Labels[corev1.IsHeadlessService]; !headless {
			return nil
		}
		seen := map[string]bool{}
		var out []string
		for _, e := range s.Endpoints {
			for _, text := range e.Addresses {
				if ip, err := netip.ParseAddr(text); err == nil && !seen[ip.Unmap().String()] {
					seen[ip.Unmap().String()] = true
					out = append(out, ip.Unmap().String())
				}
			}
		}
		return out
	})
	v.svcs.OnChange(func(_, _ *corev1.Service) { v.touch() })
	v.sls.OnChange(func(_, _ *discoveryv1.EndpointSlice) { v.touch() })
	return v
}

// lean removes fields that answers do not need, to save memory.
func lean(obj scheme.Object) {
	obj.SetManagedFields(nil)
	obj.SetAnnotations(nil)
	obj.SetOwnerReferences(nil)
	if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
		for i := range slice.Endpoints {
			slice.Endpoints[i].TargetRef, slice.Endpoints[i].Hints = nil, nil
		}
	}
	if svc, ok := obj.(*corev1.Service); ok {
		svc.Status = corev1.ServiceStatus{}
	}
}

func texts(ips []netip.Addr) []string {
	out := make([]string, len(ips))
	for i, ip := range ips {
		out[i] = ip.String()
	}
	return out
}

func (v *views) touch() { v.changed.Store(uint32(time.Now().Unix())) }

func (v *views) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return v.namespaces.Run(ctx) })
	g.Go(func() error { return v.svcs.Run(ctx) })
	g.Go(func() error { return v.sls.Run(ctx) })
	return g.Wait()
}

// synced reports whether all objects have been listed.
func (v *views) synced() bool { return v.namespaces.Synced() && v.svcs.Synced() && v.sls.Synced() }

func (v *views) namespace(name string) bool {
	_, ok := v.namespaces.Get("", name)
	return ok
}

func (v *views) service(namespace, name string) (*corev1.Service, bool) {
	return v.svcs.Get(namespace, name)
}

func (v *views) slices(namespace, service string) []*discoveryv1.EndpointSlice {
	return v.sls.By(byOwner, namespace+"/"+service)
}

func (v *views) servicesAt(ip netip.Addr) []*corev1.Service { return v.svcs.By(byAddress, ip.String()) }

func (v *views) slicesAt(ip netip.Addr) []*discoveryv1.EndpointSlice {
	return v.sls.By(byAddress, ip.String())
}

func (v *views) serial() uint32 { return v.changed.Load() }

// addressOf parses the address in a reverse lookup name.
func addressOf(name string) (netip.Addr, bool) {
	name = strings.ToLower(name)
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		parts := strings.Split(rest, ".")
		if len(parts) != 4 {
			return netip.Addr{}, false
		}
		ip, err := netip.ParseAddr(parts[3] + "." + parts[2] + "." + parts[1] + "." + parts[0])
		return ip, err == nil
	}
	rest, ok := strings.CutSuffix(name, ".ip6.arpa.")
	const digits = 32
	if !ok || len(rest) != 2*digits-1 {
		return netip.Addr{}, false
	}
	var b strings.Builder
	for i := digits - 1; i >= 0; i-- {
		b.WriteByte(rest[2*i])
		if i > 0 && rest[2*i-1] != '.' {
			return netip.Addr{}, false
		}
		if i%4 == 0 && i > 0 {
			b.WriteByte(':')
		}
	}
	ip, err := netip.ParseAddr(b.String())
	return ip, err == nil
}
