package apiserver

import (
	"context"
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
	"podium/pkg/apiserver/admission/plugins"
	"podium/pkg/apiserver/budget"
	"podium/pkg/apiserver/nodeproxy"
	apiopenapi "podium/pkg/apiserver/openapi"
	"podium/pkg/apiserver/registry"
	"podium/pkg/daemon"
	"podium/pkg/scheme"
	"podium/pkg/storage"
	"podium/pkg/storage/encryption"
	"podium/pkg/storage/etcd"
)

// options are the flags of kube-apiserver. Flags that need no conversion are
// bound to fields of the embedded configurations.
type options struct {
	daemon.Options
	cfg   Config
	kinds registry.Config
	nodes nodeproxy.Config
	etcd  etcd.Config

	authn      authnFlags
	access     accessFlags
	admission  plugins.Flags
	encryption encryption.Config
	audit      auditOptions
	upstream   upstreamFlags
	proxy      proxyFlags
	serving    daemon.Serving

	fairness    bool
	dataDir     string
	bindAddress string
	port        int
	advertise   string
	kubeletCA   string
	kubeletCert string
	kubeletKey  string
}

// NewCommand returns the kube-apiserver command. It runs until the context of
// the command ends.
func NewCommand() *cobra.Command {
	o := &options{}
	cmd := o.Command("kube-apiserver", "Serve the Kubernetes API", nil, func(cmd *cobra.Command) error {
		return o.run(cmd.Context(), o.Logger(cmd.ErrOrStderr()))
	})
	o.flags(cmd)
	cmd.SetFlagErrorFunc(flagError)
	return cmd
}

func (o *options) flags(cmd *cobra.Command) {
	f, c := cmd.Flags(), &o.cfg
	o.Options.AddFlags(f)
	o.authn.flags(f)
	f.StringVar(&o.dataDir, "data-dir", "", "directory of the etcd store inside this process; used without --etcd-servers")
	f.StringSliceVar(&o.etcd.Servers, "etcd-servers", nil, "addresses of the etcd cluster to store in (https://host:2379,...)")
	f.StringVar(&o.etcd.CAFile, "etcd-cafile", "", "file with the CA that signs etcd's certificates")
	f.StringVar(&o.etcd.CertFile, "etcd-certfile", "", "file with the client certificate for etcd")
	f.StringVar(&o.etcd.KeyFile, "etcd-keyfile", "", "file with the key of that certificate")
	f.DurationVar(&c.CompactEvery, "etcd-compaction-interval", 5*time.Minute, "interval between compactions: how long old revisions are kept; 0: forever")

	f.DurationVar(&c.EventTTL, "event-ttl", time.Hour, "how long an event is kept after it last happened; 0: forever")

	f.StringVar(&o.bindAddress, "bind-address", "0.0.0.0", "address to listen on")
	f.IntVar(&o.port, "secure-port", 6443, "port to listen on")
	f.StringVar(&o.advertise, "advertise-address", "", "address at which the cluster's machines reach this server (default: --bind-address, or the address of the default route)")
	o.serving.AddFlags(f)

	encryptionFlags(f, &o.encryption)
	o.audit.flags(f)

	f.StringVar(&o.kubeletCA, "kubelet-certificate-authority", "", "file with the CA that signs kubelets' serving certificates")
	f.StringVar(&o.kubeletCert, "kubelet-client-certificate", "", "file with the client certificate for kubelets")
	f.StringVar(&o.kubeletKey, "kubelet-client-key", "", "file with the key of that certificate")
	f.DurationVar(&o.nodes.Timeout, "kubelet-timeout", 5*time.Second, "timeout for connecting to a kubelet")

	daemon.ParsedSliceVar(f, &o.nodes.AddressTypes, "kubelet-preferred-address-types", []string{"InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS"}, addressType, "types of node addresses to use, in order of preference")

	f.BoolVar(&o.nodes.Anywhere, "allow-proxy-to-local-addresses", false, "allow the proxy subresources, and the proxy to aggregated API servers, to reach loopback and link-local addresses, and this server's own")
	daemon.ParsedVar(f, &c.ServiceCIDR, "service-cluster-ip-range", "10.96.0.0/16", parseServiceCIDR, "CIDR of Services' cluster IPs")
	daemon.ParsedVar(f, &o.kinds.NodePorts, "service-node-port-range", "30000-32767", parsePorts, "range of Services' node ports")

	o.access.flags(f)
	o.admission.Add(f, &c.Admission)
	o.upstream.flags(f)
	o.proxy.flags(f, &c.Aggregation)
	f.BoolVar(&c.Profiling, "profiling", true, "serve profiles of this process at /debug/pprof to authorized users (system:masters)")
	f.BoolVar(&o.fairness, "enable-priority-and-fairness", true, "let FlowSchemas and PriorityLevelConfigurations divide the seats of the server; without it, reads and writes have separate limits")
	f.IntVar(&c.MaxReads, "max-requests-inflight", 400, "maximum number of non-mutating requests in flight; with --enable-priority-and-fairness, the sum of this and --max-mutating-requests-inflight is the number of seats; 0: no limit")
	f.IntVar(&c.MaxWrites, "max-mutating-requests-inflight", 200, "maximum number of mutating requests in flight; see --max-requests-inflight; 0: no limit")
	f.IntVar(&c.MaxLongRunning, "max-long-running-requests-per-user", 1000, "maximum number of watches and streams of one user, or of the service accounts of one namespace; ten times as many of a node; 0: no limit")
	f.Int64Var(&c.MaxWriteRate, "max-write-bytes-per-user", 2<<20, "maximum number of bytes a second that one user, or the service accounts of one namespace, may write to the store, sixteen times as many at once; 0: no limit")
	f.DurationVar(&c.RequestTimeout, "request-timeout", defaultRequestTimeout, "timeout for non-streaming requests")
	f.DurationVar(&c.ShutdownDelay, "shutdown-delay-duration", 0, "how long to keep serving after readiness begins to fail")
	f.StringVar(&c.Identity, "hostname-override", "", "name of this server among several (default: the host's name)")
}

