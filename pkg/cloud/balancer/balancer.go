package balancer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/client/addresslease"
	"podium/pkg/cloud/pool"
)

// AnnotationPool is the annotation of a Service with the name of the pool for its address.
// Without it, all pools are tried in order.
const AnnotationPool = "podium.dev/address-pool"

// Config configures a Balancer.
type Config struct {
	Client   *client.Client
	Services interface{ List() []*corev1.Service } // all Services of the cluster
	// Pools returns the address pools. It is called for each allocation.
	Pools func(context.Context) ([]pool.Pool, error)
	Log   *slog.Logger
}

// Balancer allocates addresses for Services. It implements cloud.LoadBalancers.
type Balancer struct {
	cfg      Config
	leases   client.Resource[*coordinationv1.Lease]
	services client.Resource[*corev1.Service]
}

// New returns a Balancer. Without a client it can only be used to check a configuration.
func New(cfg Config) *Balancer {
	b := &Balancer{cfg: cfg}
	if cfg.Client != nil {
		b.leases = client.For[*coordinationv1.Lease](cfg.Client).In(addresslease.Namespace)
		b.services = client.For[*corev1.Service](cfg.Client)
	}
	return b
}

// Ensure allocates one address for each IP family of the Service and releases all others.
// It ignores the nodes: those that can announce the address elect one among themselves.
func (b *Balancer) Ensure(ctx context.Context, s *corev1.Service, _ []*corev1.Node) (corev1.LoadBalancerStatus, error) {
	wishes, err := b.wishes(ctx, s)
	if err != nil {
		return corev1.LoadBalancerStatus{}, err
	}
	mine, err := b.leasesOf(ctx, keyOf(s))
	if err != nil {
		return corev1.LoadBalancerStatus{}, err
	}
	var status corev1.LoadBalancerStatus
	for _, w := range wishes {
		a, err := b.grant(ctx, s, w, mine)
		if err != nil {
			return corev1.LoadBalancerStatus{}, err
		}
		delete(mine, a)
		status.Ingress = append(status.Ingress, corev1.LoadBalancerIngress{IP: a.String(), IPMode: new(corev1.LoadBalancerIPModeVIP)})
	}
	return status, b.closeAll(ctx, mine)
}

// Delete withdraws the Service's addresses and releases them. It blocks until no node
// announces them.
func (b *Balancer) Delete(ctx context.Context, s *corev1.Service) error {
	mine, err := b.leasesOf(ctx, keyOf(s))
	if err != nil {
		return err
	}
	return b.closeAll(ctx, mine)
}

