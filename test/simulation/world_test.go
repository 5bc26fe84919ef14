package simulation

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/request"
	"podium/pkg/client"
	"podium/pkg/controllers"
	"podium/pkg/controllers/nodeipam"
	"podium/pkg/kubelet"
	"podium/pkg/kubelet/cri/crifake"
	kubeletpods "podium/pkg/kubelet/pods"
	"podium/pkg/kubelet/volumes"
	"podium/pkg/proxy"
	"podium/pkg/proxy/conntrack"
	"podium/pkg/proxy/iptables"
	"podium/pkg/scheduler"
	"podium/pkg/scheme"
	"podium/pkg/storage/memory"
	"podium/pkg/version"
)

// size is the size of a cluster.
type size struct {
	nodes, pods int
	apiservers  int
	replicas    int // of the scheduler and of the controllers
	proxies     bool
}

// world is a cluster in a bubble.
type world struct {
	t       *testing.T
	size    size
	plan    *plan
	scheme  *scheme.Scheme
	store   *memory.Store
	network *network
	tokens  *authn.Tokens
	dir     string
	user    *client.Client // an administrator, without faults
	calm    chan struct{}  // closed when the faults have ended
	began   time.Time

	// lie may answer a request of a daemon without performing it: a defect that the
	// simulation must find. It may be nil.
	lie func(*wire, *http.Request, string) *http.Response

	nodes   []*node
	flaky   flaky
	daemons map[string]*daemon
	journal *journal
	running sync.WaitGroup

	mu       sync.Mutex
	problems []string
}

// node is the state of a machine that survives its daemons.
type node struct {
	name    string
	runtime *crifake.Runtime
	tables  *iptables.Fake
	dir     string
	taints  []corev1.Taint
}

var serviceCIDR = netip.MustParsePrefix("10.96.0.0/16")

// newWorld starts everything. It ends with ctx; call running.Wait afterwards.
func newWorld(ctx context.Context, t *testing.T, p *plan, s size, change ...func(*world)) *world {
	w := &world{
		t: t, size: s, plan: p, scheme: scheme.New(), store: memory.New(), network: newNetwork(),
		dir: t.TempDir(), began: time.Now(), calm: make(chan struct{}), daemons: map[string]*daemon{},
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := authn.NewKeySet(key)
	if err != nil {
		t.Fatal(err)
	}
	w.tokens = authn.NewTokens(authn.TokenConfig{Issuers: []string{"simulation"}, Keys: func() *authn.KeySet { return keys }})
	for _, f := range change {
		f(w)
	}
	w.journal = newJournal(w)
	w.running.Go(func() { w.journal.run(ctx) })
	w.user = w.client(&life{who: "user", ctx: ctx, kill: func() {}}, "admin", false)

	for i := range s.apiservers {
		w.start(ctx, w.apiserver(i))
	}
	for i := range s.replicas {
		w.start(ctx, w.controllers(i))
		w.start(ctx, w.scheduler(i))
	}
	for i := range s.nodes {
		n := w.machine(i)
		w.nodes = append(w.nodes, n)
		w.start(ctx, w.kubelet(i, n))
		if s.proxies {
			w.start(ctx, w.proxy(n))
		}
	}
	return w
}

func (w *world) start(ctx context.Context, d *daemon) {
	w.daemons[d.name] = d
	ctx, d.end = context.WithCancel(ctx)
	w.running.Go(func() { w.keep(ctx, d) })
}

// soothe ends the faults.
func (w *world) soothe() {
	w.plan.stop()
	close(w.calm)
}

// The user's name and groups are plain headers: all clients in the bubble are trusted.
const (
	userHeader  = "X-Simulated-User"
	groupHeader = "X-Simulated-Group"
)

func identify(r *http.Request) (*request.User, error) {
	return &request.User{Name: r.Header.Get(userHeader), Groups: []string{r.Header.Get(groupHeader), request.Authenticated}}, nil
}

// client returns a client for one life of a daemon.
func (w *world) client(l *life, user string, faulty bool) *client.Client {
	next := w.network.transport()
	context.AfterFunc(l.ctx, next.CloseIdleConnections)
	var transport http.RoundTripper = next
	if faulty {
		transport = &wire{w: w, life: l, next: next}
	}
	header := http.Header{userHeader: {user}}
	switch {
	case user == "admin":
		header.Set(groupHeader, authn.Masters)
	case strings.HasPrefix(user, "system:node:"):
		header.Set(groupHeader, request.Nodes)
	}
	cfg := client.Config{Transport: transport, Header: header}
	for i := range w.size.apiservers {
		cfg.Servers = append(cfg.Servers, fmt.Sprintf("http://%s:80", serverName(i)))
	}
	c, err := client.New(w.scheme, cfg)
	if err != nil {
		panic(err) // all of its configuration is fixed
	}
	return c
}

func serverName(i int) string { return fmt.Sprintf("apiserver-%d", i) }

func (w *world) apiserver(i int) *daemon {
	name := serverName(i)
	return &daemon{name: name, run: func(ctx context.Context, l *life) error {
		listener := w.network.listen(name)
		l.atDeath(listener.cut)
		defer listener.cut()
		store := &storeGate{Store: w.store, w: w, life: l}
		access, err := apiserver.NewAccess(apiserver.AccessConfig{})
		if err != nil {
			return err
		}
		kinds := registry.Config{
			Access: access, Store: store, ServiceCIDR: serviceCIDR, NodePorts: registry.PortRange{First: 30000, Last: 32767},
			Tokens: w.tokens, TokenAudiences: w.tokens.Audiences(), Identify: w.tokens, Now: time.Now,
		}
		server, err := apiserver.New(apiserver.Config{
			Scheme: w.scheme, Store: store, Kinds: registry.Kinds(w.scheme, kinds), Log: w.log(name), Listener: listener,
			Authenticator: authn.Func(identify), Access: access, MaxReads: 400, MaxWrites: 200, Identity: name,
			Advertise: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), 6443), ServiceCIDR: serviceCIDR,
			Repair: func(ctx context.Context, b registry.Backend) error {
				return registry.RepairServices(ctx, w.scheme, b, kinds)
			},
		})
		if err != nil {
			return err
		}
		return server.Run(ctx)
	}}
}

