package kubelet

import (
	"context"
	"crypto/tls"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/client"
	"podium/pkg/client/events"
	"podium/pkg/client/informer"
	"podium/pkg/client/revocation"
	"podium/pkg/daemon"
	"podium/pkg/intree"
	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/csi"
	csidrivers "podium/pkg/kubelet/csi/drivers"
	"podium/pkg/kubelet/devices"
	"podium/pkg/kubelet/dra"
	"podium/pkg/kubelet/env"
	"podium/pkg/kubelet/images"
	"podium/pkg/kubelet/node"
	"podium/pkg/kubelet/nodepressure"
	"podium/pkg/kubelet/pids"
	"podium/pkg/kubelet/placement"
	"podium/pkg/kubelet/plugins"
	"podium/pkg/kubelet/podresources"
	"podium/pkg/kubelet/pods"
	"podium/pkg/kubelet/probes"
	"podium/pkg/kubelet/references"
	"podium/pkg/kubelet/resources"
	"podium/pkg/kubelet/server"
	"podium/pkg/kubelet/shutdown"
	"podium/pkg/kubelet/staticpods"
	"podium/pkg/kubelet/stats"
	"podium/pkg/kubelet/userns"
	"podium/pkg/kubelet/volumes"
)

// Config holds all dependencies and settings of a kubelet. The comments name the
// defaults that Run uses for zero values.
type Config struct {
	Client   *client.Client       // required
	Log      *slog.Logger         // required
	Registry *prometheus.Registry // nil: no metrics
	Health   *daemon.Health       // nil: no health checks

	// The node.
	NodeName               string
	Labels                 map[string]string
	Taints                 []corev1.Taint     // added when the node is registered
	Register               bool               // create the Node object if it does not exist
	Cloud                  *node.Cloud        // nil: no cloud controller initializes the node
	OnNode                 func(*corev1.Node) // called with the Node as the API has it, nil if deleted; may be nil
	Machine                Machine
	Reserved               corev1.ResourceList // resources that are not for pods
	AllocatableReservation corev1.ResourceList // what pods cannot request: Reserved and hard eviction thresholds; nil: Reserved
	MaxPods                int                 // 0: 110

	// The container runtime and the rest of the machine.
	Runtime     cri.Runtime // required
	Images      cri.Images  // required
	RuntimeName string      // the scheme of container ids; "": containerd
	Mounter     volumes.Mounter
	Cgroups     resources.Cgroups    // nil: none
	Placement   *placement.Placement // of CPUs and devices; nil: containers run on all CPUs
	Dial        probes.Dial          // nil: the network
	RootDir     string               // required
	PodLogsDir  string               // "": <RootDir>/logs
	LogLinksDir string               // of links to the containers' logs; "": no links
	Plugins     bool                 // register the node's plugins, and serve the pod resources API, on sockets below RootDir
	// PluginDialer connects to plugins instead of the system; nil: the system. With it, CSI and DRA
	// drivers are registered without Plugins, too.
	PluginDialer plugins.Dialer

	pods.Options // HostsFile "": /etc/hosts
	ImageGC      ImageGC

	Static staticpods.Manifests // the pods that run without the API; zero: none

	References references.Strategy // how changes of ConfigMaps and Secrets are noticed; "": Watch

	ImageProviders images.Provider // of credentials for registries; nil: only pull secrets

	Shutdown shutdown.Periods             // of pods when the node shuts down; none: shutdowns are not delayed
	Logind   func() (shutdown.Bus, error) // nil: that of the machine

	LeaseDuration time.Duration // of the node's Lease; 0: 40 s
	ReportPeriod  time.Duration // of node statuses in which nothing changed; 0: 5 min

	// The server: logs, exec, attach, port-forward, metrics. It is off without TLS.
	Address  string       // host:port
	Listener net.Listener // instead of Address
	TLS      *tls.Config
	Access   server.Access  // authenticates and authorizes; nil: every request is rejected
	Settings map[string]any // the content of /configz; nil: empty
	Port     int32          // the port in the node's status; that of Address
	NodeLogs fs.FS          // the files of /logs/; nil: disabled
	Profiles http.Handler   // profiles of this process; nil: disabled
	LogQuery http.Handler   // queries for logs of the node's services; nil: disabled
	// Connections tracks the server's connections, to close them when the
	// client's certificate is revoked; nil: they are not tracked.
	Connections *revocation.Connections

	probes  *prometheus.Registry // for /metrics/probes; nil without Registry
	devices *devices.Manager     // nil without Plugins
}