// complete fills the configuration from the other flags and the files that they
// name, and validates it.
func (o *options) complete(log *slog.Logger) (err error) {
	if err := o.parse(); err != nil {
		return err
	}
	if err := o.admission.Complete(&o.cfg.Admission); err != nil {
		return err
	}
	if err := o.authn.parse(log); err != nil {
		return err
	}
	o.cfg.Authn = o.authn.build()
	if err := o.servingFiles(); err != nil {
		return err
	}
	if o.cfg.TLS, err = o.serving.TLS(); err != nil {
		return err
	}
	o.authn.requestClientCertificates(o.cfg.TLS)
	return nil
}

// parse validates the flags. Its error names every invalid one.
func (o *options) parse() error {
	var errs []error
	if o.dataDir == "" && len(o.etcd.Servers) == 0 {
		errs = append(errs, errors.New("no store: give --data-dir (one machine) or --etcd-servers (an etcd cluster)"))
	}
	if o.dataDir != "" && len(o.etcd.Servers) > 0 {
		errs = append(errs, errors.New("--data-dir and --etcd-servers are mutually exclusive"))
	}
	errs = append(errs, validateEncryption(&o.encryption), o.audit.parse())
	if (o.serving.CertFile == "") != (o.serving.KeyFile == "") {
		errs = append(errs, errors.New("--tls-cert-file and --tls-private-key-file belong together"))
	}
	if a, err := netip.ParseAddr(o.advertise); o.advertise != "" && (err != nil || !reachable(a)) {
		errs = append(errs, fmt.Errorf("--advertise-address=%s is not an IP address that other machines can reach", o.advertise))
	}
	if o.cfg.CompactEvery == 0 {
		o.cfg.CompactEvery = -1
	}
	return errors.Join(append(errs, o.access.parse())...)
}

func addressType(text string) (corev1.NodeAddressType, error) {
	return corev1.NodeAddressType(text), nil
}

func parseServiceCIDR(text string) (netip.Prefix, error) {
	if strings.Contains(text, ",") {
		return netip.Prefix{}, errors.New("dual-stack is not supported: give one range, IPv4 or IPv6")
	}
	return netip.ParsePrefix(text)
}

// parsePorts parses an inclusive range such as 30000-32767.
func parsePorts(text string) (registry.PortRange, error) {
	first, last, ok := strings.Cut(text, "-")
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if !ok || errA != nil || errB != nil || a == 0 || a > b {
		return registry.PortRange{}, fmt.Errorf("%q is not a range like 30000-32767", text)
	}
	return registry.PortRange{First: int32(a), Last: int32(b)}, nil
}

