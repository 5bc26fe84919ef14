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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/client/kubeconfig"
	"podium/pkg/client/revocation"
	"podium/pkg/daemon"
	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/images"
	"podium/pkg/kubelet/logs"
	"podium/pkg/kubelet/node"
	"podium/pkg/kubelet/oom"
	"podium/pkg/kubelet/pids"
	"podium/pkg/kubelet/resources"
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

// runtimeWait is how long the kubelet waits for a runtime that is not up yet.
const runtimeWait = 2 * time.Minute

// lockWait is how long it waits for another one to let go of its files.
const lockWait = 10 * time.Second

// options are the flags; the config file has them in camelCase.
type options struct {
	daemon.Options `json:"-"`

	credentials credentials
	access      accessFlags
	tls         daemon.Serving
	settings    map[string]any // as flags and file have them

	hostname, rootDir, podLogsDir                                 string
	endpoint, cgroupDriver, cgroupRoot                            string
	clusterDomain, resolvConf, infraImage                         string
	bindAddress, healthzAddress, cloudProvider                    string
	nodeIPs, clusterDNS, taints, unsafeSysctls                    []string
	labels, kubeReserved, systemReserved                          map[string]string
	port, healthzPort, maxPods, parallelPulls, logMaxFiles        int
	gcHigh, gcLow                                                 int
	podPIDs                                                       int64
	enforce, evictionHard                                         []string
	pressureTransition                                            time.Duration
	register, seccompDefault, serialPulls, systemLogs             bool
	allowNetRaw                                                   bool
	verifyPolicy                                                  string
	verifyAllowlist                                               []string
	logMaxSize                                                    string
	leaseSeconds                                                  int
	reportPeriod, syncPeriod, drainTimeout, requestTimeout, gcAge time.Duration
}

