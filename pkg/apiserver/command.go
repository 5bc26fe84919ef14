package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"podium/api/openapi"
	"podium/pkg/apiserver/budget"
	"podium/pkg/apiserver/nodeproxy"
	apiopenapi "podium/pkg/apiserver/openapi"
	"podium/pkg/apiserver/registry"
	"podium/pkg/daemon"
	"podium/pkg/scheme"
	"podium/pkg/storage"
	"podium/pkg/storage/etcd"
)

// options are the flags of kube-apiserver.
type options struct {
	daemon.Options
	authn authnFlags

	dataDir     string
	etcdServers []string
	etcdCA      string
	etcdCert    string
	etcdKey     string
	encryption  encryptionOptions
	audit       auditOptions

	bindAddress string
	port        int
	advertise   string
	serving     daemon.Serving

	kubeletCA      string
	kubeletCert    string
	kubeletKey     string
	kubeletTimeout time.Duration

	kubeletAddresses []string
	proxyAnywhere    bool

	serviceCIDR string
	nodePorts   string

	enable       []string
	disable      []string
	admission    admissionOptions
	access       accessFlags
	upstream     upstreamFlags
	profiling    bool
	maxReads     int
	maxWrites    int
	maxLong      int
	maxWriteRate int64
	timeout      time.Duration
	delay        time.Duration
	compactEvery time.Duration
	eventTTL     time.Duration
	identity     string
}

// NewCommand is kube-apiserver.
func NewCommand() *cobra.Command {
	o := &options{}
	cmd := o.Command("kube-apiserver", "The one door to the cluster's state: the Kubernetes API", nil, func(cmd *cobra.Command) error {
		return o.run(cmd.Context(), o.Logger(cmd.ErrOrStderr()))
	})
	o.flags(cmd)
	cmd.SetFlagErrorFunc(flagError)
	return cmd
}

func (o *options) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	o.Options.AddFlags(f)
	o.authn.flags(f)
	f.StringVar(&o.dataDir, "data-dir", "", "folder of the store inside this process; used when no --etcd-servers are given")
	f.StringSliceVar(&o.etcdServers, "etcd-servers", nil, "addresses of the etcd cluster to store in (https://host:2379,...)")
	f.StringVar(&o.etcdCA, "etcd-cafile", "", "file with the authority that signs etcd's certificates")
	f.StringVar(&o.etcdCert, "etcd-certfile", "", "file with our certificate for etcd")
	f.StringVar(&o.etcdKey, "etcd-keyfile", "", "file with that certificate's key")
	f.DurationVar(&o.compactEvery, "etcd-compaction-interval", 5*time.Minute, "how long the past is kept; 0: for ever")

	f.DurationVar(&o.eventTTL, "event-ttl", time.Hour, "how long an event is kept that does not happen again; 0: for ever")

	f.StringVar(&o.bindAddress, "bind-address", "0.0.0.0", "address to listen at")
	f.IntVar(&o.port, "secure-port", 6443, "port to listen at")
	f.StringVar(&o.advertise, "advertise-address", "", "address at which the cluster's machines reach this server (default: --bind-address, or the address of the default route)")
	o.serving.AddFlags(f)

	o.encryption.flags(f)
	o.audit.flags(f)

	f.StringVar(&o.kubeletCA, "kubelet-certificate-authority", "", "file with the authority that signs kubelets' serving certificates")
	f.StringVar(&o.kubeletCert, "kubelet-client-certificate", "", "file with our certificate for kubelets")
	f.StringVar(&o.kubeletKey, "kubelet-client-key", "", "file with that certificate's key")
	f.DurationVar(&o.kubeletTimeout, "kubelet-timeout", 5*time.Second, "how long a kubelet may take to accept a connection")

	f.StringSliceVar(&o.kubeletAddresses, "kubelet-preferred-address-types", []string{"InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS"}, "which of a node's addresses to use, best first")

	f.BoolVar(&o.proxyAnywhere, "allow-proxy-to-local-addresses", false, "let nodes, pods and services be proxied to whose addresses are loopback, link-local or this server's own")
	f.StringVar(&o.serviceCIDR, "service-cluster-ip-range", "10.96.0.0/16", "range that Services' cluster IPs are taken from")
	f.StringVar(&o.nodePorts, "service-node-port-range", "30000-32767", "ports that Services' node ports are taken from")

	f.StringSliceVar(&o.enable, "enable-admission-plugins", nil, "admission plugins to have on; all that exist are, unless disabled")
	f.StringSliceVar(&o.disable, "disable-admission-plugins", nil, "admission plugins to have off")
	o.access.flags(f)
	o.admission.flags(f)
	o.upstream.flags(f)
	f.BoolVar(&o.profiling, "profiling", true, "serve profiles of this process at /debug/pprof to those who may read them (system:masters)")
	f.IntVar(&o.maxReads, "max-requests-inflight", 400, "how many reading requests are worked on at a time; 0: no limit")
	f.IntVar(&o.maxWrites, "max-mutating-requests-inflight", 200, "how many changing requests are worked on at a time; 0: no limit")
	f.IntVar(&o.maxLong, "max-long-running-requests-per-user", 1000, "maximum number of watches and streams of one user, or of the service accounts of one namespace; ten times as many of a node; 0: no limit")
	f.Int64Var(&o.maxWriteRate, "max-write-bytes-per-user", 2<<20, "maximum number of bytes a second that one user, or the service accounts of one namespace, may write to the store, sixteen times as many at once; 0: no limit")
	f.DurationVar(&o.timeout, "request-timeout", defaultRequestTimeout, "how long a request may take that is no watch and no stream")
	f.DurationVar(&o.delay, "shutdown-delay-duration", 0, "how long to go on serving after readiness has begun to fail")
	f.StringVar(&o.identity, "hostname-override", "", "this server's name among several (default: the host's name)")
}

