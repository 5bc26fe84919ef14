package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"podium/pkg/client"
	"podium/pkg/client/addresslease"
	"podium/pkg/client/events"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/daemon"
	"podium/pkg/l2announce"
	"podium/pkg/podnetwork"
	"podium/pkg/proxy/conntrack"
	"podium/pkg/proxy/iptables"
	"podium/pkg/proxy/services"
	"podium/pkg/scheme"
)

// options are the flags of kube-proxy. Most are bound to the configurations of its
// parts; the others determine which parts run, and how.
type options struct {
	daemon.Options
	d        Daemon
	network  podnetwork.Config
	announce l2announce.Config

	mode, podNetwork, namePrefix   string
	announces, sourceCheck         bool
	conntrackPerCore, conntrackMin int
	cleanup                        bool
}

// The values of --pod-network.
const (
	networkRoutes = "routes"
	networkVXLAN  = "vxlan"
	networkCloud  = "cloud"
	networkNone   = "none"
)

// NewCommand returns the kube-proxy command.
func NewCommand() *cobra.Command {
	o := &options{}
	cmd := o.Command("kube-proxy", "Run the Service proxy and the pod network of a node", nil, o.run)
	o.flags(cmd)
	return cmd
}

func (o *options) run(cmd *cobra.Command) error {
	if err := o.complete(); err != nil {
		return err
	}
	if o.cleanup {
		return o.cleanUp(cmd.Context())
	}
	d, err := o.daemon(o.Logger(cmd.ErrOrStderr()))
	if err != nil {
		return err
	}
	return Run(cmd.Context(), d)
}

func (o *options) flags(cmd *cobra.Command) {
	f, d, rules := cmd.Flags(), &o.d, &o.d.Rules
	o.Options.AddFlags(f)
	f.StringVar(&d.Kubeconfig, "kubeconfig", "", "kubeconfig file for the API server (default: the service account of the pod)")
	f.StringVar(&d.Node, "hostname-override", "", "name of this node (default: the host's name)")
	daemon.ParsedVar(f, &rules.ClusterCIDR, "cluster-cidr", "", clusterCIDR, "CIDR of the pods, IPv4 or IPv6: traffic to cluster IPs from other addresses is masqueraded; only Services of its IP family are served (default: IPv4)")
	f.StringVar(&d.HealthzAddress, "healthz-bind-address", "0.0.0.0:10256", "address to serve /healthz and /livez on; empty: disabled")
	f.StringVar(&d.MetricsAddress, "metrics-bind-address", "127.0.0.1:10249", "address to serve /metrics on; empty: disabled")
	f.StringVar(&o.mode, "proxy-mode", "iptables", "proxy mode: iptables")
	f.DurationVar(&d.Times.Sync, "iptables-sync-period", 30*time.Second, "interval at which the rules in the kernel are checked and restored")
	f.DurationVar(&d.Times.MinSync, "iptables-min-sync-period", 50*time.Millisecond, "minimum interval between two writes of rules; the first change after a pause is written at once")
	f.BoolVar(&rules.MasqueradeAll, "masquerade-all", false, "masquerade all traffic to cluster IPs")
	f.BoolVar(&rules.LocalhostNodePorts, "iptables-localhost-nodeports", true, "serve node ports on 127.0.0.1 too")
	daemon.ParsedSliceVar(f, &rules.NodePortAddresses, "nodeport-addresses", nil, netip.ParsePrefix, "CIDRs of the local addresses that serve node ports (default: all)")
	f.StringVar(&rules.DetectLocal, "detect-local-mode", "", "how to detect traffic from pods: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix (default: ClusterCIDR with --cluster-cidr, else NodeCIDR)")
	f.StringVar(&rules.LocalInterface, "pod-bridge-interface", "", "bridge of the pods, for --detect-local-mode=BridgeInterface")
	f.StringVar(&o.namePrefix, "pod-interface-name-prefix", "", "name prefix of the pods' interfaces, for --detect-local-mode=InterfaceNamePrefix")
	f.IntVar(&o.conntrackPerCore, "conntrack-max-per-core", 32768, "minimum size of the connection tracking table per CPU; 0: do not change the size")
	f.IntVar(&o.conntrackMin, "conntrack-min", 131072, "minimum size of the connection tracking table; ignored if --conntrack-max-per-core is 0")
	f.BoolVar(&o.cleanup, "cleanup", false, "remove all rules of kube-proxy and the pod network, and exit")
	f.BoolVar(&o.announces, "announce-load-balancers", true, "let this node announce the load-balancer addresses that cloud-controller-manager allocates")
	f.DurationVar(&o.announce.Duration, "announce-lease-duration", addresslease.Duration, "duration of the Lease of a load-balancer address: the time after which another node takes over the addresses of a lost node; a node that cannot reach the API stops announcing them slightly earlier")
	f.StringVar(&o.podNetwork, "pod-network", networkRoutes, "pod network between nodes: routes (the nodes share a link), vxlan (across routers), cloud (cloud-controller-manager creates the routes: --configure-cloud-routes) or none (an add-on provides the network)")
	f.StringVar(&o.network.DataDir, "cni-data-dir", podnetwork.DefaultDataDir, "directory of the host-local plugin's address allocations")
	f.StringVar(&o.network.ConfDir, "cni-conf-dir", podnetwork.DefaultConfDir, "directory of the container runtime's CNI configurations")
	f.StringVar(&o.network.Name, "bridge-name", podnetwork.DefaultName, "name of the CNI network, and of the bridge that earlier versions gave it")
	f.BoolVar(&o.sourceCheck, "pod-source-check", true, "drop packets that a pod sends from an address that is not its own (not with --pod-network=none; needs the kernel's rpfilter match)")
	daemon.ParsedSliceVar(f, &rules.ClosedMetadata, "block-metadata-addresses", texts(iptables.DefaultMetadata()), parseAddr, "addresses of the cloud's metadata service; pods without hostNetwork can reach them for DNS only; empty: no restriction")
	f.IntVar(&o.network.MTU, "pod-mtu", 0, "MTU of pods (default: that of the link to the other nodes, less the tunnel's overhead)")
}