// Machine describes the machine that the kubelet runs on.
type Machine struct {
	Addresses []corev1.NodeAddress
	Info      corev1.NodeSystemInfo
	Capacity  corev1.ResourceList   // CPU, memory, storage; pods are Config's
	Node      *nodepressure.Monitor // of memory and disks; nil: no pressure
	PIDs      *pids.Monitor         // nil: no PID pressure
	UserIDs   userns.Range          // of pods' user namespaces; zero: upstream's default
	Host      pods.Host             // the security features that it can enforce
}

// pressure returns which resources the machine is short of. dir is the kubelet's.
func (m *Machine) pressure(dir string) node.Pressure {
	var p node.Pressure
	if readOnly(dir) {
		p.ReadOnly = dir
	}
	if m.Node != nil {
		p.Memory, p.Disk = m.Node.Pressure()
	}
	p.PIDs = p.PIDs || m.PIDs != nil && m.PIDs.Pressure()
	return p
}

// ImageGC configures image garbage collection; the zero value disables it.
type ImageGC struct {
	Usage     func() (used, capacity uint64, err error) // of the image file system
	High, Low int                                       // percent: begin at High, stop at Low
	MinAge    time.Duration
	Keep      string // an image that is never removed: that of the sandboxes
}

func (c *Config) setDefaults() {
	if c.MaxPods == 0 {
		c.MaxPods = 110
	}
	if c.RuntimeName == "" {
		c.RuntimeName = "containerd"
	}
	if c.Cgroups == nil {
		c.Cgroups = resources.None{}
	}
	if c.AllocatableReservation == nil {
		c.AllocatableReservation = c.Reserved
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	if c.Machine.UserIDs == (userns.Range{}) {
		c.Machine.UserIDs = userns.DefaultRange(c.MaxPods)
	}
	if c.PodLogsDir == "" {
		c.PodLogsDir = c.RootDir + "/logs"
	}
	if c.Logind == nil {
		c.Logind = shutdown.ConnectLogind
	}
	if c.HostsFile == "" {
		c.HostsFile = "/etc/hosts"
	}
	if c.Registry != nil {
		c.probes = prometheus.NewRegistry()
	}
}

// capacity returns the machine's capacity, with the number of pods.
func (c *Config) capacity() corev1.ResourceList {
	out := c.Machine.Capacity.DeepCopy()
	if out == nil {
		out = corev1.ResourceList{}
	}
	out[corev1.ResourcePods] = *quantity(int64(c.MaxPods))
	return out
}

// Run runs the kubelet until ctx ends or a part of it fails. It leaves the
// containers running.
func Run(ctx context.Context, cfg Config) error {
	cfg.setDefaults()
	if err := cfg.Cgroups.Prepare(ctx, node.Allocatable(cfg.capacity(), cfg.Reserved)); err != nil {
		return err
	}
	api := newAPI(cfg.Client)
	recorder := events.New(cfg.Client, "kubelet", cfg.NodeName, cfg.Log)
	down := newShutdown(&cfg)
	var drivers *csi.Driver
	cfg.devices = newDevices(&cfg)
	if cfg.devices != nil && cfg.Placement != nil {
		cfg.Placement.Add(cfg.devices.Provider(cfg.Placement.Nodes()))
	}
	agent := newAgent(&cfg, recorder, down.Active, func() []corev1.UniqueVolumeName { return drivers.InUse() })
	drivers, err := newDrivers(&cfg, api, recorder, agent)
	if err != nil {
		return err
	}
	claims, err := newClaims(&cfg, api)
	if err != nil {
		return err
	}
	services := informer.New(client.For[*corev1.Service](cfg.Client), informer.Options{Log: cfg.Log})
	pulls := images.NewRecords(filepath.Join(cfg.RootDir, "image_manager"), cfg.Log)
	var manager *pods.Manager
	refs := references.New(references.Config{
		Client: cfg.Client, Strategy: cfg.References, Lifetime: cfg.RefreshPeriod, Log: cfg.Log,
		Changed: func(pods []types.UID) { manager.Refresh(pods) },
	})
	vols := volumes.New(volumes.Config{Root: cfg.RootDir, Sources: volumeSources{api, refs}, Mounter: cfg.Mounter, Node: agent.Node, Log: cfg.Log, Drivers: []volumes.Driver{drivers}})
	var collector *images.Collector
	bound := informer.New(client.For[*corev1.Pod](cfg.Client), informer.Options{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", cfg.NodeName).String(), Log: cfg.Log, Transform: strip,
	})
	sources := staticpods.NewSources(cfg.Static, cfg.NodeName, func(old, pod *corev1.Pod) { manager.Update(old, pod) }, cfg.Log)
	mirrors := staticpods.NewMirrors(staticpods.Config{API: api, Node: agent.Node, Synced: bound.Synced, Known: sources.Known, Log: cfg.Log})
	manager, err = newManager(&cfg, parts{
		api: api, mirrors: mirrors, statics: &pods.Statics{Known: sources.Known, Changed: mirrors.Wake, Draft: agent.Draft}, volumes: vols, references: refs, recorder: recorder, agent: agent, services: services, pulls: pulls, claims: claims,
		stopping: down.Active, freeDisk: func(ctx context.Context) { collector.Free(ctx) },
	})
	if err != nil {
		return err
	}
	collector = newCollector(&cfg, manager.Pods, pulls)

	mirrors.Pods = manager
	bound.OnChange(mirrors.Update)
	self := informer.New(client.For[*corev1.Node](cfg.Client), informer.Options{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, cfg.NodeName).String(), Log: cfg.Log, Transform: strip,
	})
	self.OnChange(func(_, n *corev1.Node) {
		agent.Observe(n)
		if cfg.OnNode != nil {
			cfg.OnNode(n)
		}
	})
	health(cfg.Health, agent, bound.Synced)

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return recorder.Run(ctx) })
	g.Go(func() error { return agent.Run(ctx) })
	g.Go(func() error { return self.Run(ctx) })
	g.Go(func() error {
		if self.WaitSynced(ctx) == nil && self.Count("") == 0 {
			agent.Observe(nil) // deleted between its registration and our first list
		}
		return nil
	})
	g.Go(func() error { return services.Run(ctx) })
	g.Go(func() error { return bound.Run(ctx) })
	g.Go(func() error { return manager.Run(ctx) })
	g.Go(func() error { return sources.Run(ctx) })
	g.Go(func() error { return mirrors.Run(ctx) })
	g.Go(func() error { return cfg.Placement.Run(ctx, cfg.Runtime) })
	g.Go(func() error { return newReclaimer(&cfg, api, vols, recorder).Run(ctx) })
	g.Go(func() error { return drivers.Run(ctx) })
	g.Go(func() error { vols.Measure(ctx); return nil })
	if cfg.Plugins || cfg.PluginDialer != nil {
		runPlugins(ctx, g, &cfg, drivers, claims, manager)
	}
	if cfg.Plugins {
		runDevices(ctx, g, &cfg, claims, manager, agent)
	}
	g.Go(func() error {
		if bound.WaitSynced(ctx) == nil {
			manager.Synced()
		}
		return nil
	})
	g.Go(func() error { return down.Run(ctx, manager, agent.Check) })
	g.Go(func() error { return collectImages(ctx, &cfg, collector) })
	if cfg.TLS != nil {
		g.Go(func() error { return serve(ctx, &cfg, manager, volumeStats(drivers, vols)) })
	}
	defer refs.Wait()
	return g.Wait()
}

