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
	"podium/pkg/netrules"
)

// Config holds the dependencies and settings of a node's pod network.
type Config struct {
	Node   string
	Client *client.Client
	Events *events.Recorder
	Log    *slog.Logger
	Host   Host
	// SetRules sets the rules for the next sync of the node's rules.
	SetRules func(netrules.Fragment)

	ConfDir     string       // of CNI configurations. Default /etc/cni/net.d
	DataDir     string       // of the allocations of host-local. Default /var/lib/cni/networks
	Name        string       // of the CNI network, and of the bridge that earlier versions made. Default podium0
	MTU         int          // of pods; 0: the MTU of the link to the other nodes, less the tunnel's overhead
	Tunnel      bool         // reach other nodes' pods by VXLAN; else by routes, which need one link
	Routed      bool         // the infrastructure routes to other nodes' pods
	ClusterCIDR netip.Prefix // contains the addresses of all pods; zero: only this node's pod CIDR is known
	Resync      time.Duration
}

// Host is the network configuration of this machine. Machine implements it.
type Host interface {
	// WriteFile replaces a file atomically. changed reports whether the content
	// differed.
	WriteFile(path string, data []byte) (changed bool, err error)
	// Sysctl sets a sysctl, given as a path below /proc/sys. It returns
	// fs.ErrNotExist if the kernel does not have it.
	Sysctl(path, value string) error
	// Routes returns the routes that AddRoute has added, also by an earlier process.
	Routes() ([]Route, error)
	AddRoute(Route) error // replaces a route to the same pods
	RemoveRoute(Route) error
	// SetTunnel creates or changes the tunnel's device; RemoveTunnel removes the
	// device, if it exists, with its entries.
	SetTunnel(Tunnel) (changed bool, err error)
	RemoveTunnel() error
	// Entries returns the entries of the tunnel's device, also of an earlier process.
	Entries() ([]Entry, error)
	AddEntry(Entry) error // replaces one for the same address
	RemoveEntry(Entry) error
	// RetireBridge removes the bridge that earlier versions created. While pods
	// are attached to it, the node answers ARP on it for all other pods instead.
	RetireBridge(name string) error
	// OnLink returns whether an address is reached without a router, through which
	// interface, and that interface's MTU.
	OnLink(netip.Addr) (Link, error)
	// Watch returns a channel that receives when another program may have changed
	// the network configuration, until ctx ends.
	Watch(ctx context.Context) (<-chan struct{}, error)
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
	DefaultName    = "podium0"

	// PodLinks matches, in rules, the names that the ptp plugin gives to the node's
	// ends of the pods' links.
	PodLinks = "veth+"

	resync       = 30 * time.Second
	newNodeGrace = 10 * time.Second // how long a new node may lack a pod CIDR or an address before that is reported
)

// Network is the pod network of one node.
type Network struct {
	cfg   Config
	nodes *informer.Informer[*corev1.Node]
	wake  chan struct{}

	reported map[string]string // the last reported problem by node name
	ready    netip.Prefix      // the configured pod CIDR
}

// New returns a Network; Run starts it.
func New(cfg Config) *Network {
	if cfg.ConfDir == "" {
		cfg.ConfDir = DefaultConfDir
	}
	if cfg.DataDir == "" {
		cfg.DataDir = DefaultDataDir
	}
	if cfg.Name == "" {
		cfg.Name = DefaultName
	}
	if cfg.Resync == 0 {
		cfg.Resync = resync
	}
	n := &Network{
		cfg:      cfg,
		nodes:    informer.New(client.For[*corev1.Node](cfg.Client), informer.Options{Log: cfg.Log}),
		wake:     make(chan struct{}, 1),
		reported: map[string]string{},
	}
	n.nodes.OnChange(func(old, new *corev1.Node) {
		if old == nil || new == nil || seenOf(old) != seenOf(new) {
			select {
			case n.wake <- struct{}{}:
			default:
			}
		}
	})
	return n
}

// Run configures the network until ctx ends. It leaves the configuration in place for
// the pods.
func (n *Network) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.nodes.Run(ctx) })
	g.Go(func() error { return n.loop(ctx) })
	return g.Wait()
}