func keyOf(s *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

// wish is the request for one address of a Service.
type wish struct {
	four  bool
	asked netip.Addr   // the address that the Service requests, if any
	has   []netip.Addr // the addresses in its status
	pools []pool.Pool
}

func (w wish) inPools(a netip.Addr) bool {
	return a.Is4() == w.four && slices.ContainsFunc(w.pools, func(p pool.Pool) bool { return p.Contains(a) })
}

func (w wish) family() string {
	if w.four {
		return "IPv4"
	}
	return "IPv6"
}

func (b *Balancer) wishes(ctx context.Context, s *corev1.Service) ([]wish, error) {
	pools, err := b.poolsFor(ctx, s)
	if err != nil {
		return nil, err
	}
	var asked netip.Addr
	if text := s.Spec.LoadBalancerIP; text != "" {
		if asked, err = netip.ParseAddr(text); err != nil {
			return nil, fmt.Errorf("spec.loadBalancerIP: %q is not an IP address", text)
		}
	}
	families := s.Spec.IPFamilies
	if len(families) == 0 {
		families = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	var out []wish
	for _, f := range families {
		w := wish{four: f == corev1.IPv4Protocol, has: addressesOf(s), pools: pools}
		if asked.IsValid() && asked.Is4() == w.four {
			w.asked, asked = asked, netip.Addr{}
		}
		out = append(out, w)
	}
	if asked.IsValid() {
		return nil, fmt.Errorf("spec.loadBalancerIP: %s is not of the Service's address families %v", asked, families)
	}
	return out, nil
}

func (b *Balancer) poolsFor(ctx context.Context, s *corev1.Service) ([]pool.Pool, error) {
	pools, err := b.cfg.Pools(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for the address pools: %w", err)
	}
	name, chosen := s.Annotations[AnnotationPool]
	if !chosen {
		return pools, nil
	}
	for _, p := range pools {
		if p.Name == name {
			return []pool.Pool{p}, nil
		}
	}
	return nil, fmt.Errorf("annotation %s: there is no address pool %q; there are: %s", AnnotationPool, name, names(pools))
}

func names(pools []pool.Pool) string {
	var out []string
	for _, p := range pools {
		out = append(out, p.Name)
	}
	return strings.Join(out, ", ")
}

// addressesOf returns the addresses in a Service's status.
func addressesOf(s *corev1.Service) []netip.Addr {
	var out []netip.Addr
	for _, in := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// leasesOf returns the Leases of a Service's addresses, including those that were never
// written to its status.
func (b *Balancer) leasesOf(ctx context.Context, key types.NamespacedName) (map[netip.Addr]*coordinationv1.Lease, error) {
	list, err := b.leases.List(ctx, metav1.ListOptions{LabelSelector: addresslease.Selector})
	if err != nil {
		return nil, fmt.Errorf("list the Leases of addresses: %w", err)
	}
	out := map[netip.Addr]*coordinationv1.Lease{}
	for _, l := range list.Items {
		c, err := addresslease.Parse(l)
		if err != nil {
			b.cfg.Log.Warn("invalid Lease of a load-balancer address; delete it", "error", err)
			continue
		}
		if c.Service == key {
			out[c.Address] = l
		}
	}
	return out, nil
}

// grant allocates one address for the Service: the current one if it is still valid.
func (b *Balancer) grant(ctx context.Context, s *corev1.Service, w wish, mine map[netip.Addr]*coordinationv1.Lease) (netip.Addr, error) {
	if w.asked.IsValid() {
		return w.asked, b.grantRequested(ctx, s, w, mine)
	}
	for _, a := range w.has {
		if !w.inPools(a) {
			continue
		}
		if err := b.claim(ctx, s, a, mine); !errors.As(err, new(*taken)) {
			return a, err
		}
	}
	for a, l := range mine {
		if c, err := addresslease.Parse(l); err == nil && !c.Closing && w.inPools(a) {
			return a, nil
		}
	}
	return b.grantAny(ctx, s, w)
}

func (b *Balancer) grantRequested(ctx context.Context, s *corev1.Service, w wish, mine map[netip.Addr]*coordinationv1.Lease) error {
	if !w.inPools(w.asked) {
		return fmt.Errorf("spec.loadBalancerIP: %s is in none of the address pools that the Service may use: %s", w.asked, names(w.pools))
	}
	if by := b.inUse(s)[w.asked]; by != "" {
		return fmt.Errorf("spec.loadBalancerIP: %w", &taken{w.asked, by})
	}
	err := b.claim(ctx, s, w.asked, mine)
	if errors.As(err, new(*taken)) {
		return fmt.Errorf("spec.loadBalancerIP: %w", err)
	}
	return err
}

// grantAny allocates the first address that no Service's status uses and that has no Lease.
func (b *Balancer) grantAny(ctx context.Context, s *corev1.Service, w wish) (netip.Addr, error) {
	used := b.inUse(s)
	for _, p := range w.pools {
		for {
			a, ok := p.Free(w.four, func(a netip.Addr) bool { return used[a] != "" })
			if !ok {
				break
			}
			err := b.claim(ctx, s, a, nil)
			if conflict := (*taken)(nil); errors.As(err, &conflict) {
				used[a] = conflict.by
				continue
			}
			return a, err
		}
	}
	return netip.Addr{}, fmt.Errorf("no free %s address is left in the address pools %s: give them more, or delete a Service of type LoadBalancer", w.family(), names(w.pools))
}

// inUse returns the addresses in the status of other Services, with the Services' names.
func (b *Balancer) inUse(s *corev1.Service) map[netip.Addr]string {
	used := map[netip.Addr]string{}
	for _, other := range b.cfg.Services.List() {
		if keyOf(other) == keyOf(s) {
			continue
		}
		for _, a := range addressesOf(other) {
			used[a] = keyOf(other).String()
		}
	}
	return used
}

// taken is the error for an address that belongs to another Service.
type taken struct {
	address netip.Addr
	by      string
}

func (t *taken) Error() string { return fmt.Sprintf("%s is in use by Service %s", t.address, t.by) }

// claim creates the Lease of an address for a Service. It does nothing if the Service has
// the Lease already. It closes a Lease that is being withdrawn, or whose Service no longer
// needs it, and returns *taken if another Service needs the address.
func (b *Balancer) claim(ctx context.Context, s *corev1.Service, a netip.Addr, mine map[netip.Addr]*coordinationv1.Lease) error {
	if l := mine[a]; l != nil {
		if c, err := addresslease.Parse(l); err == nil && !c.Closing {
			return nil
		}
	}
	for {
		_, err := b.leases.Create(ctx, addresslease.New(a, keyOf(s)))
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		l, err := b.leases.Get(ctx, addresslease.Name(a))
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return err
		}
		c, err := addresslease.Parse(l)
		if err != nil {
			return &taken{a, "an unknown one (" + err.Error() + ")"}
		}
		if c.Service == keyOf(s) && !c.Closing {
			return nil
		}
		if c.Service != keyOf(s) {
			wanted, err := b.wanted(ctx, c.Service)
			switch {
			case err != nil:
				return err
			case wanted:
				return &taken{a, c.Service.String()}
			}
			b.cfg.Log.Info("address of a deleted Service released", "address", a, "service", c.Service)
		}
		if err := b.close(ctx, l); err != nil {
			return err
		}
	}
}

// wanted reports whether a Service still needs addresses. It asks the API, because the
// informer may be older than the Lease of another Service.
func (b *Balancer) wanted(ctx context.Context, key types.NamespacedName) (bool, error) {
	s, err := b.services.In(key.Namespace).Get(ctx, key.Name)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Service %s, which has the address: %w", key, err)
	}
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer || len(s.Finalizers) > 0, nil
}