func (w *world) controllers(i int) *daemon {
	name := fmt.Sprintf("controllers-%d", i)
	return &daemon{name: name, run: func(ctx context.Context, l *life) error {
		cfg := controllers.Default()
		cfg.Client, cfg.Log, cfg.RootCA = w.client(l, "system:kube-controller-manager", true), w.log(name), []byte("a certificate")
		cfg.ClientFor = func(account string) (*client.Client, error) {
			return w.client(l, "system:serviceaccount:kube-system:"+account, true), nil
		}
		cfg.ClusterCIDRs = []nodeipam.Range{{CIDR: netip.MustParsePrefix("10.244.0.0/16"), MaskSize: 24}}
		return controllers.Run(ctx, cfg)
	}}
}

func (w *world) scheduler(i int) *daemon {
	name := fmt.Sprintf("scheduler-%d", i)
	return &daemon{name: name, run: func(ctx context.Context, l *life) error {
		cfg := scheduler.Config{Client: w.client(l, "system:kube-scheduler", true), Log: w.log(name)}
		cfg.LeaderElect = true
		return scheduler.Run(ctx, cfg)
	}}
}

func (w *world) machine(i int) *node {
	n := &node{name: fmt.Sprintf("node-%d", i), tables: iptables.NewFake()}
	n.dir = filepath.Join(w.dir, n.name)
	address := 0
	var mu sync.Mutex
	n.runtime = crifake.New(crifake.Config{
		NoEvents: i%2 == 1,
		Behave:   w.behave,
		IP: func() string {
			mu.Lock()
			defer mu.Unlock()
			address++
			return fmt.Sprintf("10.%d.%d.%d", 100+i, address/250, address%250+1)
		},
		Latency: func(op string) time.Duration {
			r, _ := w.plan.next(n.name, "time of "+op)
			if r == nil || op != "RunPodSandbox" && op != "CreateContainer" && op != "StartContainer" && op != "PullImage" {
				return 0
			}
			return time.Duration(r.IntN(400)) * time.Millisecond
		},
	})
	return n
}

// behave maps the image's name to the behaviour of a container.
func (w *world) behave(s crifake.Start) crifake.Behaviour {
	if strings.HasPrefix(s.Image, "flaky") {
		return crifake.Behaviour{ExitAfter: 5 * time.Second, ExitCode: w.flaky.exit(s)}
	}
	if strings.HasPrefix(s.Image, "task") {
		return crifake.Behaviour{ExitAfter: 5 * time.Second}
	}
	return crifake.Behaviour{TermDelay: 200 * time.Millisecond}
}

func (w *world) kubelet(i int, n *node) *daemon {
	name := "kubelet on " + n.name
	return &daemon{name: name, run: func(ctx context.Context, l *life) error {
		return kubelet.Run(ctx, kubelet.Config{
			Client: w.client(l, "system:node:"+n.name, true), Log: w.log(name), NodeName: n.name, Register: true, Taints: n.taints,
			Machine: kubelet.Machine{
				Addresses: []corev1.NodeAddress{
					{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("198.51.100.%d", i+1)}, {Type: corev1.NodeHostName, Address: n.name},
				},
				Info: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: version.Podium},
				Capacity: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi"),
					corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
				},
			},
			Runtime: &runtimeGate{Runtime: n.runtime, w: w, life: l}, Images: n.runtime.ImageService(),
			Mounter: volumes.Unmounted{}, RootDir: n.dir, PluginDialer: w.dialPlugin,
			Options: kubeletpods.Options{HostsFile: os.DevNull, ParallelPulls: 5, DrainTimeout: 5 * time.Second},
		})
	}}
}

func (w *world) proxy(n *node) *daemon {
	name := "proxy on " + n.name
	return &daemon{name: name, run: func(ctx context.Context, l *life) error {
		return proxy.Run(ctx, proxy.Daemon{Config: proxy.Config{
			Node: n.name, Client: w.client(l, "system:kube-proxy", true), Log: w.log(name), Registry: prometheus.NewRegistry(),
			Kernel: n.tables, Conntrack: noFlows{},
		}})
	}}
}

type noFlows struct{}

func (noFlows) Delete(func(conntrack.Flow) bool) (int, error) { return 0, nil }

// log returns a daemon's logger.
func (w *world) log(name string) *slog.Logger {
	if !*daemonLogs {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("daemon", name)
}
