package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"podium/pkg/backoff"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/client/revocation"
	"podium/pkg/daemon"
	"podium/pkg/daemon/memory"
	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/hardware"
	"podium/pkg/kubelet/images"
	"podium/pkg/kubelet/logs"
	"podium/pkg/kubelet/node"
	"podium/pkg/kubelet/nodelogs"
	"podium/pkg/kubelet/oom"
	"podium/pkg/kubelet/references"
	"podium/pkg/kubelet/sysctls"
	"podium/pkg/kubelet/userns"
)

// The values of --cgroup-driver.
const (
	driverAuto     = ""
	driverCgroupfs = "cgroupfs"
	driverSystemd  = "systemd"
	driverNone     = "none"
)

// The values of --enforce-node-allocatable.
const (
	enforcePods = "pods"
	enforceNone = "none"
)

// runtimeWait is how long the kubelet waits for the runtime to answer.
const runtimeWait = 2 * time.Minute

// lockWait is how long the kubelet waits for another to release its directory.
const lockWait = 10 * time.Second

// options are the flags; the config file has them in camelCase. Most flags set
// fields of Config directly; config and run make the rest of Config from the others.
type options struct {
	daemon.Options
	cfg         Config
	credentials credentials
	access      accessFlags
	eviction    evictionFlags
	placement   placementFlags
	manifests   manifestFlags
	tls         daemon.Serving
	file        file
	settings    map[string]any // the values of all flags, for /configz

	endpoint, cgroupDriver, cgroupRoot                     string
	bindAddress, healthzAddress, cloudProvider, logMaxSize string
	nodeIPs, taints, unsafeSysctls, enforce                []string
	kubeReserved, systemReserved                           map[string]string
	port, healthzPort, leaseSeconds                        int
	providerFile, providerDir                              string
	podPIDs                                                int64
	requestTimeout                                         time.Duration
	serialPulls, systemLogs, logQuery, profiling           bool
}

// heapGrowth is between the runtime's 100, with which a kubelet of 110 pods takes 7 MB more than
// with 50, and 50, with which one of 30 pods takes a fifth more CPU time.
const heapGrowth = 75

