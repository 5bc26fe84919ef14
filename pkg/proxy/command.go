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

	"podium/pkg/announce"
	"podium/pkg/client"
	"podium/pkg/client/addresslease"
	"podium/pkg/client/events"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/daemon"
	"podium/pkg/podnetwork"
	"podium/pkg/proxy/conntrack"
	"podium/pkg/proxy/iptables"
	"podium/pkg/proxy/services"
	"podium/pkg/scheme"
)

// options are the flags of kube-proxy.
type options struct {
	daemon.Options

	kubeconfig, node            string
	clusterCIDR                 string
	healthz, metrics            string
	mode                        string
	sync, minSync               time.Duration
	masqueradeAll, localhost    bool
	nodePortAddresses           []string
	detectLocal                 string
	bridgeInterface, namePrefix string
	conntrackPerCore            int
	conntrackMin                int
	cleanup                     bool

	announce    bool
	announceFor time.Duration

	podNetwork                     string
	cniConfDir, cniDataDir, bridge string
	podMTU                         int
	podSourceCheck                 bool
	metadata                       []string
}

// The values of --pod-network.
const (
	networkRoutes = "routes"
	networkVXLAN  = "vxlan"
	networkCloud  = "cloud"
	networkNone   = "none"
)

// NewCommand is kube-proxy.
func NewCommand() *cobra.Command {
	o := &options{}
	cmd := o.Command("kube-proxy", "The node's network agent: Services and the pod network", nil, o.run)
	o.flags(cmd)
	return cmd
}

func (o *options) run(cmd *cobra.Command) error {
	if err := o.validate(); err != nil {
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
	f := cmd.Flags()
	o.Options.AddFlags(f)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "file that says where the API server is and who we are (default: the service account of the pod)")
	f.StringVar(&o.node, "hostname-override", "", "name of this node (default: the host's name)")
	f.StringVar(&o.clusterCIDR, "cluster-cidr", "", "the range of all pods, IPv4 or IPv6: what asks for a cluster IP from elsewhere is masqueraded; its family is the one that is served (default: IPv4)")
	f.StringVar(&o.healthz, "healthz-bind-address", "0.0.0.0:10256", "where to serve /healthz and /livez; empty: nowhere")
	f.StringVar(&o.metrics, "metrics-bind-address", "127.0.0.1:10249", "where to serve /metrics; empty: nowhere")
	f.StringVar(&o.mode, "proxy-mode", "iptables", "how Services are served: iptables")
	f.DurationVar(&o.sync, "iptables-sync-period", 30*time.Second, "how often the kernel's rules are compared with ours, whatever happens")
	f.DurationVar(&o.minSync, "iptables-min-sync-period", 50*time.Millisecond, "least time between two writes of rules; the first change after a pause is written at once")
	f.BoolVar(&o.masqueradeAll, "masquerade-all", false, "hide every client of a cluster IP behind the node")
	f.BoolVar(&o.localhost, "iptables-localhost-nodeports", true, "serve node ports on 127.0.0.1 too")
	f.StringSliceVar(&o.nodePortAddresses, "nodeport-addresses", nil, "ranges of the local addresses that serve node ports (default: all)")
	f.StringVar(&o.detectLocal, "detect-local-mode", "", "how pods' packets are known: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix (default: ClusterCIDR where --cluster-cidr is given, else NodeCIDR)")
	f.StringVar(&o.bridgeInterface, "pod-bridge-interface", "", "the bridge of the pods, for BridgeInterface")
	f.StringVar(&o.namePrefix, "pod-interface-name-prefix", "", "how pods' interfaces are named, for InterfaceNamePrefix")
	f.IntVar(&o.conntrackPerCore, "conntrack-max-per-core", 32768, "least size of the connection table, per CPU; 0: as it is")
	f.IntVar(&o.conntrackMin, "conntrack-min", 131072, "least size of the connection table, with --conntrack-max-per-core")
	f.BoolVar(&o.cleanup, "cleanup", false, "remove all rules of ours and the pod network, and exit")
	f.BoolVar(&o.announce, "announce-load-balancers", true, "let this node announce addresses of load balancers, where the cluster gives them out itself (cloud-controller-manager)")
	f.DurationVar(&o.announceFor, "announce-lease-duration", addresslease.Duration, "how long an address is this node's by one renewal: so long it takes until another answers when this node is lost, and a little less long addresses are answered while the API is away")
	f.StringVar(&o.podNetwork, "pod-network", networkRoutes, "how pods reach those of other nodes: routes, where the nodes share a link; vxlan, across routers; cloud leaves the way to cloud-controller-manager (--configure-cloud-routes); none leaves the pods' network to an add-on")
	f.StringVar(&o.cniDataDir, "cni-data-dir", podnetwork.DefaultDataDir, "folder where the host-local plugin notes which addresses are taken")
	f.StringVar(&o.cniConfDir, "cni-conf-dir", podnetwork.DefaultConfDir, "folder that the container runtime reads CNI configurations from")
	f.StringVar(&o.bridge, "bridge-name", podnetwork.DefaultName, "name of the CNI network, and of the bridge that earlier versions gave it")
	f.BoolVar(&o.podSourceCheck, "pod-source-check", true, "drop packets that a pod sends from an address that is not its own (not with --pod-network=none; needs the kernel's rpfilter match)")
	f.StringSliceVar(&o.metadata, "block-metadata-addresses", texts(iptables.DefaultMetadata()), "addresses of the cloud's metadata service, which pods do not reach but for DNS; pods in the node's network do; empty: open to pods")
	f.IntVar(&o.podMTU, "pod-mtu", 0, "MTU of pods (default: what fits the way to the other nodes)")
}

