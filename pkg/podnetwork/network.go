package podnetwork

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
	"podium/pkg/client/events"
	"podium/pkg/client/informer"
	"podium/pkg/proxy/rules"
)

// Config is what a node's pod network works with.
type Config struct {
	Node   string
	Client *client.Client
	Events *events.Recorder
	Log    *slog.Logger
	Host   Host
	// SetRules takes the rules into the next sync of the node's rules.
	SetRules func(rules.Fragment)

	ConfDir     string       // of CNI configurations. Default /etc/cni/net.d
	DataDir     string       // of host-local, which notes there what addresses are taken. Default /var/lib/cni/networks
	Bridge      string       // Default podium0
	MTU         int          // of pods; 0: that of the link to the other nodes
	ClusterCIDR netip.Prefix // holds every pod; zero: only this node's pods are known
	Resync      time.Duration
}

// Host is the part of this machine that the pod network changes.
type Host interface {
	// WriteFile replaces a file at once, never leaving half of one. It says
	// whether the content differed.
	WriteFile(path string, data []byte) (changed bool, err error)
	// Sysctl sets a kernel parameter, given as a path below /proc/sys. One that
	// the kernel does not have gives fs.ErrNotExist.
	Sysctl(path, value string) error
	// Routes are the routes that AddRoute made, also in earlier lives.
	Routes() ([]Route, error)
	AddRoute(Route) error // replaces a route to the same pods
	RemoveRoute(Route) error
	// OnLink says whether an address is reached without a router, by which
	// interface, and that interface's MTU.
	OnLink(netip.Addr) (Link, error)
}

// Link is how an address is reached.
type Link struct {
	Direct bool
	Name   string
	MTU    int
}

// Defaults.
const (
	DefaultConfDir = "/etc/cni/net.d"
	DefaultDataDir = "/var/lib/cni/networks"
	DefaultBridge  = "podium0"

	resync = 30 * time.Second
)

// Network is the pod network of one node.
type Network struct {
	cfg   Config
	nodes *informer.Informer[*corev1.Node]
	wake  chan struct{}

	reported map[netip.Addr]bool // nodes that were said to be unreachable
	ready    netip.Prefix        // the pod CIDR in force
}

// New builds a pod network; Run starts it.
func New(cfg Config) *Network {
	if cfg.ConfDir == "" {
		cfg.ConfDir = DefaultConfDir
	}
	if cfg.DataDir == "" {
		cfg.DataDir = DefaultDataDir
	}
	if cfg.Bridge == "" {
		cfg.Bridge = DefaultBridge
	}
	if cfg.Resync == 0 {
		cfg.Resync = resync
	}
	n := &Network{
		cfg:      cfg,
		nodes:    informer.New(client.For[*corev1.Node](cfg.Client), informer.Options{Log: cfg.Log}),
		wake:     make(chan struct{}, 1),
		reported: map[netip.Addr]bool{},
	}
	n.nodes.OnChange(func(old, new *corev1.Node) {
		if old == nil || new == nil || podCIDR(old) != podCIDR(new) || internalIP(old) != internalIP(new) {
			select {
			case n.wake <- struct{}{}:
			default:
			}
		}
	})
	return n
}

// Run works until ctx ends. It leaves everything in place: pods outlive it.
func (n *Network) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.nodes.Run(ctx) })
	g.Go(func() error { return n.loop(ctx) })
	return g.Wait()
}

func (n *Network) loop(ctx context.Context) error {
	if n.nodes.WaitSynced(ctx) != nil {
		return nil // ctx has ended
	}
	t := time.NewTicker(n.cfg.Resync)
	defer t.Stop()
	for {
		if err := n.reconcile(); err != nil {
			n.cfg.Log.Error("the pod network is not as it should be; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		case <-n.wake:
		}
	}
}

// reconcile brings the machine to what the nodes say now. Everything that can
// be done is done; the errors come together.
func (n *Network) reconcile() error {
	self, ok := n.nodes.Get("", n.cfg.Node)
	if !ok {
		n.cfg.Log.Info("waiting for this node to be registered", "node", n.cfg.Node)
		return nil
	}
	cidr := podCIDR(self)
	if !cidr.IsValid() {
		n.cfg.Log.Info("waiting for this node's pod CIDR", "node", n.cfg.Node)
		return nil
	}
	return errors.Join(n.local(cidr, self), n.routes())
}

// local makes this node ready for pods: forwarding and rules first, the CNI
// configuration last, because its presence says that pods may come.
func (n *Network) local(cidr netip.Prefix, self *corev1.Node) error {
	if err := n.cfg.Host.Sysctl("net/ipv4/ip_forward", "1"); err != nil {
		return fmt.Errorf("pods cannot be reached: %w", err)
	}
	if n.ready != cidr {
		filtered := n.cfg.Host.Sysctl("net/bridge/bridge-nf-call-iptables", "1") == nil
		if !filtered {
			n.cfg.Log.Warn("the kernel does not show bridged packets to iptables (no br_netfilter): " +
				"between pods of this node a Service hides the client's address")
		}
		n.cfg.SetRules(n.cfg.podRules(cidr, filtered))
	}
	mtu := n.cfg.MTU
	if ip := internalIP(self); mtu == 0 && ip.IsValid() {
		if link, err := n.cfg.Host.OnLink(ip); err == nil {
			mtu = link.MTU
		}
	}
	conf, err := n.cfg.conflist(cidr, mtu)
	if err != nil {
		return err
	}
	changed, err := n.cfg.Host.WriteFile(n.cfg.confPath(), conf)
	if err != nil {
		return fmt.Errorf("write the CNI configuration: %w", err)
	}
	if changed {
		n.cfg.Log.Info("pod network configured", "podCIDR", cidr, "bridge", n.cfg.Bridge, "mtu", mtu, "file", n.cfg.confPath())
	}
	n.ready = cidr
	return nil
}

func (n *Network) routes() error {
	nodes := n.nodes.List()
	have, err := n.cfg.Host.Routes()
	if err != nil {
		return err
	}
	var want []Route
	var errs []error
	for _, r := range wanted(nodes, n.cfg.Node) {
		link, err := n.cfg.Host.OnLink(r.Via)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("the way to node address %s: %w", r.Via, err))
		case !link.Direct:
			n.unreachable(r, nodes)
		default:
			delete(n.reported, r.Via)
			want = append(want, r)
		}
	}
	add, remove := diff(have, want)
	for _, r := range remove {
		n.cfg.Log.Info("route removed", "pods", r.Pods, "via", r.Via)
		errs = append(errs, n.cfg.Host.RemoveRoute(r))
	}
	for _, r := range add {
		n.cfg.Log.Info("route added", "pods", r.Pods, "via", r.Via)
		errs = append(errs, n.cfg.Host.AddRoute(r))
	}
	return errors.Join(errs...)
}

// unreachable says once that a node is beyond a router.
func (n *Network) unreachable(r Route, nodes []*corev1.Node) {
	if n.reported[r.Via] {
		return
	}
	n.reported[r.Via] = true
	for _, node := range nodes {
		if internalIP(node) == r.Via {
			n.cfg.Log.Error("a node is not on the same link: its pods cannot be reached from here, since this pod network knows no tunnels",
				"node", node.Name, "address", r.Via)
			n.cfg.Events.Eventf(node, corev1.EventTypeWarning, "PodNetworkUnreachable",
				"Node %s does not share a link with %s (%s): pods of the two cannot reach each other. Put the nodes on one link, or run with --pod-network=none and a network add-on",
				n.cfg.Node, node.Name, r.Via)
		}
	}
}