// NewCommand returns the kubelet command.
func NewCommand() *cobra.Command {
	o := &options{file: file{ConfigMapAndSecretChangeDetectionStrategy: string(references.Watch)}}
	cmd := o.Command("kubelet", "Run the pods that are bound to the node", &o.file, func(cmd *cobra.Command) error {
		o.settings = daemon.Settings(cmd.Flags())
		if err := o.file.addTo(o.settings); err != nil {
			return err
		}
		memory.CollectAt(heapGrowth)
		return o.run(cmd.Context(), o.Logger(cmd.ErrOrStderr()))
	})
	o.addFlags(cmd)
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	fs, c := cmd.Flags(), &o.cfg
	fs.SortFlags = false
	o.AddFlags(fs)
	o.credentials.addFlags(fs)
	fs.StringVar(&c.NodeName, "hostname-override", "", "name of the node; the hostname by default")
	fs.StringSliceVar(&o.nodeIPs, "node-ip", nil, "addresses of the node; by default that of the interface with the default route")
	fs.StringToStringVar(&c.Labels, "node-labels", nil, "labels of the node, as key=value,...")
	fs.StringVar(&o.cloudProvider, "cloud-provider", "", "external: a cloud-controller-manager initializes the node; --node-ip then names the addresses that it may report")
	fs.StringSliceVar(&o.taints, "register-with-taints", nil, "taints to register the node with, as key=value:effect")
	fs.BoolVar(&c.Register, "register-node", true, "register the node with the API server")
	fs.IntVar(&c.MaxPods, "max-pods", 110, "maximum number of pods on the node")
	fs.StringToStringVar(&o.kubeReserved, "kube-reserved", nil, "resources reserved for the cluster's daemons, as cpu=200m,memory=150Mi,pid=1000; without pid here and in --system-reserved, a twentieth of the node's process ids is reserved")
	fs.StringToStringVar(&o.systemReserved, "system-reserved", nil, "resources reserved for the rest of the system")
	fs.IntVar(&o.leaseSeconds, "node-lease-duration-seconds", 40, "duration of the node's Lease; when it is not renewed for so long, the node is considered unhealthy")
	fs.DurationVar(&c.ReportPeriod, "node-status-report-frequency", 5*time.Minute, "how often to write the node's status when nothing changes")

	fs.StringVar(&c.RootDir, "root-dir", "/var/lib/kubelet", "directory of the kubelet's files, such as volumes")
	fs.StringVar(&c.PodLogsDir, "pod-logs-dir", "/var/log/pods", "directory of the containers' logs")
	fs.StringVar(&c.LogLinksDir, "container-logs-dir", "/var/log/containers", "directory of links to the containers' logs, for programs that collect them; if empty, there are none")
	fs.StringVar(&o.endpoint, "container-runtime-endpoint", "unix:///run/containerd/containerd.sock", "endpoint of the container runtime (CRI v1)")
	fs.DurationVar(&o.requestTimeout, "runtime-request-timeout", 2*time.Minute, "timeout of runtime requests")
	fs.StringVar(&c.ImageGC.Keep, "pod-infra-container-image", "", "image of the pod sandboxes, as in the runtime's configuration; the image garbage collector never removes it")
	fs.StringVar(&o.cgroupDriver, "cgroup-driver", driverAuto, "cgroup driver, as in the runtime's configuration: cgroupfs or systemd; none: create no pod cgroups; by default that of the runtime, else cgroupfs")
	fs.StringVar(&o.cgroupRoot, "cgroup-root", "", "parent of the kubepods cgroup; by default the root cgroup")
	fs.Int64Var(&o.podPIDs, "pod-max-pids", 0, "maximum number of process ids (processes and threads) of a pod; 0: 4096, but at most a quarter of what all pods may have; -1: as many as all pods may have")
	fs.StringSliceVar(&o.enforce, "enforce-node-allocatable", []string{enforcePods}, "pods: limit all pods together to the node's allocatable CPU, memory and process ids; none: set no limit")
	o.eviction.addFlags(fs)
	o.placement.addFlags(fs)
	o.manifests.addFlags(fs)

	fs.StringSliceVar(&c.ClusterDNS, "cluster-dns", nil, "addresses of the cluster DNS servers")
	fs.StringVar(&c.ClusterDomain, "cluster-domain", "cluster.local", "DNS domain of the cluster")
	fs.StringVar(&c.ResolvConf, "resolv-conf", "/etc/resolv.conf", "the host's resolver configuration, for pods that use it; empty: none")
	fs.BoolVar(&c.SeccompDefault, "seccomp-default", true, "use the runtime's default seccomp profile for containers without a profile")
	fs.BoolVar(&c.AllowNetRaw, "allow-net-raw", false, "leave containers the capability NET_RAW, as upstream does; otherwise only those that add it have it, and pings that use ICMP sockets work without")
	fs.StringSliceVar(&o.unsafeSysctls, "allowed-unsafe-sysctls", nil, "namespaced sysctls that pods may set besides the safe ones: names, or patterns like kernel.msg*")
	fs.DurationVar(&c.RefreshPeriod, "sync-frequency", time.Minute, "how often to refresh the contents of configMap, secret, projected and downwardAPI volumes")
	fs.DurationVar(&c.DrainTimeout, "endpoint-drain-timeout", 5*time.Second, "how long a deleted pod waits for the proxies to stop sending it traffic before its containers are stopped; 0: do not wait")
	fs.BoolVar(&o.serialPulls, "serialize-image-pulls", false, "pull one image at a time")
	fs.IntVar(&c.ParallelPulls, "max-parallel-image-pulls", 3, "maximum number of image pulls at a time")
	fs.StringVar((*string)(&c.VerifyImages.Policy), "image-pull-credentials-verification-policy", string(images.NeverVerifyPreloadedImages),
		"which images on the node pods may use without credentials for them: NeverVerify (all), NeverVerifyPreloadedImages (those that the kubelet did not pull), NeverVerifyAllowlistedImages or AlwaysVerify (none)")
	fs.StringSliceVar(&c.VerifyImages.Allowlist, "preloaded-images-verification-allowlist", nil, "images of the policy NeverVerifyAllowlistedImages: full names without tag and digest, or prefixes that end with /*")
	fs.StringVar(&o.providerFile, "image-credential-provider-config", "", "file of kind CredentialProviderConfig: the programs that know credentials for registries, and the images for which they are run")
	fs.StringVar(&o.providerDir, "image-credential-provider-bin-dir", "", "directory of the programs of --image-credential-provider-config")
	fs.StringVar(&o.logMaxSize, "container-log-max-size", "10Mi", "size at which to rotate a container log")
	fs.IntVar(&c.LogMaxFiles, "container-log-max-files", 5, "maximum number of log files of a container")
	fs.IntVar(&c.ImageGC.High, "image-gc-high-threshold", 85, "percentage of disk usage at which image garbage collection starts; 100: never")
	fs.IntVar(&c.ImageGC.Low, "image-gc-low-threshold", 80, "percentage of disk usage at which image garbage collection stops")
	fs.DurationVar(&c.ImageGC.MinAge, "minimum-image-ttl-duration", 2*time.Minute, "minimum age of an unused image before it is garbage-collected")

	fs.StringVar(&o.bindAddress, "address", "0.0.0.0", "address of the server")
	fs.StringVar(&o.bindAddress, "bind-address", "0.0.0.0", "the same as --address")
	fs.IntVar(&o.port, "port", 10250, "port of the server (HTTPS): logs, exec, attach, port-forward, metrics; 0: disabled")
	fs.BoolVar(&o.systemLogs, "enable-system-log-handler", false, "serve the files below /var/log at /logs/, to users with access to nodes/log")
	fs.BoolVar(&o.logQuery, "enable-system-log-query", false, "answer queries for the logs of the node's services at /logs/?query=SERVICE; needs --enable-system-log-handler")
	fs.BoolVar(&o.profiling, "enable-profiling-handler", false, "serve profiles of this process at /debug/pprof/, to users with access to nodes/proxy")
	fs.StringVar(&o.healthzAddress, "healthz-bind-address", "127.0.0.1", "address of the health endpoint (plain HTTP)")
	fs.IntVar(&o.healthzPort, "healthz-port", 10248, "port of the health endpoint; 0: disabled")
	o.tls.AddClientCA(fs, "CA of client certificates; without it the server accepts only bearer tokens")
	o.tls.AddFlags(fs)
	o.access.addFlags(fs)
}