func texts(addresses []netip.Addr) []string {
	var out []string
	for _, a := range addresses {
		out = append(out, a.String())
	}
	return out
}

var interfaceName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,14}$`)

// validate reports everything that is wrong at once.
func (o *options) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.mode != "iptables" && o.mode != "" {
		bad("--proxy-mode=%s is not available: use iptables", o.mode)
	}
	if !slices.Contains([]string{networkRoutes, networkVXLAN, networkCloud, networkNone}, o.podNetwork) {
		bad("--pod-network=%s: use routes, vxlan, cloud, or none to leave pods to a network add-on", o.podNetwork)
	}
	if !interfaceName.MatchString(o.bridge) {
		bad("--bridge-name=%q is not a name for an interface (at most 15 letters, digits, '-', '_', '.')", o.bridge)
	}
	if o.announceFor < announce.Shortest || o.announceFor > announce.Longest || o.announceFor%time.Second != 0 {
		bad("--announce-lease-duration=%v: give whole seconds from %v to %v", o.announceFor, announce.Shortest, announce.Longest)
	}
	for flag, address := range map[string]string{"healthz-bind-address": o.healthz, "metrics-bind-address": o.metrics} {
		if _, _, err := net.SplitHostPort(address); address != "" && err != nil {
			bad("--%s: %w", flag, err)
		}
	}
	rules, err := o.rules()
	return errors.Join(append(errs, err, rules.Validate())...)
}

func (o *options) rules() (RuleOptions, error) {
	out := RuleOptions{
		DetectLocal: o.detectLocal, LocalInterface: o.bridgeInterface,
		MasqueradeAll: o.masqueradeAll, LocalhostNodePorts: o.localhost,
	}
	if o.detectLocal == DetectInterfacePrefix {
		out.LocalInterface = o.namePrefix
	}
	var errs []error
	out.ClusterCIDR, errs = clusterCIDR(o.clusterCIDR)
	if o.podSourceCheck && o.podNetwork != networkNone {
		out.PodLinks = podnetwork.PodLinks
	}
	for _, text := range o.metadata {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			errs = append(errs, fmt.Errorf("--block-metadata-addresses: %q is not an IP address", text))
			continue
		}
		out.ClosedMetadata = append(out.ClosedMetadata, a)
	}
	for _, text := range o.nodePortAddresses {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--nodeport-addresses: %w", err))
			continue
		}
		out.NodePortAddresses = append(out.NodePortAddresses, p)
	}
	return out, errors.Join(errs...)
}

// clusterCIDR reads the range of all pods. Upstream takes a list, one range a
// family; here it is one family.
func clusterCIDR(text string) (netip.Prefix, []error) {
	if text == "" {
		return netip.Prefix{}, nil
	}
	if strings.Contains(text, ",") {
		return netip.Prefix{}, []error{fmt.Errorf("--cluster-cidr=%s: dual-stack is not supported: give one range, IPv4 or IPv6", text)}
	}
	p, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err != nil {
		return netip.Prefix{}, []error{fmt.Errorf("--cluster-cidr: %w", err)}
	}
	return p.Masked(), nil
}

func (o *options) nodeName() (string, error) {
	if o.node != "" {
		return strings.ToLower(strings.TrimSpace(o.node)), nil
	}
	host, err := os.Hostname()
	return strings.ToLower(host), err
}

// daemon connects the flags to this machine.
func (o *options) daemon(log *slog.Logger) (Daemon, error) {
	node, err := o.nodeName()
	if err != nil {
		return Daemon{}, err
	}
	rules, err := o.rules()
	if err != nil {
		return Daemon{}, err
	}
	cfg, err := kubeconfig.ForDaemon(o.kubeconfig, "kube-proxy")
	if err != nil {
		return Daemon{}, err
	}
	c, err := client.New(scheme.New(), cfg)
	if err != nil {
		return Daemon{}, err
	}
	kernel, err := iptables.NewHost(rules.Family())
	if err != nil {
		return Daemon{}, err
	}
	var machine podnetwork.Machine
	o.raiseConntrack(machine, log)
	d := Daemon{
		Config: Config{
			Node: node, Client: c, Log: log, Registry: daemon.Metrics(),
			Events: events.New(c, "kube-proxy", node, log),
			Kernel: kernel, Conntrack: conntrack.Kernel{Six: rules.Family() == services.IPv6},
			Health: &HealthServers{Log: log},
			Rules:  rules, Times: Times{MinSync: o.minSync, Sync: o.sync},
		},
		HealthzAddress: o.healthz, MetricsAddress: o.metrics, Kubeconfig: o.kubeconfig,
		Sysctl: machine.Sysctl,
	}
	if o.announce {
		d.Announce = &announce.Config{Network: announce.Kernel{}, Duration: o.announceFor, Leaving: machineStops}
	}
	if o.podNetwork != networkNone {
		if podnetwork.PluginDir() == "" {
			log.Warn("no CNI plugins in /opt/cni/bin or /usr/lib/cni: pods will not start (Debian's package: containernetworking-plugins)")
		}
		d.PodNetwork = &podnetwork.Config{
			Node: node, Client: c, Events: d.Events, Log: log, Host: machine,
			ConfDir: o.cniConfDir, DataDir: o.cniDataDir, Name: o.bridge, MTU: o.podMTU, ClusterCIDR: rules.ClusterCIDR,
			Tunnel: o.podNetwork == networkVXLAN, Routed: o.podNetwork == networkCloud,
		}
	}
	return d, nil
}

const conntrackMax = "net/netfilter/nf_conntrack_max"

// raiseConntrack makes room for a node's connections. Where it may not, the
// node works with what it has.
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
		log.Warn("the connection table stays as it is", "wanted", want, "error", err)
	}
}

// cleanUp removes what kube-proxy leaves on a machine, whatever family it served.
func (o *options) cleanUp(ctx context.Context) error {
	errs := []error{announce.Cleanup()}
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
		errs = append(errs, podnetwork.Cleanup(o.cniConfDir, o.cniDataDir, o.bridge))
	}
	return errors.Join(errs...)
}