// NewCommand is the daemon's command line.
func NewCommand() *cobra.Command {
	o := &options{}
	cmd := o.Command("kubelet", "Runs the pods that are bound to its node", nil, func(cmd *cobra.Command) error {
		o.settings = daemon.Settings(cmd.Flags())
		return o.run(cmd.Context(), o.Logger(cmd.ErrOrStderr()))
	})
	o.addFlags(cmd)
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	o.AddFlags(fs)
	o.credentials.addFlags(fs)
	fs.StringVar(&o.hostname, "hostname-override", "", "name of the node; default: the host's name")
	fs.StringSliceVar(&o.nodeIPs, "node-ip", nil, "addresses of the node; default: that of the interface with the default route")
	fs.StringToStringVar(&o.labels, "node-labels", nil, "labels of the node, as key=value,...")
	fs.StringVar(&o.cloudProvider, "cloud-provider", "", "external: cloud-controller-manager says which machine the node is and lets pods on it; with --node-ip that is the address it takes")
	fs.StringSliceVar(&o.taints, "register-with-taints", nil, "taints of the node when it is registered first, as key=value:effect")
	fs.BoolVar(&o.register, "register-node", true, "make the Node object if there is none")
	fs.IntVar(&o.maxPods, "max-pods", 110, "how many pods the node takes")
	fs.StringToStringVar(&o.kubeReserved, "kube-reserved", nil, "what the cluster's daemons need, as cpu=200m,memory=150Mi,pid=1000; without pid here and in --system-reserved a twentieth of the node's process ids is reserved")
	fs.StringToStringVar(&o.systemReserved, "system-reserved", nil, "what the rest of the system needs")
	fs.IntVar(&o.leaseSeconds, "node-lease-duration-seconds", 40, "how long the node is believed to live after its last sign of life")
	fs.DurationVar(&o.reportPeriod, "node-status-report-frequency", 5*time.Minute, "how often the node's status is written when nothing changes")

	fs.StringVar(&o.rootDir, "root-dir", "/var/lib/kubelet", "directory of the kubelet's files: volumes above all")
	fs.StringVar(&o.podLogsDir, "pod-logs-dir", "/var/log/pods", "directory of the containers' logs")
	fs.StringVar(&o.endpoint, "container-runtime-endpoint", "unix:///run/containerd/containerd.sock", "socket of the container runtime (CRI v1)")
	fs.DurationVar(&o.requestTimeout, "runtime-request-timeout", 2*time.Minute, "how long a call of the runtime may take")
	fs.StringVar(&o.infraImage, "pod-infra-container-image", "", "image of the pods' sandboxes, as the runtime's configuration has it: it is never removed")
	fs.StringVar(&o.cgroupDriver, "cgroup-driver", driverAuto, "who owns the cgroup tree: cgroupfs or systemd, as the runtime's configuration has it; none: pods get no cgroups of their own; default: ask the runtime, else cgroupfs")
	fs.StringVar(&o.cgroupRoot, "cgroup-root", "", "cgroup below which kubepods stands; default: the top")
	fs.Int64Var(&o.podPIDs, "pod-max-pids", 0, "maximum number of process ids (processes and threads) of a pod; 0: 4096, but at most a quarter of what all pods may have; -1: as many as all pods may have")
	fs.StringSliceVar(&o.enforce, "enforce-node-allocatable", []string{enforcePods}, "pods: limit all pods together to the node's allocatable CPU, memory and process ids; none: do not")
	fs.StringSliceVar(&o.evictionHard, "eviction-hard", []string{pids.Signal + "<10%"}, "thresholds below which pods are evicted, as signal<quantity or signal<percentage; the only signal is "+pids.Signal)
	fs.DurationVar(&o.pressureTransition, "eviction-pressure-transition-period", 5*time.Minute, "how long the node reports PIDPressure after it has ended")

	fs.StringSliceVar(&o.clusterDNS, "cluster-dns", nil, "addresses of the cluster's name servers")
	fs.StringVar(&o.clusterDomain, "cluster-domain", "cluster.local", "DNS domain of the cluster")
	fs.StringVar(&o.resolvConf, "resolv-conf", "/etc/resolv.conf", "the host's resolver configuration, for pods that use it; empty: none")
	fs.BoolVar(&o.seccompDefault, "seccomp-default", true, "use the runtime's seccomp profile where a pod says nothing")
	fs.BoolVar(&o.allowNetRaw, "allow-net-raw", false, "leave containers the capability NET_RAW, as upstream does; otherwise only those that add it have it, and pings that use ICMP sockets work without")
	fs.StringSliceVar(&o.unsafeSysctls, "allowed-unsafe-sysctls", nil, "sysctls that pods may set beside the safe ones, which must be namespaced: names, or patterns like kernel.msg*")
	fs.DurationVar(&o.syncPeriod, "sync-frequency", time.Minute, "how often the contents of configMap, secret and other volumes are refreshed")
	fs.DurationVar(&o.drainTimeout, "endpoint-drain-timeout", 5*time.Second, "how long a deleted pod waits for the proxies to take it out of rotation before it is told to stop; 0: not at all")
	fs.BoolVar(&o.serialPulls, "serialize-image-pulls", false, "pull one image at a time")
	fs.IntVar(&o.parallelPulls, "max-parallel-image-pulls", 3, "how many images are pulled at one time")
	fs.StringVar(&o.verifyPolicy, "image-pull-credentials-verification-policy", string(images.NeverVerifyPreloadedImages),
		"images on the node that pods may use without credentials that have pulled them: NeverVerify, NeverVerifyPreloadedImages (those that the kubelet did not pull), NeverVerifyAllowlistedImages or AlwaysVerify")
	fs.StringSliceVar(&o.verifyAllowlist, "preloaded-images-verification-allowlist", nil, "images of the policy NeverVerifyAllowlistedImages: full names without tag and digest, or their beginnings with /* at the end")
	fs.StringVar(&o.logMaxSize, "container-log-max-size", "10Mi", "size at which a container's log is rotated")
	fs.IntVar(&o.logMaxFiles, "container-log-max-files", 5, "how many log files a container keeps")
	fs.IntVar(&o.gcHigh, "image-gc-high-threshold", 85, "percent of the disk in use at which unused images are removed; 100: never")
	fs.IntVar(&o.gcLow, "image-gc-low-threshold", 80, "percent of the disk in use down to which they are removed")
	fs.DurationVar(&o.gcAge, "minimum-image-ttl-duration", 2*time.Minute, "how long an unused image is kept at least")

	fs.StringVar(&o.bindAddress, "address", "0.0.0.0", "address of the server")
	fs.StringVar(&o.bindAddress, "bind-address", "0.0.0.0", "the same as --address")
	fs.IntVar(&o.port, "port", 10250, "port of the server (HTTPS): logs, exec, attach, port-forward, metrics; 0 turns it off")
	fs.BoolVar(&o.systemLogs, "enable-system-log-handler", false, "serve the files below /var/log to those who may get nodes/log, at /logs/")
	fs.StringVar(&o.healthzAddress, "healthz-bind-address", "127.0.0.1", "address of the plain health page")
	fs.IntVar(&o.healthzPort, "healthz-port", 10248, "port of the plain health page; 0 turns it off")
	o.tls.AddClientCA(fs, "authority of the server's clients' certificates; without it only tokens are known")
	o.tls.AddFlags(fs)
	o.access.addFlags(fs)
}