// runPlugins registers, in g, the plugins of the node, and runs what needs them.
func runPlugins(ctx context.Context, g *errgroup.Group, cfg *Config, drivers *csi.Driver, claims *dra.Manager, manager *pods.Manager) {
	w := plugins.Watcher{
		Dir: filepath.Join(cfg.RootDir, "plugins_registry"), Dialer: cfg.PluginDialer, Log: cfg.Log,
		Handlers: map[string]plugins.Handler{plugins.CSI: drivers, plugins.DRA: claims},
	}
	if cfg.devices != nil {
		w.Handlers[plugins.Device] = cfg.devices
	}
	g.Go(func() error { return w.Run(ctx) })
	g.Go(func() error { return claims.Run(ctx, manager.Wake) })
}

// runDevices runs, in g, device plugins and the pod resources API.
func runDevices(ctx context.Context, g *errgroup.Group, cfg *Config, claims *dra.Manager, manager *pods.Manager, agent *node.Agent) {
	g.Go(func() error {
		return cfg.devices.Run(ctx, func(affected []types.UID) {
			agent.Check()
			manager.Wake(affected)
		})
	})
	r := podresources.Config{Root: cfg.RootDir, Pods: manager.Pods, Devices: cfg.devices, Dynamic: claims, Log: cfg.Log}
	if cfg.Placement != nil {
		r.Placement = cfg.Placement
	}
	if cfg.Registry != nil {
		r.Metrics = podresources.NewMetrics(cfg.Registry)
	}
	g.Go(func() error { return podresources.New(r).Run(ctx) })
}