// validate returns all invalid flag values, joined.
func (o *options) validate() error {
	var errs []error
	if o.credentials.kubeconfig == "" {
		errs = append(errs, errors.New("--kubeconfig is needed"))
	}
	if err := o.access.validate(); err != nil {
		errs = append(errs, err)
	}
	if o.credentials.rotateServer && o.tls.CertFile != "" {
		errs = append(errs, errors.New("--rotate-server-certificates and --tls-cert-file exclude each other"))
	}
	switch o.cgroupDriver {
	case driverAuto, driverCgroupfs, driverSystemd, driverNone:
	default:
		errs = append(errs, fmt.Errorf("--cgroup-driver %q: want %s, %s or %s", o.cgroupDriver, driverCgroupfs, driverSystemd, driverNone))
	}
	for _, ip := range o.cfg.ClusterDNS {
		if net.ParseIP(ip) == nil {
			errs = append(errs, fmt.Errorf("--cluster-dns %q is not an address", ip))
		}
	}
	if !slices.Equal(o.enforce, []string{enforcePods}) && !slices.Equal(o.enforce, []string{enforceNone}) {
		errs = append(errs, fmt.Errorf("--enforce-node-allocatable %q: want %s or %s; the cgroups of the system's and the cluster's daemons are systemd's", o.enforce, enforcePods, enforceNone))
	}
	if _, _, err := o.eviction.thresholds(); err != nil {
		errs = append(errs, err)
	}
	if err := o.placement.validate(); err != nil {
		errs = append(errs, err)
	}
	if o.cfg.MaxPods < 1 {
		errs = append(errs, fmt.Errorf("--max-pods is %d: at least 1 is needed", o.cfg.MaxPods))
	}
	if o.leaseSeconds < 4 {
		errs = append(errs, fmt.Errorf("--node-lease-duration-seconds is %d: at least 4 are needed", o.leaseSeconds))
	}
	if o.cfg.LogMaxFiles < 2 {
		errs = append(errs, fmt.Errorf("--container-log-max-files is %d: at least 2 are needed", o.cfg.LogMaxFiles))
	}
	if err := o.cfg.VerifyImages.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--image-pull-credentials-verification-policy, --preloaded-images-verification-allowlist: %w", err))
	}
	if (o.providerFile == "") != (o.providerDir == "") {
		errs = append(errs, errors.New("--image-credential-provider-config and --image-credential-provider-bin-dir need each other"))
	}
	if o.logQuery && !o.systemLogs {
		errs = append(errs, errors.New("--enable-system-log-query needs --enable-system-log-handler"))
	}
	if o.cfg.ImageGC.Low >= o.cfg.ImageGC.High {
		errs = append(errs, fmt.Errorf("--image-gc-low-threshold %d must be below --image-gc-high-threshold %d", o.cfg.ImageGC.Low, o.cfg.ImageGC.High))
	}
	if err := o.file.validate(); err != nil {
		errs = append(errs, err)
	}
	if _, err := o.manifests.manifests(&o.file, o.ConfigFile); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// run runs the kubelet until ctx ends or a part fails.