// run opens the listener, the store and the audit log, and serves until ctx
// ends. It closes all of them before it returns.
func (o *options) run(ctx context.Context, log *slog.Logger) (err error) {
	if err := o.complete(log); err != nil {
		return err
	}
	c, s := &o.cfg, scheme.New()
	c.Scheme, c.Log, c.Registry = s, log, daemon.Metrics()
	if c.Listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(o.bindAddress, strconv.Itoa(o.port))); err != nil {
		return err
	}
	defer c.Listener.Close()
	if c.Advertise, err = o.advertised(c.Listener); err != nil {
		return err
	}
	o.encryption.Log, o.encryption.Registry, o.encryption.Identity = log, c.Registry, c.Identity
	keys, err := openKeys(ctx, o.encryption)
	if err != nil {
		return err
	}
	disk, err := o.store(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	c.Encryption, c.Store, c.Snapshot = keys, keys.Wrap(disk), disk.Snapshot
	var closeRecord func() error
	if c.Audit, closeRecord, err = o.audit.build(s, c.Registry, log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeRecord()) }()
	nodes, err := o.nodeProxy(c.Advertise, log)
	if err != nil {
		return err
	}
	defer nodes.Close()
	c.Admission.Webhooks.Dial = nodes.Dial
	if err := o.proxy.build(nodes, &c.Aggregation); err != nil {
		return err
	}
	o.access.Webhook.Registry = c.Registry
	if c.Access, err = NewAccess(o.access.AccessConfig); err != nil {
		return err
	}
	kinds := o.kindsConfig(nodes)
	c.Kinds = registry.Kinds(s, kinds)
	c.Repair = func(ctx context.Context, b registry.Backend) error { return registry.RepairServices(ctx, s, b, kinds) }
	c.OpenAPI = &apiopenapi.Documents{V2: openapi.V2, V3: openapi.V3, Paths: openapi.Paths}
	c.NoPriorities = !o.fairness
	c.Memory = budget.Share(debug.SetMemoryLimit(-1))
	server, err := New(*c)
	if err != nil {
		return err
	}
	return server.runNotifying(ctx)
}

// kindsConfig returns what the kinds need from the server.
func (o *options) kindsConfig(nodes *nodeproxy.Proxy) registry.Config {
	k, c := o.kinds, &o.cfg
	k.Access, k.Store, k.ServiceCIDR, k.Now, k.Streams = c.Access, c.Store, c.ServiceCIDR, time.Now, nodes.Streams()
	k.Tokens, k.TokenAudiences, k.Identify, k.MaxTokenLife = c.Authn.Issuer, c.Authn.Audiences, c.Authn.Tokens, o.authn.maxToken
	k.DenyPrivileged, k.Components = !o.upstream.allowPrivileged, components(c.Store)
	return k
}

// runNotifying is Run with notifications to systemd: READY=1 once the server is
// ready, watchdog keep-alives while it is live, STOPPING=1 when ctx ends.
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

// closingStore is a store that the caller of options.store must close.
type closingStore interface {
	storage.Store
	Snapshot(context.Context) (io.ReadCloser, error)
	Close() error
}

// store opens the store: an embedded etcd if --data-dir is set, else a client
// of the etcd cluster.
func (o *options) store(ctx context.Context, log *slog.Logger) (closingStore, error) {
	if o.dataDir != "" {
		return etcd.Embed(ctx, etcd.EmbeddedConfig{Dir: o.dataDir, Log: log})
	}
	o.etcd.Log = log
	return etcd.Open(ctx, o.etcd)
}

// reachable reports whether the address may be advertised: the endpoints of a
// Service cannot be loopback or unspecified addresses.
func reachable(a netip.Addr) bool { return !a.IsUnspecified() && !a.IsLoopback() }

// advertised returns the address and port at which other machines reach this
// server: --advertise-address, --bind-address, or the source address of the
// default route.
func (o *options) advertised(l net.Listener) (netip.AddrPort, error) {
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	for _, text := range []string{o.advertise, o.bindAddress} {
		if a, err := netip.ParseAddr(text); err == nil && reachable(a) {
			return netip.AddrPortFrom(a.Unmap(), port), nil
		}
	}
	// Connecting a UDP socket sends no packet; it makes the kernel choose the
	// source address.
	conn, err := net.Dial("udp", "192.0.2.1:9")
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("this machine has no default route: set --advertise-address: %w", err)
	}
	defer conn.Close()
	return netip.AddrPortFrom(conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), port), nil
}

// ownAddresses returns every address and port at which this server is reachable
// from this machine: the advertised one and those of the interfaces that it
// listens on.
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

// nodeProxy returns the proxy for connections to kubelets, pods and Services.
// The caller closes it.
func (o *options) nodeProxy(own netip.AddrPort, log *slog.Logger) (*nodeproxy.Proxy, error) {
	o.nodes.Own, o.nodes.Log = o.ownAddresses(own), log
	p, err := nodeproxy.FromFiles(o.nodes, o.kubeletCA, o.kubeletCert, o.kubeletKey)
	if err != nil {
		return nil, fmt.Errorf("reach kubelets: %w", err)
	}
	return p, nil
}