// newDevices returns the devices of device plugins, nil without plugins.
func newDevices(cfg *Config) *devices.Manager {
	if !cfg.Plugins {
		return nil
	}
	c := devices.Config{Root: cfg.RootDir, Log: cfg.Log}
	if cfg.Registry != nil {
		c.Metrics = devices.NewMetrics(cfg.Registry)
	}
	return devices.New(c)
}

func newShutdown(cfg *Config) *shutdown.Manager {
	c := shutdown.Config{Periods: cfg.Shutdown, Connect: cfg.Logind, Dir: cfg.RootDir, Log: cfg.Log}
	if cfg.Registry != nil {
		c.Registry = cfg.Registry
	}
	return shutdown.New(c)
}

func newAgent(cfg *Config, recorder *events.Recorder, stopping func() bool, inUse func() []corev1.UniqueVolumeName) *node.Agent {
	c := node.Config{
		Client: cfg.Client, Runtime: cfg.Runtime, Images: cfg.Images, Events: recorder, Log: cfg.Log,
		Name: cfg.NodeName, Labels: cfg.Labels, Taints: cfg.Taints, Register: cfg.Register, Cloud: cfg.Cloud, LocalPath: volumes.LocalPathRoot(cfg.RootDir),
		Addresses: cfg.Machine.Addresses, Port: cfg.Port, Info: cfg.Machine.Info, Capacity: cfg.capacity, Reserved: cfg.AllocatableReservation,
		Pressure: func() node.Pressure { return cfg.Machine.pressure(cfg.RootDir) }, Stopping: stopping, InUse: inUse, LeaseDuration: cfg.LeaseDuration, ReportPeriod: cfg.ReportPeriod,
	}
	if cfg.devices != nil {
		c.Devices = cfg.devices.Capacity
	}
	return node.New(c)
}

func newDrivers(cfg *Config, api *api, recorder *events.Recorder, agent *node.Agent) (*csi.Driver, error) {
	c := csi.Config{Root: cfg.RootDir, NodeName: cfg.NodeName, API: api, Node: agent, Mounter: cfg.Mounter, Events: recorder, Dialer: cfg.PluginDialer, Log: cfg.Log}
	host := csidrivers.Host{Mounter: cfg.Mounter}
	c.InTree = map[string]spec.NodeServer{
		intree.NFS:   csidrivers.NewNFS(host),
		intree.ISCSI: csidrivers.NewISCSI(host, filepath.Join(cfg.RootDir, "plugins", "kubernetes.io", "iscsi"), cfg.Log),
	}
	if cfg.Registry != nil {
		c.Metrics = csi.NewMetrics(cfg.Registry)
	}
	return csi.New(c)
}

func newClaims(cfg *Config, api *api) (*dra.Manager, error) {
	c := dra.Config{Root: cfg.RootDir, NodeName: cfg.NodeName, API: api, Dialer: cfg.PluginDialer, Log: cfg.Log}
	if cfg.Registry != nil {
		c.Metrics = dra.NewMetrics(cfg.Registry)
	}
	m, err := dra.New(c)
	if err == nil && cfg.Registry != nil {
		cfg.Registry.MustRegister(m)
	}
	return m, err
}

// parts are what the pods manager uses of the kubelet.
type parts struct {
	api        *api
	mirrors    *staticpods.Mirrors
	statics    *pods.Statics
	volumes    *volumes.Manager
	references *references.References
	recorder   *events.Recorder
	agent      *node.Agent
	services   *informer.Informer[*corev1.Service]
	pulls      *images.Records
	claims     *dra.Manager
	stopping   func() bool
	freeDisk   func(context.Context)
}