func (o *options) run(ctx context.Context, log *slog.Logger) error {
	if err := o.validate(); err != nil {
		return err
	}
	cfg, err := o.config(log)
	if err != nil {
		return err
	}
	if o.systemLogs {
		root, err := os.OpenRoot("/var/log")
		if err != nil {
			return fmt.Errorf("--enable-system-log-handler: %w", err)
		}
		defer root.Close()
		cfg.NodeLogs = logs.FS(root)
		if o.logQuery {
			cfg.LogQuery = &nodelogs.Handler{Journal: nodelogs.Journalctl, Files: cfg.NodeLogs, Now: time.Now}
		}
	}
	if o.profiling {
		cfg.Profiles = daemon.Profiles()
	}
	unlock, err := lockDir(ctx, cfg.RootDir)
	if err != nil {
		return err
	}
	defer unlock()
	id, err := o.credentials.identify(ctx, cfg.NodeName, cfg.Registry, log)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	if err := o.secure(ctx, cfg, id, g); err != nil {
		return err
	}
	conn, err := o.connect(ctx, cfg, g)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := o.inspect(ctx, cfg, conn); err != nil {
		return err
	}
	o.start(ctx, cfg, g)
	daemon.NotifyReady()
	defer daemon.NotifyStopping()
	return g.Wait()
}

// connect connects to the container runtime and waits until it answers, at most
// runtimeWait. The caller closes the connection.
func (o *options) connect(ctx context.Context, cfg *Config, g *errgroup.Group) (*cri.Conn, error) {
	wait, cancel := context.WithTimeout(ctx, runtimeWait)
	defer cancel()
	conn, err := cri.Connect(wait, o.endpoint, cri.Options{RequestTimeout: o.requestTimeout, Observe: newRuntimeMetrics(cfg.Registry).observe})
	if err != nil {
		return nil, err
	}
	kills := oom.New()
	g.Go(func() error { kills.Follow(ctx, oom.KernelLog, cfg.Log); return nil })
	cfg.Runtime, cfg.Images, cfg.RuntimeName = kills.Explain(conn.Runtime), conn.Images, conn.Version.RuntimeName
	return conn, nil
}

