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
	Name        string       // of the CNI network, and of the bridge that earlier versions made. Default podium0
	MTU         int          // of pods; 0: what fits the way to the other nodes
	Tunnel      bool         // reach other nodes' pods by VXLAN; else by routes, which need one link
	Routed      bool         // leave the way to other nodes' pods to who provides the machines
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
	// SetTunnel makes the tunnel's device as given, unless it is; RemoveTunnel
	// removes it with all it knows, if it is there.
	SetTunnel(Tunnel) (changed bool, err error)
	RemoveTunnel() error
	// Entries are what the tunnel's device was told, also in earlier lives.
	Entries() ([]Entry, error)
	AddEntry(Entry) error // replaces one for the same address
	RemoveEntry(Entry) error
	// RetireBridge removes the bridge that earlier versions made for pods. While
	// pods are on it, the node answers there for the pods that are not.
	RetireBridge(name string) error
	// OnLink says whether an address is reached without a router, by which
	// interface, and that interface's MTU.
	OnLink(netip.Addr) (Link, error)
	// Watch tells, until ctx ends, when what is above may have changed by
	// somebody else's hand.
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

	// PodLinks matches, in rules, the names that the ptp plugin gives to the
	// node's ends of pods' links.
	PodLinks = "veth+"

	resync   = 30 * time.Second
	patience = 10 * time.Second // how long a new node may be without a range or an address
)

// Network is the pod network of one node.
type Network struct {
	cfg   Config
	nodes *informer.Informer[*corev1.Node]
	wake  chan struct{}

	reported map[string]string // what was last told about a node, by its name
	ready    netip.Prefix      // the pod CIDR in force
}

// New builds a pod network; Run starts it.
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
	changed, err := n.cfg.Host.Watch(ctx)
	if err != nil {
		n.cfg.Log.Warn("what others do to the network is noticed late", "error", err, "every", n.cfg.Resync)
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
		case <-changed:
		}
	}
}

// seenOf is what the pod network depends on of a node.
func seenOf(n *corev1.Node) string {
	return fmt.Sprint(n.Spec.PodCIDR, n.Spec.PodCIDRs, n.Status.Addresses)
}

// reconcile brings the machine to what the nodes say now. Everything that can
// be done is done; the errors come together.
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

// local makes this node ready for pods: forwarding and rules first, the CNI
// configuration last, because its presence says that pods may come.
func (n *Network) local(cidr netip.Prefix, address netip.Addr) error {
	forwarding := "net/ipv4/ip_forward"
	if cidr.Addr().Is6() {
		forwarding = "net/ipv6/conf/all/forwarding"
		// The pods' links and the tunnel are to have IPv6 addresses: on some machines
		// (Docker's containers) interfaces that come later may not.
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

// mtu is that of pods: what the link to the other nodes carries, inside the
// tunnel if there is one; 0 if nobody knows.
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

// direct are the peers on a link of this node's; the others are trouble.
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

// isNew says that a node's range and address may still be on the way.
func isNew(n *corev1.Node) bool { return time.Since(n.CreationTimestamp.Time) < patience }

// report tells each trouble once, until it changes or goes.
func (n *Network) report(troubles []trouble) {
	now := map[string]string{}
	for _, t := range troubles {
		if (t.reason == reasonNoCIDR || t.reason == reasonNoAddress) && isNew(t.node) {
			n.cfg.Log.Debug("waiting for a new node", "node", t.node.Name, "reason", t.reason)
			continue // what is missing is on the way; there will be another look
		}
		now[t.node.Name] = t.message
		if n.reported[t.node.Name] == t.message {
			continue
		}
		n.cfg.Log.Error("a node's pods cannot be served as they should be", "node", t.node.Name, "reason", t.reason, "why", t.message)
		n.cfg.Events.Eventf(t.node, corev1.EventTypeWarning, t.reason, "%s", t.message)
	}
	n.reported = now
}