// validate reports everything that is wrong at once.
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
	for _, ip := range o.clusterDNS {
		if net.ParseIP(ip) == nil {
			errs = append(errs, fmt.Errorf("--cluster-dns %q is not an address", ip))
		}
	}
	if !slices.Equal(o.enforce, []string{enforcePods}) && !slices.Equal(o.enforce, []string{enforceNone}) {
		errs = append(errs, fmt.Errorf("--enforce-node-allocatable %q: want %s or %s; the cgroups of the system's and the cluster's daemons are systemd's", o.enforce, enforcePods, enforceNone))
	}
	if _, err := pids.ParseThreshold(o.evictionHard); err != nil {
		errs = append(errs, fmt.Errorf("--eviction-hard %w", err))
	}
	if o.maxPods < 1 {
		errs = append(errs, fmt.Errorf("--max-pods is %d: at least 1 is needed", o.maxPods))
	}
	if o.leaseSeconds < 4 {
		errs = append(errs, fmt.Errorf("--node-lease-duration-seconds is %d: at least 4 are needed", o.leaseSeconds))
	}
	if o.logMaxFiles < 2 {
		errs = append(errs, fmt.Errorf("--container-log-max-files is %d: at least 2 are needed", o.logMaxFiles))
	}
	verify := o.verification()
	if err := verify.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--image-pull-credentials-verification-policy, --preloaded-images-verification-allowlist: %w", err))
	}
	if o.gcLow >= o.gcHigh {
		errs = append(errs, fmt.Errorf("--image-gc-low-threshold %d must be below --image-gc-high-threshold %d", o.gcLow, o.gcHigh))
	}
	return errors.Join(errs...)
}

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
	wait, cancel := context.WithTimeout(ctx, runtimeWait)
	conn, err := cri.Connect(wait, o.endpoint, cri.Options{RequestTimeout: o.requestTimeout, Observe: newRuntimeMetrics(cfg.Registry).observe})
	cancel()
	if err != nil {
		return err
	}
	defer conn.Close()
	kills := oom.New()
	g.Go(func() error { kills.Follow(ctx, oom.KernelLog, log); return nil })
	cfg.Runtime, cfg.Images, cfg.RuntimeName = kills.Explain(conn.Runtime), conn.Images, conn.Version.RuntimeName
	version := conn.Version.RuntimeName + "://" + conn.Version.RuntimeVersion
	log.Info("container runtime", "version", version, "endpoint", o.endpoint)
	if cfg.Machine, err = thisMachine(cfg.NodeName, o.nodeIPs, o.rootDir, version); err != nil {
		return err
	}
	if cfg.Machine.Host.Sysctls, err = sysctls.New(cfg.Machine.Info.KernelVersion, o.unsafeSysctls); err != nil {
		return fmt.Errorf("--allowed-unsafe-sysctls: %w", err)
	}
	if cfg.Machine.UserIDs, err = userns.NodeRange(ctx, o.maxPods); err != nil {
		return err
	}
	bounds, err := o.processIDs(cfg)
	if err != nil {
		return err
	}
	if cfg.Cgroups, err = o.cgroups(ctx, conn.Runtime, bounds, log); err != nil {
		return err
	}
	g.Go(func() error { return Run(ctx, *cfg) })
	g.Go(func() error { return kubeconfig.Follow(ctx, cfg.Client, o.credentials.kubeconfig, log) })
	if o.healthzPort != 0 {
		g.Go(func() error {
			return daemon.Serve(ctx, daemon.ServeConfig{
				Address: net.JoinHostPort(o.healthzAddress, strconv.Itoa(o.healthzPort)), Handler: cfg.Health.Handler(), Log: log,
			})
		})
	}
	g.Go(func() error { return daemon.Watchdog(ctx, cfg.Health.Live) })
	daemon.NotifyReady()
	defer daemon.NotifyStopping()
	return g.Wait()
}