func newManager(cfg *Config, p parts) (*pods.Manager, error) {
	namespaces, err := userns.New(cfg.RootDir, cfg.Machine.UserIDs)
	if err != nil {
		return nil, err
	}
	c := pods.Config{
		RootDir: cfg.RootDir, LogsDir: cfg.PodLogsDir, LogLinksDir: cfg.LogLinksDir,
		API: p.mirrors, Statics: p.statics, Runtime: cfg.Runtime, RuntimeName: cfg.RuntimeName, Images: cfg.Images, Volumes: p.volumes, References: p.references, Claims: p.claims, Cgroups: cfg.Cgroups, UserNS: namespaces,
		Environment: func(ctx context.Context, req env.Request) ([]*runtimeapi.KeyValue, error) {
			return env.Make(ctx, req, p.api)
		},
		Secret:       p.api.Secret,
		Handler:      p.api.RuntimeHandler,
		ImageRecords: p.pulls, ImageProviders: cfg.ImageProviders, ShuttingDown: p.stopping, FreeDisk: p.freeDisk,
		Services: func() ([]*corev1.Service, bool) { return p.services.List(), p.services.Synced() },
		Node:     p.agent.Node,
		HostIPs:  cfg.hostIPs,
		Probes:   probes.Config{Check: probes.Checker{Runtime: cfg.Runtime, Dial: cfg.Dial}, Events: p.recorder, Log: cfg.Log},
		Events:   p.recorder, Log: cfg.Log,
		Capacity: cfg.Machine.Capacity, Host: cfg.Machine.Host, Options: cfg.Options,
	}
	if cfg.Placement != nil {
		c.Placement = cfg.Placement
	}
	if cfg.devices != nil {
		c.Devices = cfg.devices
	}
	if cfg.DrainTimeout > 0 {
		c.Endpoints = p.api
	}
	if cfg.Machine.Node != nil {
		c.Pressure = cfg.Machine.Node
	}
	if cfg.Machine.PIDs != nil {
		c.PIDs = cfg.Machine.PIDs
	}
	if cfg.Registry != nil {
		c.Metrics, c.Probes.Metrics = pods.NewMetrics(cfg.Registry), probes.NewMetrics(cfg.probes)
	}
	m := pods.New(c)
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(pods.Census{Manager: m})
	}
	return m, nil
}

func (c *Config) hostIPs() []string {
	var out []string
	for _, a := range c.Machine.Addresses {
		if a.Type == corev1.NodeInternalIP {
			out = append(out, a.Address)
		}
	}
	return out
}

func health(h *daemon.Health, agent *node.Agent, synced func() bool) {
	if h == nil {
		return
	}
	h.Add("node-registered", func() error {
		if agent.Node() == nil {
			return errNotRegistered
		}
		return nil
	})
	h.Add("pods-synced", func() error {
		if !synced() {
			return errNotSynced
		}
		return nil
	})
}

// volumeStats returns a function that returns the last statistics of a volume, of a CSI
// driver or of the kubelet itself.
func volumeStats(drivers *csi.Driver, vols *volumes.Manager) func(types.UID, string) (stats.Filesystem, bool) {
	return func(pod types.UID, volume string) (stats.Filesystem, bool) {
		if out, ok := drivers.Stats(pod, volume); ok {
			return out, true
		}
		return vols.Stats(pod, volume)
	}
}

// serve runs the HTTPS server for the API server and other authorized clients.
func serve(ctx context.Context, cfg *Config, manager *pods.Manager, volume func(types.UID, string) (stats.Filesystem, bool)) error {
	s := server.Config{
		NodeName: cfg.NodeName, Pods: manager.Pods, Volume: volume, Runtime: cfg.Runtime, Registry: cfg.Registry, Probes: cfg.probes, RootDir: cfg.RootDir, LogsDir: cfg.PodLogsDir, NodeLogs: cfg.NodeLogs, LogQuery: cfg.LogQuery, Profiles: cfg.Profiles, Log: cfg.Log,
		Access: cfg.Access, Settings: cfg.Settings,
	}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(&stats.Claims{Pods: manager.Pods, Volume: volume})
	}
	if cfg.Health != nil {
		s.Health = cfg.Health.Handler()
	}
	return daemon.Serve(ctx, daemon.ServeConfig{Address: cfg.Address, Listener: cfg.Listener, TLS: cfg.TLS, Handler: server.New(s), Log: cfg.Log, Connections: cfg.Connections})
}