// settings are what the flags come to.
type settings struct {
	cidr        netip.Prefix
	ports       registry.PortRange
	disabled    registry.PluginSet
	admission   admissionConfig
	externalIPs []netip.Prefix
	known       Authentication
	tls         *tls.Config
}

// settings reads the flags and the files they name.
func (o *options) settings(log *slog.Logger) (s settings, err error) {
	if s.cidr, s.ports, err = o.parse(); err != nil {
		return s, err
	}
	if s.disabled, err = registry.DisabledPlugins(o.enable, o.disable); err != nil {
		return s, err
	}
	if s.admission, err = o.admission.load(); err != nil {
		return s, err
	}
	if s.externalIPs, err = o.admission.externalIPRanges(); err != nil {
		return s, err
	}
	if err = o.authn.parse(log); err != nil {
		return s, err
	}
	s.known = o.authn.build()
	if err = o.servingFiles(); err != nil {
		return s, err
	}
	if s.tls, err = o.serving.TLS(); err != nil {
		return s, err
	}
	o.authn.ask(s.tls)
	return s, nil
}

// Problems of the flags are all told at once.
func (o *options) parse() (cidr netip.Prefix, ports registry.PortRange, err error) {
	var errs []error
	if o.dataDir == "" && len(o.etcdServers) == 0 {
		errs = append(errs, errors.New("say where to store: --data-dir for one machine, --etcd-servers for an etcd cluster"))
	}
	if o.dataDir != "" && len(o.etcdServers) > 0 {
		errs = append(errs, errors.New("--data-dir and --etcd-servers exclude each other"))
	}
	if err := errors.Join(o.encryption.parse(), o.audit.parse()); err != nil {
		errs = append(errs, err)
	}
	if strings.Contains(o.serviceCIDR, ",") {
		errs = append(errs, fmt.Errorf("--service-cluster-ip-range=%s: dual-stack is not supported: give one range, IPv4 or IPv6", o.serviceCIDR))
	} else if cidr, err = netip.ParsePrefix(o.serviceCIDR); err != nil {
		errs = append(errs, fmt.Errorf("--service-cluster-ip-range: %w", err))
	}
	if ports, err = parsePorts(o.nodePorts); err != nil {
		errs = append(errs, fmt.Errorf("--service-node-port-range: %w", err))
	}
	if (o.serving.CertFile == "") != (o.serving.KeyFile == "") {
		errs = append(errs, errors.New("--tls-cert-file and --tls-private-key-file belong together"))
	}
	if a, err := netip.ParseAddr(o.advertise); o.advertise != "" && (err != nil || !reachable(a)) {
		errs = append(errs, fmt.Errorf("--advertise-address=%s is no IP address that other machines could reach", o.advertise))
	}
	return cidr, ports, errors.Join(append(errs, o.access.parse())...)
}

func parsePorts(text string) (registry.PortRange, error) {
	first, last, ok := strings.Cut(text, "-")
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if !ok || errA != nil || errB != nil || a == 0 || a > b {
		return registry.PortRange{}, fmt.Errorf("%q is not a range like 30000-32767", text)
	}
	return registry.PortRange{First: int32(a), Last: int32(b)}, nil
}

