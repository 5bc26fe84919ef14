package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"k8s.io/apimachinery/pkg/util/validation"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"podium/pkg/kubelet/plugins"
)

// reconnect is the longest delay between attempts to reach a driver that is away.
const reconnect = 5 * time.Second

var errClosed = errors.New("the kubelet is stopping")

// registry knows the plugins of the drivers. While a driver is being updated, the old and
// the new plugin are both registered, each with a socket of its own.
type registry struct {
	wake chan struct{} // signals Run

	reg     sync.Mutex
	plugins map[string][]*plugin // by driver, the newest last
	away    map[string]*absence  // drivers without a connected plugin
	closed  bool                 // Run has ended
}

// plugin is one registered plugin of a driver.
type plugin struct {
	plugins.Plugin
	drapb.DRAPluginClient
	conn      *grpc.ClientConn
	watched   bool // Run watches the connection
	connected bool
}

func newRegistry() registry {
	return registry{wake: make(chan struct{}, 1), plugins: map[string][]*plugin{}, away: map[string]*absence{}}
}

func (r *registry) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Register makes a plugin known. New claims are prepared by the newest connected plugin
// of a driver.
func (m *Manager) Register(_ context.Context, info plugins.Plugin) error {
	if problems := validation.IsDNS1123Subdomain(info.Name); len(problems) > 0 {
		return fmt.Errorf("invalid DRA driver name %q: %s", info.Name, strings.Join(problems, "; "))
	}
	p := &plugin{Plugin: info}
	var err error
	p.conn, err = m.Dialer.Dial(info.Endpoint,
		grpc.WithUnaryInterceptor(m.Metrics.intercept(info.Name, m.CallTimeout)),
		grpc.WithIdleTimeout(0), // Run sees by the connection whether the driver is there
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, MaxDelay: reconnect}, MinConnectTimeout: reconnect}),
	)
	if err != nil {
		return fmt.Errorf("connect to DRA driver %s at %s: %w", info.Name, info.Endpoint, err)
	}
	if p.DRAPluginClient, err = clientOf(p.conn, info); err == nil {
		err = m.add(p)
	}
	if err != nil {
		return errors.Join(err, p.conn.Close())
	}
	return nil
}

// clientOf returns a client of the newest version that the plugin serves.
func clientOf(conn *grpc.ClientConn, info plugins.Plugin) (drapb.DRAPluginClient, error) {
	switch {
	case slices.Contains(info.Versions, drapb.DRAPluginService):
		return drapb.NewDRAPluginClient(conn), nil
	case slices.Contains(info.Versions, drav1beta1.DRAPluginService):
		return drav1beta1.V1Beta1ClientWrapper{DRAPluginClient: drav1beta1.NewDRAPluginClient(conn)}, nil
	}
	return nil, fmt.Errorf("none of the DRA versions reported by the driver %s are supported: %q", info.Name, info.Versions)
}

// add adds a plugin, in place of one that has registered on the same socket.
func (m *Manager) add(p *plugin) error {
	m.reg.Lock()
	defer m.reg.Unlock()
	if m.closed {
		return errClosed
	}
	m.removeLocked(p.Plugin)
	m.registry.plugins[p.Name] = append(m.registry.plugins[p.Name], p)
	m.checkLocked(p.Name)
	m.poke()
	return nil
}

// Deregister forgets a plugin. Its driver's other plugins stay.
func (m *Manager) Deregister(_ context.Context, info plugins.Plugin) error {
	m.reg.Lock()
	defer m.reg.Unlock()
	m.removeLocked(info)
	m.checkLocked(info.Name)
	m.poke()
	return nil
}

// removeLocked forgets the plugin of a socket and ends its calls. m.reg is held.
func (m *Manager) removeLocked(info plugins.Plugin) {
	list := slices.DeleteFunc(m.registry.plugins[info.Name], func(p *plugin) bool {
		if p.Socket != info.Socket {
			return false
		}
		_ = p.conn.Close()
		return true
	})
	if m.registry.plugins[info.Name] = list; len(list) == 0 {
		delete(m.registry.plugins, info.Name)
	}
}

// pick returns the plugin that does a driver's work: the newest connected one, or else
// the newest.
func (r *registry) pick(driver string) (*plugin, error) {
	r.reg.Lock()
	defer r.reg.Unlock()
	list := r.plugins[driver]
	for _, p := range slices.Backward(list) {
		if p.connected {
			return p, nil
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("DRA driver %s is not registered", driver)
	}
	return list[len(list)-1], nil
}

// watchNew starts to watch the connections of plugins that are not watched yet.
func (m *Manager) watchNew(ctx context.Context, running *sync.WaitGroup) {
	m.reg.Lock()
	defer m.reg.Unlock()
	for _, list := range m.registry.plugins {
		for _, p := range list {
			if !p.watched {
				p.watched = true
				running.Go(func() { m.watch(ctx, p) })
				running.Go(func() { m.watchHealth(ctx, p) })
			}
		}
	}
}

// watch keeps a plugin connected and records whether it is, until it is forgotten or ctx
// ends.
func (m *Manager) watch(ctx context.Context, p *plugin) {
	for {
		state := p.conn.GetState()
		m.setConnected(p, state == connectivity.Ready)
		switch state {
		case connectivity.Shutdown:
			return
		case connectivity.Idle:
			p.conn.Connect()
		}
		if !p.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

func (m *Manager) setConnected(p *plugin, connected bool) {
	m.reg.Lock()
	defer m.reg.Unlock()
	if p.connected == connected {
		return
	}
	p.connected = connected
	m.checkLocked(p.Name)
	m.poke()
}

// closeAll closes all connections and accepts no more plugins.
func (m *Manager) closeAll() {
	m.reg.Lock()
	defer m.reg.Unlock()
	m.closed = true
	for _, list := range m.registry.plugins {
		for _, p := range list {
			_ = p.conn.Close()
		}
	}
}