func texts(addresses []netip.Addr) []string {
	var out []string
	for _, a := range addresses {
		out = append(out, a.String())
	}
	return out
}

var interfaceName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,14}$`)

// complete sets what depends on several flags, and validates all of them. It returns
// all errors, joined.
func (o *options) complete() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.mode != "iptables" && o.mode != "" {
		bad("--proxy-mode=%s is not available: use iptables", o.mode)
	}
	if !slices.Contains([]string{networkRoutes, networkVXLAN, networkCloud, networkNone}, o.podNetwork) {
		bad("--pod-network=%s: use routes, vxlan, cloud, or none to leave pods to a network add-on", o.podNetwork)
	}
	if !interfaceName.MatchString(o.network.Name) {
		bad("--bridge-name=%q is not a name for an interface (at most 15 letters, digits, '-', '_', '.')", o.network.Name)
	}
	if d := o.announce.Duration; d < l2announce.Shortest || d > l2announce.Longest || d%time.Second != 0 {
		bad("--announce-lease-duration=%v: give whole seconds from %v to %v", d, l2announce.Shortest, l2announce.Longest)
	}
	for flag, address := range map[string]string{"healthz-bind-address": o.d.HealthzAddress, "metrics-bind-address": o.d.MetricsAddress} {
		if _, _, err := net.SplitHostPort(address); address != "" && err != nil {
			bad("--%s: %w", flag, err)
		}
	}
	if o.d.Rules.DetectLocal == DetectInterfacePrefix {
		o.d.Rules.LocalInterface = o.namePrefix
	}
	if o.sourceCheck && o.podNetwork != networkNone {
		o.d.Rules.PodLinks = podnetwork.PodLinks
	}
	return errors.Join(append(errs, o.d.Rules.Validate())...)
}

// clusterCIDR parses --cluster-cidr. Upstream accepts one range per family; here a
// proxy serves one family.
func clusterCIDR(text string) (netip.Prefix, error) {
	if text == "" {
		return netip.Prefix{}, nil
	}
	if strings.Contains(text, ",") {
		return netip.Prefix{}, errors.New("dual-stack is not supported: give one range, IPv4 or IPv6")
	}
	p, err := netip.ParsePrefix(strings.TrimSpace(text))
	return p.Masked(), err
}

// parseAddr parses an IP address without a zone.
func parseAddr(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%q is not an IP address", text)
	}
	return a, nil
}

// nodeName returns the name of this node: name, or the hostname if it is empty.
func nodeName(name string) (string, error) {
	if name != "" {
		return strings.ToLower(strings.TrimSpace(name)), nil
	}
	host, err := os.Hostname()
	return strings.ToLower(host), err
}

// daemon returns the Daemon for the flags on this machine. Call complete first.
func (o *options) daemon(log *slog.Logger) (d Daemon, err error) {
	d = o.d
	if d.Node, err = nodeName(d.Node); err != nil {
		return d, err
	}
	cfg, err := kubeconfig.ForDaemon(d.Kubeconfig, "kube-proxy")
	if err != nil {
		return d, err
	}
	if d.Client, err = client.New(scheme.New(), cfg); err != nil {
		return d, err
	}
	if d.Kernel, err = iptables.NewHost(d.Rules.Family()); err != nil {
		return d, err
	}
	var machine podnetwork.Machine
	o.raiseConntrack(machine, log)
	d.Log, d.Registry, d.Events = log, daemon.Metrics(), events.New(d.Client, "kube-proxy", d.Node, log)
	d.Conntrack, d.Health, d.Sysctl = conntrack.Kernel{Six: d.Rules.Family() == services.IPv6}, &HealthServers{Log: log}, machine.Sysctl
	if o.announces {
		d.Announce = &o.announce
		d.Announce.Network, d.Announce.Leaving = l2announce.Kernel{}, machineStops
	}
	if o.podNetwork == networkNone {
		return d, nil
	}
	if podnetwork.PluginDir() == "" {
		log.Warn("no CNI plugins in /opt/cni/bin or /usr/lib/cni: pods will not start (Debian's package: containernetworking-plugins)")
	}
	d.PodNetwork = &o.network
	n := d.PodNetwork
	n.Node, n.Client, n.Events, n.Log, n.Host, n.ClusterCIDR = d.Node, d.Client, d.Events, log, machine, d.Rules.ClusterCIDR
	n.Tunnel, n.Routed = o.podNetwork == networkVXLAN, o.podNetwork == networkCloud
	return d, nil
}

const conntrackMax = "net/netfilter/nf_conntrack_max"

// raiseConntrack raises the size of the connection tracking table, if necessary. It
// logs a failure.
func (o *options) raiseConntrack(m podnetwork.Machine, log *slog.Logger) {
	want := max(o.conntrackPerCore*runtime.NumCPU(), o.conntrackMin)
	data, err := os.ReadFile("/proc/sys/" + conntrackMax)
	if err != nil || o.conntrackPerCore <= 0 {
		return
	}
	if have, err := strconv.Atoi(strings.TrimSpace(string(data))); err != nil || have >= want {
		return
	}
	if err := m.Sysctl(conntrackMax, strconv.Itoa(want)); err != nil {
		log.Warn("raise size of the connection tracking table failed", "wanted", want, "error", err)
	}
}

// cleanUp removes what kube-proxy leaves on a machine, for both address families.
func (o *options) cleanUp(ctx context.Context) error {
	errs := []error{l2announce.Cleanup()}
	for _, family := range []services.Family{services.IPv4, services.IPv6} {
		kernel, err := iptables.NewHost(family)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		withEverything := iptables.Planner{Family: family, LocalhostNodePorts: true, Kernel: iptables.AllFeatures()}
		errs = append(errs, iptables.Cleanup(ctx, kernel, append(withEverything.Hooks(), podnetwork.Hooks()...)))
		if o.podNetwork != networkNone {
			errs = append(errs, kernel.RemoveEmptyHostPorts())
		}
	}
	if o.podNetwork != networkNone {
		errs = append(errs, podnetwork.Cleanup(o.network.ConfDir, o.network.DataDir, o.network.Name))
	}
	return errors.Join(errs...)
}