// inspect sets what depends on the machine and on its runtime.
func (o *options) inspect(ctx context.Context, cfg *Config, conn *cri.Conn) (err error) {
	version := conn.Version.RuntimeName + "://" + conn.Version.RuntimeVersion
	cfg.Log.Info("container runtime", "version", version, "endpoint", o.endpoint)
	if cfg.Machine, err = thisMachine(cfg.NodeName, o.nodeIPs, cfg.RootDir, version); err != nil {
		return err
	}
	if cfg.Machine.Host.Sysctls, err = sysctls.New(cfg.Machine.Info.KernelVersion, o.unsafeSysctls); err != nil {
		return fmt.Errorf("--allowed-unsafe-sysctls: %w", err)
	}
	if cfg.Machine.UserIDs, err = userns.NodeRange(ctx, cfg.MaxPods); err != nil {
		return err
	}
	images := imageDir(ctx, conn.Images, cfg.RootDir)
	if cfg.ImageGC.High < 100 {
		cfg.ImageGC.Usage = func() (uint64, uint64, error) { return diskUsage(images) }
	}
	if cfg.Machine.Node, err = o.eviction.monitor(cfg.RootDir, images); err != nil {
		return err
	}
	cfg.AllocatableReservation = o.eviction.allocatableReservation(cfg.Reserved, cfg.Machine.Capacity)
	if cfg.Placement, err = o.placement.placement(cfg, cfg.AllocatableReservation, hardware.Kernel()); err != nil {
		return err
	}
	bounds, err := o.processIDs(cfg)
	if err != nil {
		return err
	}
	cfg.Cgroups, err = o.cgroups(ctx, cfg, bounds)
	return err
}

// start starts the kubelet and what serves its process as goroutines of g.
func (o *options) start(ctx context.Context, cfg *Config, g *errgroup.Group) {
	g.Go(func() error { return Run(ctx, *cfg) })
	g.Go(func() error { return kubeconfig.Follow(ctx, cfg.Client, o.credentials.kubeconfig, cfg.Log) })
	if o.healthzPort != 0 {
		g.Go(func() error {
			return daemon.Serve(ctx, daemon.ServeConfig{
				Address: net.JoinHostPort(o.healthzAddress, strconv.Itoa(o.healthzPort)), Handler: cfg.Health.Handler(), Log: cfg.Log,
			})
		})
	}
	g.Go(func() error { return daemon.Watchdog(ctx, cfg.Health.Live) })
}

// secure sets up the client certificate and the serving certificate.
func (o *options) secure(ctx context.Context, cfg *Config, id *identity, g *errgroup.Group) error {
	cfg.Client = id.client
	if id.keep != nil && o.credentials.rotate {
		g.Go(func() error { return id.keep.Run(ctx) })
	}
	if o.port == 0 {
		return nil
	}
	if o.credentials.rotateServer {
		s := o.credentials.serving(id, cfg.Registry, cfg.Log)
		o.tls.Certificate, cfg.OnNode = s.certificate, s.observe
		g.Go(func() error { return s.keep.Run(ctx) })
	}
	cfg.Settings = o.settings
	if err := o.guard(ctx, cfg, id, g); err != nil {
		return err
	}
	var err error
	cfg.TLS, err = o.tls.TLS()
	return err
}

// revokedFile is the copy of the certificate revocation list below --root-dir.
const revokedFile = "revoked.crl"

// guard sets up authentication and authorization of the kubelet's server.
// Without --client-ca-file the server accepts no client certificates.
func (o *options) guard(ctx context.Context, cfg *Config, id *identity, g *errgroup.Group) error {
	if o.tls.ClientCA == "" {
		cfg.Access = o.access.delegate(id.client, nil)
		return nil
	}
	revoked, err := revocation.NewFollower(revocation.Config{
		Client: id.client, ClientCA: o.tls.ClientCA, File: filepath.Join(cfg.RootDir, revokedFile), Log: cfg.Log,
	})
	if err != nil {
		return err
	}
	cfg.Access, cfg.Connections = o.access.delegate(id.client, revoked.Present), &revocation.Connections{}
	g.Go(func() error { return revoked.Run(ctx) })
	g.Go(func() error { cfg.Connections.Run(ctx, revoked.List); return nil })
	return nil
}

