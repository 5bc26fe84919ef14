package devices

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podium/pkg/backoff"
	"podium/pkg/kubelet/plugins"
)

// Timeouts of calls to a plugin.
const (
	connectTimeout   = 10 * time.Second
	preferTimeout    = 10 * time.Second
	allocateTimeout  = time.Minute
	preStartTimeout  = api.KubeletPreStartContainerRPCTimeoutInSecs * time.Second
	lostPluginGrace  = 5 * time.Minute // before the resource of a lost plugin is removed, as upstream
	reportEvery      = time.Second     // the least time between two reports of changes
	maxResources     = 256             // that plugins may register
	maxRegistrations = 16              // that run at once
)

// Config holds the dependencies of a Manager.
type Config struct {
	Root    string // the kubelet's --root-dir
	Log     *slog.Logger
	Metrics *Metrics // nil: none

	Listen func(socket string) (net.Listener, error)                              // nil: on a Unix socket
	Dial   func(socket string, opts ...grpc.DialOption) (*grpc.ClientConn, error) // nil: plugins.Dial
}

// Manager knows the device plugins of the node, their devices and who has them. It is safe
// for concurrent use.
type Manager struct {
	cfg     Config
	changes chan struct{} // wakes Run to report changes
	turns   chan struct{} // of registrations

	mu        sync.Mutex
	run       context.Context // of Run; nil before Run, and when it ends
	plugins   sync.WaitGroup  // the goroutines of connected plugins
	resources map[string]*offer
	newest    map[string]*plugin // the connected plugin of each resource
	pods      map[types.UID]containers
	changed   map[types.UID]bool // pods that Run is to report
	stale     bool               // the checkpoint lacks a change of pods or resources

	disk sync.Mutex // held while the checkpoint is written
}

// New returns a Manager with the devices of the checkpoint. Without a readable checkpoint
// no container has devices.
func New(cfg Config) *Manager {
	if cfg.Listen == nil {
		cfg.Listen = func(socket string) (net.Listener, error) { return net.Listen("unix", socket) }
	}
	if cfg.Dial == nil {
		cfg.Dial = plugins.Dial
	}
	m := &Manager{
		cfg: cfg, changes: make(chan struct{}, 1), turns: make(chan struct{}, maxRegistrations),
		resources: map[string]*offer{}, newest: map[string]*plugin{}, pods: map[types.UID]containers{}, changed: map[types.UID]bool{},
	}
	m.restore()
	return m
}

// dir returns the directory of the sockets and of the checkpoint.
func (m *Manager) dir() string { return filepath.Join(m.cfg.Root, "device-plugins") }

// Run serves registrations until ctx ends. It calls changed when the capacity of the node or
// the health of devices may have changed, with the pods that have such devices. Call it once.
func (m *Manager) Run(ctx context.Context, changed func(affected []types.UID)) error {
	m.mu.Lock()
	m.run = ctx
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.run = nil // from now on connect starts no goroutine
		m.mu.Unlock()
		m.plugins.Wait()
	}()
	stop, err := m.serve()
	if err != nil {
		// Plugins that register by the watcher, and all else of the node, work without.
		m.cfg.Log.Error("device plugins cannot register", "error", err)
		stop = func() {}
	}
	defer stop()
	for ctx.Err() == nil {
		select {
		case <-m.changes:
			changed(m.affected())
		case <-ctx.Done():
			return nil
		}
		// A plugin that changes its devices all the time must not cost more than this.
		_ = backoff.Sleep(ctx, reportEvery)
	}
	return nil
}

// affected returns the pods that have been noticed since the last time.
func (m *Manager) affected() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	pods := slices.Collect(maps.Keys(m.changed))
	clear(m.changed)
	return pods
}

// noticeLocked makes Run report the pods that have devices of a resource. m.mu is held.
func (m *Manager) noticeLocked(resource string) {
	for uid, list := range m.pods {
		for _, of := range list {
			if of[resource] != nil {
				m.changed[uid] = true
			}
		}
	}
	select {
	case m.changes <- struct{}{}:
	default:
	}
}