// loop reconciles when the nodes or the machine's network change, and periodically.
func (n *Network) loop(ctx context.Context) error {
	if n.nodes.WaitSynced(ctx) != nil {
		return nil // ctx has ended
	}
	changed, err := n.cfg.Host.Watch(ctx)
	if err != nil {
		n.cfg.Log.Warn("watch network changes failed; changes by other programs are detected late", "error", err, "every", n.cfg.Resync)
	}
	t := time.NewTicker(n.cfg.Resync)
	defer t.Stop()
	for {
		if err := n.reconcile(); err != nil {
			n.cfg.Log.Error("sync pod network failed, retrying", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		case <-n.wake:
		case <-changed:
		}
	}
}

// seenOf returns the fields of a node that the pod network depends on.
func seenOf(n *corev1.Node) string {
	return fmt.Sprint(n.Spec.PodCIDR, n.Spec.PodCIDRs, n.Status.Addresses)
}

// reconcile configures the machine according to the Nodes. It continues after an
// error and returns all errors joined.
func (n *Network) reconcile() error {
	self, ok := n.nodes.Get("", n.cfg.Node)
	if !ok {
		n.cfg.Log.Info("waiting for this node to be registered", "node", n.cfg.Node)
		return nil
	}
	own, bad := podCIDR(self)
	if !own.IsValid() {
		n.report([]trouble{*bad})
		return nil
	}
	peers, troubles := peersOf(n.nodes.List(), n.cfg.Node, own, n.cfg.ClusterCIDR)
	if bad != nil {
		troubles = append(troubles, *bad)
	}
	address := internalIP(self, own.Addr())
	if !address.IsValid() && isNew(self) {
		n.cfg.Log.Info("waiting for this node's address", "node", n.cfg.Node)
		return nil
	}
	errs := []error{n.local(own, address)}
	switch {
	case n.cfg.Tunnel:
		errs = append(errs, n.tunnel(own, address, peers))
	case n.cfg.Routed:
		peers = nil
		errs = append(errs, n.cfg.Host.RemoveTunnel())
	default:
		direct, far, err := n.direct(peers)
		peers, troubles = direct, append(troubles, far...)
		errs = append(errs, err, n.cfg.Host.RemoveTunnel())
	}
	n.report(troubles)
	return errors.Join(append(errs, n.routes(routesTo(own, peers, n.cfg.Tunnel)), n.cfg.Host.RetireBridge(n.cfg.Name))...)
}

// local prepares this node for pods. It writes the CNI configuration last, because
// its presence tells the runtime that pods can start.
func (n *Network) local(cidr netip.Prefix, address netip.Addr) error {
	forwarding := "net/ipv4/ip_forward"
	if cidr.Addr().Is6() {
		forwarding = "net/ipv6/conf/all/forwarding"
		// The pods' links and the tunnel need IPv6 addresses; on some machines
		// (Docker containers) IPv6 is disabled on new interfaces.
		if err := n.cfg.Host.Sysctl("net/ipv6/conf/default/disable_ipv6", "0"); err != nil {
			return fmt.Errorf("pods cannot have IPv6 addresses: %w", err)
		}
	}
	if err := n.cfg.Host.Sysctl(forwarding, "1"); err != nil {
		return fmt.Errorf("pods cannot be reached: %w", err)
	}
	if n.ready != cidr {
		n.cfg.SetRules(n.cfg.podRules(cidr))
	}
	mtu := n.mtu(address)
	conf, err := n.cfg.conflist(cidr, mtu)
	if err != nil {
		return err
	}
	changed, err := n.cfg.Host.WriteFile(n.cfg.confPath(), conf)
	if err != nil {
		return fmt.Errorf("write the CNI configuration: %w", err)
	}
	if changed {
		n.cfg.Log.Info("pod network configured", "podCIDR", cidr, "mtu", mtu, "file", n.cfg.confPath())
	}
	n.ready = cidr
	return nil
}

// mtu returns the MTU of pods: that of the link to the other nodes, less the
// tunnel's overhead; 0 if it is unknown.
func (n *Network) mtu(address netip.Addr) int {
	if n.cfg.MTU != 0 || !address.IsValid() {
		return n.cfg.MTU
	}
	link, err := n.cfg.Host.OnLink(address)
	if err != nil {
		return 0
	}
	if n.cfg.Tunnel {
		return link.MTU - overhead(address)
	}
	return link.MTU
}

// direct returns the peers on a link of this node, and a trouble for each other one.
func (n *Network) direct(peers []peer) (near []peer, far []trouble, err error) {
	var errs []error
	for _, p := range peers {
		link, err := n.cfg.Host.OnLink(p.address)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("the way to node %s at %s: %w", p.node.Name, p.address, err))
		case !link.Direct:
			far = append(far, trouble{p.node, reasonUnreachable, fmt.Sprintf(
				"node %s does not share a link with %s (%s): pods of the two cannot reach each other. Put the nodes on one link, or run kube-proxy with --pod-network=vxlan on all of them",
				n.cfg.Node, p.node.Name, p.address)})
		default:
			near = append(near, p)
		}
	}
	return near, far, errors.Join(errs...)
}

// routes changes the machine's routes to want. It returns all errors, joined.
func (n *Network) routes(want []Route) error {
	have, err := n.cfg.Host.Routes()
	if err != nil {
		return err
	}
	var errs []error
	add, remove := diff(have, want)
	for _, r := range remove {
		n.cfg.Log.Info("route removed", "pods", r.Pods, "via", r.via())
		errs = append(errs, n.cfg.Host.RemoveRoute(r))
	}
	for _, r := range add {
		n.cfg.Log.Info("route added", "pods", r.Pods, "via", r.via())
		errs = append(errs, n.cfg.Host.AddRoute(r))
	}
	return errors.Join(errs...)
}

// isNew reports whether a node is so new that its pod CIDR and address may be missing.
func isNew(n *corev1.Node) bool { return time.Since(n.CreationTimestamp.Time) < newNodeGrace }

// report logs each trouble and records an event for it once, until it changes.
func (n *Network) report(troubles []trouble) {
	now := map[string]string{}
	for _, t := range troubles {
		if (t.reason == reasonNoCIDR || t.reason == reasonNoAddress) && isNew(t.node) {
			n.cfg.Log.Debug("waiting for a new node", "node", t.node.Name, "reason", t.reason)
			continue // wait for the pod CIDR or the address
		}
		now[t.node.Name] = t.message
		if n.reported[t.node.Name] == t.message {
			continue
		}
		n.cfg.Log.Error("pod network does not reach all pods of the node", "node", t.node.Name, "reason", t.reason, "why", t.message)
		n.cfg.Events.Eventf(t.node, corev1.EventTypeWarning, t.reason, "%s", t.message)
	}
	n.reported = now
}