// config returns the configuration as far as the flags determine it. run adds
// what depends on the machine and on the runtime.
func (o *options) config(log *slog.Logger) (*Config, error) {
	cfg := o.cfg
	cfg.Log, cfg.Registry, cfg.Health = log, daemon.Metrics(), &daemon.Health{}
	cfg.LeaseDuration = time.Duration(o.leaseSeconds) * time.Second
	cfg.Address, cfg.Port = net.JoinHostPort(o.bindAddress, strconv.Itoa(o.port)), int32(o.port)
	if o.serialPulls {
		cfg.ParallelPulls = 1
	}
	if most := o.file.CrashLoopBackOff.MaxContainerRestartPeriod; most != nil {
		cfg.MaxRestartDelay = most.Duration
	}
	if o.placement.reservedCPUs == "" {
		o.placement.reservedCPUs = o.file.ReservedSystemCPUs
	}
	cfg.Shutdown = o.file.shutdownPeriods()
	var err error
	if cfg.References, err = references.ParseStrategy(o.file.ConfigMapAndSecretChangeDetectionStrategy); err != nil {
		return nil, err
	}
	if cfg.Static, err = o.manifests.manifests(&o.file, o.ConfigFile); err != nil {
		return nil, err
	}
	if cfg.NodeName, err = nodeName(cfg.NodeName); err != nil {
		return nil, err
	}
	if cfg.Taints, err = parseTaints(o.taints); err != nil {
		return nil, err
	}
	switch o.cloudProvider {
	case "":
	case "external":
		cfg.Cloud = &node.Cloud{ProvidedIPs: o.nodeIPs}
	default:
		return nil, fmt.Errorf("--cloud-provider %q: there is only external", o.cloudProvider)
	}
	if cfg.Reserved, err = parseReserved(o.kubeReserved, o.systemReserved); err != nil {
		return nil, err
	}
	o.placement.reserve(cfg.Reserved)
	if err := o.imageProviders(&cfg); err != nil {
		return nil, err
	}
	size, err := resource.ParseQuantity(o.logMaxSize)
	if err != nil {
		return nil, fmt.Errorf("--container-log-max-size: %w", err)
	}
	cfg.LogMaxSize = size.Value()
	if err := os.MkdirAll(cfg.RootDir, 0o750); err != nil {
		return nil, err
	}
	// The kernel resolves the paths of mounts from its own working directory.
	for _, dir := range []*string{&cfg.RootDir, &cfg.PodLogsDir, &cfg.LogLinksDir} {
		if *dir == "" {
			continue
		}
		if *dir, err = filepath.Abs(*dir); err != nil {
			return nil, err
		}
	}
	cfg.MaxEvictionGrace = time.Duration(o.eviction.maxGrace) * time.Second
	cfg.Plugins = true
	return &cfg, nil
}

// lockDir locks the directory against a second kubelet. It waits up to lockWait
// for another kubelet to exit.
func lockDir(ctx context.Context, dir string) (unlock func() error, err error) {
	f, err := os.OpenFile(filepath.Join(dir, "kubelet.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(lockWait); ; {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return f.Close, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("--root-dir %s is in use by another kubelet: %w", dir, err), f.Close())
		}
		_ = backoff.Sleep(ctx, 100*time.Millisecond) // an ended ctx is seen above
	}
}

// nodeName returns name as the name of a Node, in lower case; the hostname if
// name is empty.
func nodeName(name string) (string, error) {
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return "", err
		}
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "" {
		return "", errors.New("the host has no name: give one with --hostname-override")
	}
	return name, nil
}