// run opens what the server works with, and serves until ctx ends.
func (o *options) run(ctx context.Context, log *slog.Logger) (err error) {
	set, err := o.settings(log)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(o.bindAddress, strconv.Itoa(o.port)))
	if err != nil {
		return err
	}
	defer listener.Close()
	advertise, err := o.advertised(listener)
	if err != nil {
		return err
	}
	metrics := daemon.Metrics()
	keys, err := o.encryption.build(ctx, metrics, o.identity, log)
	if err != nil {
		return err
	}
	disk, err := o.store(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	store := keys.Wrap(disk)
	s := scheme.New()
	record, closeRecord, err := o.audit.build(s, metrics, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeRecord()) }()
	nodes, err := o.nodeProxy(advertise, log)
	if err != nil {
		return err
	}
	defer nodes.Close()
	access, err := o.access.build(metrics)
	if err != nil {
		return err
	}
	forKinds := registry.Config{
		Access: access,
		Store:  store, ServiceCIDR: set.cidr, NodePorts: set.ports, Tokens: set.known.Issuer, TokenAudiences: set.known.Audiences, Identify: set.known.Tokens, MaxTokenLife: o.authn.maxToken,
		Now: time.Now, Streams: nodes.Streams(), Disabled: set.disabled,
		DenyPrivileged: !o.upstream.allowPrivileged,
	}
	server, err := New(Config{
		Access: access,
		Scheme: s, Store: store, Kinds: registry.Kinds(s, forKinds), Log: log,
		Listener: listener, TLS: set.tls, Registry: metrics, Encryption: keys, Audit: record,
		OpenAPI: &apiopenapi.Documents{V2: openapi.V2, V3: openapi.V3, Paths: openapi.Paths},
		Authn:   set.known, Disabled: set.disabled, PodSecurity: set.admission.podSecurity, EventLimits: set.admission.eventLimits, ExternalIPRanges: set.externalIPs, Profiling: o.profiling, Snapshot: disk.Snapshot,
		MaxReads: o.maxReads, MaxWrites: o.maxWrites, MaxLongRunning: o.maxLong, MaxWriteRate: o.maxWriteRate, RequestTimeout: o.timeout,
		Memory:       budget.Share(debug.SetMemoryLimit(-1)),
		CompactEvery: o.keepPast(), EventTTL: o.eventTTL, ShutdownDelay: o.delay,
		Advertise: advertise, ServiceCIDR: set.cidr, Identity: o.identity,
		Repair: func(ctx context.Context, b registry.Backend) error {
			return registry.RepairServices(ctx, s, b, forKinds)
		},
	})
	if err != nil {
		return err
	}
	return server.runNotifying(ctx)
}

// runNotifying is Run, and tells the service manager how it goes.
func (s *Server) runNotifying(ctx context.Context) error {
	context.AfterFunc(ctx, daemon.NotifyStopping)
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil && s.health.Ready() != nil {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
		if ctx.Err() == nil {
			daemon.NotifyReady()
			s.cfg.Log.Info("ready")
			daemon.Watchdog(ctx, s.health.Live)
		}
	}()
	return s.Run(ctx)
}

func (o *options) keepPast() time.Duration {
	if o.compactEvery == 0 {
		return -1
	}
	return o.compactEvery
}

// closingStore is a store to be closed at the end.
type closingStore interface {
	storage.Store
	Snapshot(context.Context) (io.ReadCloser, error)
	Close() error
}

func (o *options) store(ctx context.Context, log *slog.Logger) (closingStore, error) {
	if o.dataDir != "" {
		return etcd.Embed(ctx, etcd.EmbeddedConfig{Dir: o.dataDir, Log: log})
	}
	return etcd.Open(ctx, etcd.Config{
		Servers: o.etcdServers, CAFile: o.etcdCA, CertFile: o.etcdCert, KeyFile: o.etcdKey, Log: log,
	})
}

// reachable says whether others may be told this address: the endpoints of a
// Service cannot be loopback.
func reachable(a netip.Addr) bool { return !a.IsUnspecified() && !a.IsLoopback() }

// advertised is where others reach this server.
func (o *options) advertised(l net.Listener) (netip.AddrPort, error) {
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	for _, text := range []string{o.advertise, o.bindAddress} {
		if a, err := netip.ParseAddr(text); err == nil && reachable(a) {
			return netip.AddrPortFrom(a.Unmap(), port), nil
		}
	}
	// No packet is sent: the kernel only says which address it would send from.
	conn, err := net.Dial("udp", "192.0.2.1:9")
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("this machine has no default route: say with --advertise-address where others reach this server: %w", err)
	}
	defer conn.Close()
	return netip.AddrPortFrom(conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), port), nil
}

// ownAddresses are all at which this server can be reached from here: that which
// it tells others, and those of the machine.
func (o *options) ownAddresses(advertised netip.AddrPort) []netip.AddrPort {
	own := []netip.AddrPort{advertised}
	if a, err := netip.ParseAddr(o.bindAddress); err == nil && !a.IsUnspecified() {
		return append(own, netip.AddrPortFrom(a, advertised.Port()))
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return own
	}
	for _, i := range interfaces {
		if p, err := netip.ParsePrefix(i.String()); err == nil {
			own = append(own, netip.AddrPortFrom(p.Addr(), advertised.Port()))
		}
	}
	return own
}

// nodeProxy makes the connections to nodes and pods that go through this server.
func (o *options) nodeProxy(own netip.AddrPort, log *slog.Logger) (*nodeproxy.Proxy, error) {
	cfg := nodeproxy.Config{Timeout: o.kubeletTimeout, Own: o.ownAddresses(own), Anywhere: o.proxyAnywhere, Log: log}
	for _, t := range o.kubeletAddresses {
		cfg.AddressTypes = append(cfg.AddressTypes, corev1.NodeAddressType(t))
	}
	p, err := nodeproxy.FromFiles(cfg, o.kubeletCA, o.kubeletCert, o.kubeletKey)
	if err != nil {
		return nil, fmt.Errorf("reach kubelets: %w", err)
	}
	return p, nil
}
