package devices

import (
	"context"
	"fmt"
	"maps"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podium/pkg/backoff"
)

// A plugin is the connection to a device plugin.
type plugin struct {
	resource string
	watched  string // the socket by which the plugin watcher found it; "": it registered itself
	client   api.DevicePluginClient
	conn     *grpc.ClientConn
	options  *api.DevicePluginOptions
	end      context.CancelFunc // closes the connection
}

// window is how much of a plugin's answer gRPC buffers.
const window = 64 << 10

// connect connects to the plugin of a resource. It takes the place of an earlier one, if
// there is one and the new one answers.
func (m *Manager) connect(ctx context.Context, resource, socket, watched string) error {
	if !validName(resource) {
		return status.Errorf(codes.InvalidArgument, "the ResourceName %q is invalid", clip(resource))
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	select {
	case m.turns <- struct{}{}:
		defer func() { <-m.turns }()
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	if err := m.room(resource); err != nil {
		return err
	}
	conn, err := m.cfg.Dial(socket, grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window))
	if err != nil {
		return fmt.Errorf("connect to device plugin %s: %w", resource, err)
	}
	p := &plugin{resource: resource, watched: watched, conn: conn, client: api.NewDevicePluginClient(conn)}
	if p.options, err = p.client.GetDevicePluginOptions(ctx, &api.Empty{}, grpc.WaitForReady(true)); err != nil {
		_ = conn.Close()
		return fmt.Errorf("failed to get device plugin options: %w", err)
	}
	if err := m.adopt(p); err != nil {
		_ = conn.Close()
		return err
	}
	m.cfg.Log.Info("device plugin connected", "resource", resource, "socket", socket)
	return nil
}

// room returns an error if there are too many resources to add one.
func (m *Manager) room(resource string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.resources[resource] == nil && m.newest[resource] == nil && len(m.resources)+len(m.newest) >= maxResources {
		return status.Errorf(codes.ResourceExhausted, "the node has %d resources of device plugins already", maxResources)
	}
	return nil
}

// adopt makes p the plugin of its resource and follows its devices.
func (m *Manager) adopt(p *plugin) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.run == nil || m.run.Err() != nil {
		return status.Error(codes.Unavailable, "the kubelet is starting or stopping")
	}
	if before := m.newest[p.resource]; before != nil {
		before.end()
	}
	var ctx context.Context
	ctx, p.end = context.WithCancel(m.run)
	m.newest[p.resource] = p
	if o := m.offeredLocked(p.resource); o != nil {
		o.plugin = p // the devices are the earlier plugin's until p has listed its own
		m.cfg.Metrics.registered(p.resource)
	}
	m.plugins.Go(func() {
		err := m.follow(ctx, p)
		p.end()
		_ = p.conn.Close()
		m.lost(p, err)
	})
	return nil
}

// follow takes over the lists of a plugin until its stream or ctx ends.
func (m *Manager) follow(ctx context.Context, p *plugin) error {
	stream, err := p.client.ListAndWatch(ctx, &api.Empty{})
	if err != nil {
		return err
	}
	for {
		list, err := stream.Recv()
		if err != nil {
			return err
		}
		start := time.Now()
		m.listed(p, inventory(list.Devices))
		// A plugin that floods the kubelet takes at most a tenth of a CPU; gRPC makes it
		// wait meanwhile.
		_ = backoff.Sleep(ctx, min(9*time.Since(start), time.Second))
	}
}

// listed replaces the devices of a plugin's resource.
func (m *Manager) listed(p *plugin, list map[string]device) {
	m.mu.Lock()
	first := m.newest[p.resource] == p && m.offeredLocked(p.resource) == nil
	if first {
		m.resources[p.resource] = &offer{removed: true}
	}
	m.mu.Unlock()
	if first {
		// The checkpoint names the resource before the API can have devices of it: a
		// restarted kubelet then reports none until the plugin is back.
		if err := m.save(); err != nil {
			m.cfg.Log.Warn("write checkpoint of device plugins failed", "error", err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newest[p.resource] != p {
		return
	}
	o := m.resources[p.resource]
	if o.removed { // only then: the number of resources is bounded
		m.cfg.Metrics.registered(p.resource)
	}
	changed := o.removed || o.plugin != p || !maps.EqualFunc(o.devices, list, func(a, b device) bool { return a.healthy == b.healthy })
	o.plugin, o.removed, o.devices = p, false, list
	if changed {
		m.noticeLocked(p.resource)
	}
}

// lost makes the devices of a plugin unhealthy when the connection to it has ended. While
// the kubelet stops, they stay as they are.
func (m *Manager) lost(p *plugin, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newest[p.resource] != p || m.run == nil || m.run.Err() != nil {
		return
	}
	m.cfg.Log.Warn("device plugin lost", "resource", p.resource, "error", err)
	delete(m.newest, p.resource)
	o := m.offeredLocked(p.resource)
	if o == nil {
		return // it never listed a device
	}
	o.plugin, o.lost = nil, time.Now()
	for id, d := range o.devices {
		d.healthy = false
		o.devices[id] = d
	}
	m.noticeLocked(p.resource)
}
