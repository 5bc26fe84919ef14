package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"podium/pkg/client"
	"podium/pkg/client/informer"
	"podium/pkg/netrules"
	"podium/pkg/proxy/iptables"
	"podium/pkg/proxy/services"
)

// Proxy applies the rules for Services and EndpointSlices to one node's kernel.
type Proxy struct {
	cfg      Config
	times    Times
	metrics  *metrics
	health   health
	lease    *lease
	services *informer.Informer[*corev1.Service]
	slices   *informer.Informer[*discoveryv1.EndpointSlice]
	node     *informer.Informer[*corev1.Node]
	pending  *pending

	podMu       sync.Mutex
	podRules    netrules.Fragment // of the pod network; any goroutine may change them
	announced   []netip.Addr      // announced load-balancer addresses; likewise
	reannounced bool              // announced has changed since the last sync

	// Only the goroutine of the sync uses these.
	features iptables.Features
	planner  iptables.Planner
	set      *netrules.Set
	applier  *iptables.Applier
	served   map[name]served
	lastFull time.Time
}

const byService = "service"

// New returns a Proxy; Run starts it. It returns an error if cfg.Rules is invalid.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.Rules.Validate(); err != nil {
		return nil, err
	}
	p := &Proxy{
		cfg: cfg, times: cfg.Times.withDefaults(),
		services: informer.New(client.For[*corev1.Service](cfg.Client), informer.Options{Log: cfg.Log}),
		slices:   informer.New(client.For[*discoveryv1.EndpointSlice](cfg.Client), informer.Options{Log: cfg.Log}),
		node: informer.New(client.For[*corev1.Node](cfg.Client), informer.Options{
			Log: cfg.Log, FieldSelector: "metadata.name=" + cfg.Node,
		}),
		pending: newPending(),
		set:     netrules.NewSet(),
		served:  map[name]served{},
	}
	p.metrics = newMetrics(cfg.Registry, cfg.Rules.Family(), p.pending)
	p.lease = newLease(cfg.Client, cfg.Node, cfg.Log)
	p.health = health{pending: p.pending, timeout: 2 * p.times.Sync, node: p.currentNode}
	p.slices.Index(byService, func(s *discoveryv1.EndpointSlice) []string { return []string{serviceOf(s).String()} })
	p.services.Index(byClusterIP, clusterIPs)
	p.services.Index(byExternalIP, func(s *corev1.Service) []string { return s.Spec.ExternalIPs })
	p.services.OnChange(p.pending.service)
	p.services.OnChange(p.claims)
	p.slices.OnChange(p.pending.slice)
	p.node.OnChange(func(old, new *corev1.Node) {
		if f := cfg.Rules.Family(); placeOf(old, f) != placeOf(new, f) {
			p.pending.all()
		}
	})
	return p, nil
}

// SetPodRules sets the pod network's rules for the next sync. It is safe for
// concurrent use.
func (p *Proxy) SetPodRules(f netrules.Fragment) {
	p.podMu.Lock()
	p.podRules = f
	p.podMu.Unlock()
	p.pending.note(func(*batch) {})
}

// Run applies rules until ctx ends or a part fails. The rules stay in the kernel,
// because traffic must not depend on this process.
func (p *Proxy) Run(ctx context.Context) error {
	features, err := p.cfg.Kernel.Features(ctx)
	if err != nil {
		return err
	}
	for _, missing := range features.Missing() {
		p.cfg.Log.Warn("kernel lacks features", "why", missing)
	}
	p.features = features
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.services.Run(ctx) })
	g.Go(func() error { return p.slices.Run(ctx) })
	g.Go(func() error { return p.node.Run(ctx) })
	g.Go(func() error { return p.lease.run(ctx, p.times.Renew) })
	g.Go(func() error { return p.loop(ctx) })
	return g.Wait()
}

func (p *Proxy) currentNode() (*corev1.Node, bool) {
	n, ok := p.node.Get("", p.cfg.Node)
	return n, ok
}

// place holds the fields of this node that rules depend on.
type place struct {
	zone      string
	podCIDR   netip.Prefix
	addresses string
}

func placeOf(n *corev1.Node, family services.Family) place {
	if n == nil {
		return place{}
	}
	out := place{zone: n.Labels[corev1.LabelTopologyZone], addresses: fmt.Sprint(n.Status.Addresses)}
	for _, text := range append([]string{n.Spec.PodCIDR}, n.Spec.PodCIDRs...) {
		if cidr, err := netip.ParsePrefix(text); err == nil && services.FamilyOf(cidr.Addr()) == family {
			out.podCIDR = cidr
			break
		}
	}
	return out
}

func revision(s *discoveryv1.EndpointSlice) uint64 {
	n, err := strconv.ParseUint(s.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (p *Proxy) waitSynced(ctx context.Context) error {
	for _, wait := range []func(context.Context) error{p.services.WaitSynced, p.slices.WaitSynced, p.node.WaitSynced} {
		if err := wait(ctx); err != nil {
			return fmt.Errorf("wait for the first list: %w", err)
		}
	}
	return nil
}
