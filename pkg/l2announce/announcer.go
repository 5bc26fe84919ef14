package l2announce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/client/addresslease"
	"podium/pkg/client/events"
	"podium/pkg/client/informer"
)

// Config holds the dependencies and settings of an Announcer. Tests replace the
// functions and interfaces.
type Config struct {
	Node    string // this node's name
	Client  *client.Client
	Events  *events.Recorder // nil: no events are recorded
	Log     *slog.Logger
	Network Network
	// Service returns a Service, nil if it does not exist, and its EndpointSlices.
	// The owner of these informers must call Wake when they change.
	Service func(namespace, name string) (*corev1.Service, []*discoveryv1.EndpointSlice)
	// Ready reports whether this node's rules are in place, so that it can serve traffic.
	Ready func() bool
	// Ours is called with all load-balancer addresses of this cluster, including
	// those that other nodes announce.
	Ours func([]netip.Addr)
	// Leaving reports, when the announcer ends, whether the machine is shutting down.
	Leaving func() bool
	// Duration is how long one renewal holds an address. Default
	// addresslease.Duration.
	Duration time.Duration
}

// Network is the network configuration of this machine. Kernel implements it.
type Network interface {
	// Reach returns how the node can announce an address.
	Reach(netip.Addr) (Reach, error)
	// Hold adds an address to the interface, or renews it, with the given lifetime.
	// The kernel removes the address when the lifetime ends.
	Hold(netip.Addr, time.Duration) error
	// Drop removes an address. It returns nil if the address is not there.
	Drop(netip.Addr) error
	// Held returns the addresses that Hold has added, in this process or an earlier
	// one.
	Held() ([]netip.Addr, error)
	// Announce announces the address to the neighbours.
	Announce(netip.Addr) error
}

// Reach is how a node can announce an address.
type Reach int

// The values of Reach.
const (
	Nowhere  Reach = iota // there is no interface for the address
	Anywhere              // through the interface of the default route
	OnLink                // through an interface whose network contains the address
)

// The limits of Duration: a shorter one would not survive a lost packet, and with a
// longer one fail-over would take too long.
const (
	Shortest = 4 * time.Second
	Longest  = 2 * time.Minute
)

// Announcer announces load-balancer addresses on one node.
type Announcer struct {
	cfg    Config
	api    client.Resource[*coordinationv1.Lease]
	leases *informer.Informer[*coordinationv1.Lease]
	nodes  *informer.Informer[*corev1.Node]

	mu     sync.Mutex
	claims map[string]*claim // by the Lease's name
	start  chan *claim       // claims that have no goroutine yet
}

// New returns an Announcer. It returns an error if cfg.Duration is out of range.
func New(cfg Config) (*Announcer, error) {
	if cfg.Duration == 0 {
		cfg.Duration = addresslease.Duration
	}
	if cfg.Duration < Shortest || cfg.Duration > Longest {
		return nil, fmt.Errorf("addresses cannot be held for %v at a time, only for %v to %v", cfg.Duration, Shortest, Longest)
	}
	a := &Announcer{
		cfg:    cfg,
		api:    client.For[*coordinationv1.Lease](cfg.Client).In(addresslease.Namespace),
		nodes:  informer.New(client.For[*corev1.Node](cfg.Client), informer.Options{Log: cfg.Log}),
		claims: map[string]*claim{},
		start:  make(chan *claim),
	}
	a.leases = informer.New(a.api, informer.Options{Log: cfg.Log, LabelSelector: addresslease.Selector})
	a.nodes.OnChange(func(old, new *corev1.Node) {
		if old == nil || new == nil || eligible(old) != eligible(new) {
			a.wake(func(*claim) bool { return true })
		}
	})
	return a, nil
}

// Wake re-evaluates the addresses of a Service, because the Service or one of its
// EndpointSlices has changed. It does not block.
func (a *Announcer) Wake(namespace, name string) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	a.wake(func(c *claim) bool { return c.service == key })
}

func (a *Announcer) wake(which func(*claim) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.claims {
		if which(c) {
			c.poke()
		}
	}
}

// Run announces addresses until ctx ends or an informer fails.
func (a *Announcer) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	a.leases.OnChange(func(old, new *coordinationv1.Lease) { a.leaseChanged(ctx, old, new) })
	g.Go(func() error { return a.leases.Run(ctx) })
	g.Go(func() error { return a.nodes.Run(ctx) })
	g.Go(func() error { a.dropForgotten(ctx); return nil })
	g.Go(func() error {
		// With some of the nodes only, a claim would see others as the place for an address
		// that this node holds, and release it.
		if a.nodes.WaitSynced(ctx) != nil {
			return nil
		}
		for {
			select {
			case <-ctx.Done():
				return nil
			case c := <-a.start:
				g.Go(func() error { c.run(ctx); return nil })
			}
		}
	})
	return g.Wait()
}

// leaseChanged maintains the claims: one, with a goroutine, for each Lease.
func (a *Announcer) leaseChanged(ctx context.Context, old, new *coordinationv1.Lease) {
	lease := new
	if lease == nil {
		lease = old
	}
	what, err := addresslease.Parse(lease)
	if err != nil {
		a.cfg.Log.Warn("invalid Lease of a load-balancer address; delete it", "error", err)
		return
	}
	a.mu.Lock()
	c := a.claims[lease.Name]
	fresh := c == nil
	if fresh {
		c = &claim{Announcer: a, address: what.Address, name: lease.Name, wake: make(chan struct{}, 1),
			log: a.cfg.Log.With("address", what.Address.String(), "service", what.Service.String())}
		a.claims[lease.Name] = c
	}
	c.service = what.Service
	a.mu.Unlock()
	if old == nil || new == nil {
		a.reportAddresses()
	}
	c.poke()
	if fresh {
		select {
		case a.start <- c:
		case <-ctx.Done():
		}
	}
}

// dropForgotten removes the addresses of an earlier process whose Lease no longer
// exists.
func (a *Announcer) dropForgotten(ctx context.Context) {
	if a.leases.WaitSynced(ctx) != nil {
		return
	}
	held, err := a.cfg.Network.Held()
	for _, address := range held {
		if _, wanted := a.leases.Get(addresslease.Namespace, addresslease.Name(address)); !wanted {
			err = errors.Join(err, a.cfg.Network.Drop(address))
		}
	}
	if err != nil {
		a.cfg.Log.Warn("remove addresses of the previous run failed; they may stay for a few seconds", "error", err)
	}
	a.reportAddresses()
}

// reportAddresses reports all addresses to Config.Ours, so that the rules exist before this
// node announces one of them.
func (a *Announcer) reportAddresses() {
	var all []netip.Addr
	for _, l := range a.leases.List() {
		if c, err := addresslease.Parse(l); err == nil {
			all = append(all, c.Address)
		}
	}
	a.cfg.Ours(all)
}

// forget removes a claim whose Lease is gone. It returns false if the Lease exists
// again.
func (a *Announcer) forget(c *claim) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, again := a.leases.Get(addresslease.Namespace, c.name); again {
		return false
	}
	delete(a.claims, c.name)
	return true
}