func (o *options) verification() images.Verification {
	return images.Verification{Policy: images.VerificationPolicy(o.verifyPolicy), Allowlist: o.verifyAllowlist}
}

// secure sees to the certificates: the client's, and the server's.
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

// revokedFile keeps, below --root-dir, which certificates are revoked.
const revokedFile = "revoked.crl"

// guard sets up authentication and authorization of the kubelet's server.
// Without --client-ca-file no client certificate is accepted.
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

// config is what the flags say; what only the machine and the runtime know is added later.
func (o *options) config(log *slog.Logger) (*Config, error) {
	cfg := &Config{
		Log: log, Registry: daemon.Metrics(), Health: &daemon.Health{},
		Labels: o.labels, Register: o.register, MaxPods: o.maxPods,
		RootDir: o.rootDir, PodLogsDir: o.podLogsDir,
		ClusterDNS: o.clusterDNS, ClusterDomain: o.clusterDomain, ResolvConf: o.resolvConf, SeccompDefault: o.seccompDefault, AllowNetRaw: o.allowNetRaw,
		ParallelPulls: o.parallelPulls, VerifyImages: o.verification(), DrainTimeout: o.drainTimeout, RefreshPeriod: o.syncPeriod, LogMaxFiles: o.logMaxFiles,
		LeaseDuration: time.Duration(o.leaseSeconds) * time.Second, ReportPeriod: o.reportPeriod,
		Address: net.JoinHostPort(o.bindAddress, strconv.Itoa(o.port)), Port: int32(o.port),
	}
	if o.serialPulls {
		cfg.ParallelPulls = 1
	}
	var err error
	if cfg.NodeName, err = o.nodeName(); err != nil {
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
	size, err := resource.ParseQuantity(o.logMaxSize)
	if err != nil {
		return nil, fmt.Errorf("--container-log-max-size: %w", err)
	}
	cfg.LogMaxSize = size.Value()
	if err := os.MkdirAll(o.rootDir, 0o750); err != nil {
		return nil, err
	}
	// Mounts are the kernel's: it wants paths that hold wherever it looks from.
	if cfg.RootDir, err = filepath.Abs(o.rootDir); err != nil {
		return nil, err
	}
	if cfg.PodLogsDir, err = filepath.Abs(o.podLogsDir); err != nil {
		return nil, err
	}
	if o.gcHigh < 100 {
		cfg.ImageGC = ImageGC{High: o.gcHigh, Low: o.gcLow, MinAge: o.gcAge, Keep: o.infraImage, Usage: func() (uint64, uint64, error) { return diskUsage(o.rootDir) }}
	}
	return cfg, nil
}

// lockDir keeps a second kubelet away from the same files. One that is just
// ending is waited for.
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
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (o *options) nodeName() (string, error) {
	name := o.hostname
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

// pidBounds are the numbers of process ids that all pods and one pod may have.
type pidBounds struct{ all, pod int64 }

// processIDs divides the node's process ids and sets up the watch over them.
func (o *options) processIDs(cfg *Config) (pidBounds, error) {
	machine := pids.Machine{Proc: "/proc", Cgroup: "/sys/fs/cgroup"}
	most, err := machine.Max()
	if err != nil {
		return pidBounds{}, err
	}
	threshold, err := pids.ParseThreshold(o.evictionHard)
	if err != nil {
		return pidBounds{}, err
	}
	cfg.Machine.PIDs = &pids.Monitor{Read: machine.Usage, Threshold: threshold, Transition: o.pressureTransition, Now: time.Now}
	var reserved *resource.Quantity
	if q, ok := cfg.Reserved[pids.Resource]; ok {
		reserved = &q
	}
	b := pidBounds{all: pids.Allocatable(most, reserved)}
	if b.all == 0 {
		return b, fmt.Errorf("--kube-reserved and --system-reserved leave no process ids for pods: the node has %d", most)
	}
	b.pod = pids.PodLimit(o.podPIDs, b.all)
	cfg.Log.Info("process ids", "node", most, "pods", b.all, "pod", b.pod)
	return b, nil
}

// cgroups finds who owns the tree.
func (o *options) cgroups(ctx context.Context, r cri.Runtime, bounds pidBounds, log *slog.Logger) (resources.Cgroups, error) {
	driver := o.cgroupDriver
	if driver == driverAuto {
		driver = driverCgroupfs
		res, err := r.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
		switch {
		case err == nil && res.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD:
			driver = driverSystemd
		case err != nil && !cri.Unimplemented(err):
			return nil, fmt.Errorf("ask the runtime for its cgroup driver: %w", err)
		}
	}
	log.Info("cgroups", "driver", driver, "root", o.cgroupRoot)
	if driver == driverNone {
		return resources.None{}, nil
	}
	options := resources.Options{Root: o.cgroupRoot, PIDs: bounds.all, PodPIDs: bounds.pod, Unbound: slices.Contains(o.enforce, enforceNone), Log: log}
	if driver == driverSystemd {
		bus, err := resources.ConnectSystemd(ctx)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, bus.Close)
		options.Systemd = bus
	}
	return resources.NewFS(options), nil
}

// parseTaints reads key=value:effect and key:effect.
func parseTaints(list []string) ([]corev1.Taint, error) {
	var out []corev1.Taint
	for _, text := range list {
		i := strings.LastIndex(text, ":")
		if i < 0 {
			return nil, fmt.Errorf("--register-with-taints %q: want key=value:effect", text)
		}
		key, value, _ := strings.Cut(text[:i], "=")
		effect := corev1.TaintEffect(text[i+1:])
		switch effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			return nil, fmt.Errorf("--register-with-taints %q: the effect is NoSchedule, PreferNoSchedule or NoExecute", text)
		}
		out = append(out, corev1.Taint{Key: key, Value: value, Effect: effect})
	}
	return out, nil
}

// parseReserved adds reservations up.
func parseReserved(lists ...map[string]string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for _, list := range lists {
		for name, text := range list {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("reserved %s=%s: %w", name, text, err)
			}
			sum := out[corev1.ResourceName(name)]
			sum.Add(q)
			out[corev1.ResourceName(name)] = sum
		}
	}
	return out, nil
}
