package announce

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

// Config is what an announcer works with. The functions and interfaces reach
// outside and are replaced in tests.
type Config struct {
	Node    string // this node's name
	Client  *client.Client
	Events  *events.Recorder // nil: none are recorded
	Log     *slog.Logger
	Network Network
	// Service is what a Service is at present, nil if it is none, with its
	// EndpointSlices. Whoever owns these informers calls Wake.
	Service func(namespace, name string) (*corev1.Service, []*discoveryv1.EndpointSlice)
	// Ready says whether this node's rules are such that packets find their way.
	Ready func() bool
	// Ours takes all addresses of load balancers of this cluster, whoever
	// announces them.
	Ours func([]netip.Addr)
	// Leaving says, when the announcer ends, whether the machine goes with it.
	Leaving func() bool
	// Duration is how long an address is held by one renewal. Default
	// addresslease.Duration.
	Duration time.Duration
}

// Network is this machine's place on the local network.
type Network interface {
	// Reach says how an address can be announced here.
	Reach(netip.Addr) (Reach, error)
	// Hold puts an address on the interface, or leaves it there, for this long;
	// then the kernel removes it by itself.
	Hold(netip.Addr, time.Duration) error
	// Drop removes an address; one that is not there is fine.
	Drop(netip.Addr) error
	// Held are the addresses that are there by Hold, in this life or an earlier
	// one.
	Held() ([]netip.Addr, error)
	// Tell has the neighbours know that the address is here.
	Tell(netip.Addr) error
}

// Reach is how an address can be announced.
type Reach int

// The ways.
const (
	Nowhere  Reach = iota // there is no interface for it
	Anywhere              // by the interface of the default route
	OnLink                // by an interface whose network has it
)

// The bounds of Duration: less than the one would not outlast a lost packet,
// more than the other no operator would wait for.
const (
	Shortest = 4 * time.Second
	Longest  = 2 * time.Minute
)

// Announcer looks after the addresses of load balancers on one node.
type Announcer struct {
	cfg    Config
	api    client.Resource[*coordinationv1.Lease]
	leases *informer.Informer[*coordinationv1.Lease]
	nodes  *informer.Informer[*corev1.Node]

	mu     sync.Mutex
	claims map[string]*claim // by the Lease's name
	start  chan *claim       // those that have no goroutine yet
}

// New makes an announcer; Run starts it.
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

// Wake has the addresses of a Service looked at again, because it or one of its
// endpoints has changed.
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

// Run works until ctx ends.
func (a *Announcer) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	a.leases.OnChange(func(old, new *coordinationv1.Lease) { a.leaseChanged(ctx, old, new) })
	g.Go(func() error { return a.leases.Run(ctx) })
	g.Go(func() error { return a.nodes.Run(ctx) })
	g.Go(func() error { a.dropForgotten(ctx); return nil })
	g.Go(func() error {
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

// leaseChanged keeps a claim for each Lease, and its goroutine.
func (a *Announcer) leaseChanged(ctx context.Context, old, new *coordinationv1.Lease) {
	lease := new
	if lease == nil {
		lease = old
	}
	what, err := addresslease.Parse(lease)
	if err != nil {
		a.cfg.Log.Warn("a Lease of an address makes no sense; delete it", "error", err)
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
		a.tellOurs()
	}
	c.poke()
	if fresh {
		select {
		case a.start <- c:
		case <-ctx.Done():
		}
	}
}

// dropForgotten takes away what an earlier life of this process left for a
// Service that is gone.
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
		a.cfg.Log.Warn("addresses of an earlier life may stay for a few seconds", "error", err)
	}
	a.tellOurs()
}

// tellOurs says which addresses there are, so that the rules know before one of
// them comes here.
func (a *Announcer) tellOurs() {
	var all []netip.Addr
	for _, l := range a.leases.List() {
		if c, err := addresslease.Parse(l); err == nil {
			all = append(all, c.Address)
		}
	}
	a.cfg.Ours(all)
}

// forget ends a claim whose Lease is gone, unless there is one again.
func (a *Announcer) forget(c *claim) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, again := a.leases.Get(addresslease.Namespace, c.name); again {
		return false
	}
	delete(a.claims, c.name)
	return true
}
