// Package devicetest is a device plugin for tests. It checks what the kubelet asks of it.
package devicetest

import (
	"context"
	"fmt"
	"net"
	"path"
	"slices"
	"sync"

	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Plugin is a device plugin. Its fields are set before Serve, or by Change.
type Plugin struct {
	Resource string
	Options  *api.DevicePluginOptions // nil: none
	Endpoint string                   // that it tells the plugin watcher; "": its registration socket

	// Give returns how a container gets devices; nil: by the variable DEVICES.
	Give func(ids []string) *api.ContainerAllocateResponse
	// Prefer returns which devices the plugin prefers; nil: the last ones.
	Prefer func(r *api.ContainerPreferredAllocationRequest) []string
	// Before is called before every call, with the name of its method. An error is the
	// answer. It may block; nil: nothing is called.
	Before func(ctx context.Context, method string) error

	api.UnimplementedDevicePluginServer
	registration.UnimplementedRegistrationServer

	mu       sync.Mutex
	devices  []*api.Device
	changed  chan struct{} // closed when devices changes; nil: no stream waits
	calls    []string
	problems []string
	answers  []*registration.RegistrationStatus
}

// New returns a plugin with healthy devices.
func New(resource string, ids ...string) *Plugin {
	p := &Plugin{Resource: resource}
	p.Set(Healthy(ids...)...)
	return p
}

// Healthy returns healthy devices with the ids.
func Healthy(ids ...string) []*api.Device { return with(api.Healthy, ids) }

// Unhealthy returns unhealthy devices with the ids.
func Unhealthy(ids ...string) []*api.Device { return with(api.Unhealthy, ids) }

func with(health string, ids []string) []*api.Device {
	var out []*api.Device
	for _, id := range ids {
		out = append(out, &api.Device{ID: id, Health: health})
	}
	return out
}

// Set replaces the devices and tells the kubelet.
func (p *Plugin) Set(devices ...*api.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.devices = devices
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// Change calls f, which may set fields while the plugin is served.
func (p *Plugin) Change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// before calls Before.
func (p *Plugin) before(ctx context.Context, method string) error {
	p.mu.Lock()
	f := p.Before
	p.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx, method)
}

// Serve serves the plugin, and its registration with the plugin watcher, until stop is called.
func (p *Plugin) Serve(l net.Listener) (stop func()) {
	s := grpc.NewServer(grpc.UnaryInterceptor(p.around))
	api.RegisterDevicePluginServer(s, p)
	registration.RegisterRegistrationServer(s, p)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // it ends with Stop
	}()
	return func() {
		s.Stop()
		<-done
	}
}

// Register registers the plugin with the kubelet behind conn. endpoint is the name of its
// socket.
func (p *Plugin) Register(ctx context.Context, conn grpc.ClientConnInterface, endpoint string) error {
	_, err := api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: endpoint, ResourceName: p.Resource, Options: p.Options,
	}, grpc.WaitForReady(true))
	return err
}

func (p *Plugin) around(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	method := path.Base(info.FullMethod)
	if err := p.before(ctx, method); err != nil {
		return nil, err
	}
	return handle(ctx, req)
}

// Calls returns the calls so far with their devices, without those of registration.
func (p *Plugin) Calls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// Problems returns what the kubelet did wrong.
func (p *Plugin) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.problems)
}

// Answers returns what the plugin watcher told the plugin.
func (p *Plugin) Answers() []*registration.RegistrationStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.answers)
}

// check records a problem unless ok. p.mu is held.
func (p *Plugin) check(ok bool, format string, args ...any) {
	if !ok {
		p.problems = append(p.problems, fmt.Sprintf(format, args...))
	}
}

// checkIDs checks a list of devices. p.mu is held.
func (p *Plugin) checkIDs(method string, ids []string) {
	p.check(slices.IsSorted(ids) && len(slices.Compact(slices.Clone(ids))) == len(ids), "%s: %v has no order or an id twice", method, ids)
	for _, id := range ids {
		p.check(slices.ContainsFunc(p.devices, func(d *api.Device) bool { return d.ID == id }), "%s: there is no device %s", method, id)
	}
}

// GetDevicePluginOptions and the following are the plugin's service.
func (p *Plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Options == nil {
		return &api.DevicePluginOptions{}, nil
	}
	return p.Options, nil
}

func (p *Plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	if err := p.before(stream.Context(), "ListAndWatch"); err != nil {
		return err
	}
	for {
		p.mu.Lock()
		list := p.devices
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.mu.Unlock()
		if err := stream.Send(&api.ListAndWatchResponse{Devices: list}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (p *Plugin) GetPreferredAllocation(_ context.Context, req *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.check(p.Options.GetGetPreferredAllocationAvailable(), "GetPreferredAllocation: the plugin has none")
	p.check(len(req.ContainerRequests) == 1, "GetPreferredAllocation: %d containers", len(req.ContainerRequests))
	r := req.ContainerRequests[0]
	p.calls = append(p.calls, fmt.Sprintf("GetPreferredAllocation %d of %v with %v", r.AllocationSize, r.AvailableDeviceIDs, r.MustIncludeDeviceIDs))
	p.checkIDs("GetPreferredAllocation", r.AvailableDeviceIDs)
	p.check(r.AllocationSize > 0 && int(r.AllocationSize) <= len(r.AvailableDeviceIDs), "GetPreferredAllocation: %d of %d", r.AllocationSize, len(r.AvailableDeviceIDs))
	for _, id := range r.MustIncludeDeviceIDs {
		p.check(slices.Contains(r.AvailableDeviceIDs, id), "GetPreferredAllocation: %s is not available", id)
	}
	ids := r.AvailableDeviceIDs[max(0, len(r.AvailableDeviceIDs)-int(r.AllocationSize)):]
	if p.Prefer != nil {
		ids = p.Prefer(r)
	}
	return &api.PreferredAllocationResponse{ContainerResponses: []*api.ContainerPreferredAllocationResponse{{DeviceIDs: ids}}}, nil
}

func (p *Plugin) Allocate(_ context.Context, req *api.AllocateRequest) (*api.AllocateResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := &api.AllocateResponse{}
	p.check(len(req.ContainerRequests) == 1, "Allocate: %d containers", len(req.ContainerRequests))
	for _, r := range req.ContainerRequests {
		p.calls = append(p.calls, fmt.Sprintf("Allocate %v", r.DevicesIds))
		p.check(len(r.DevicesIds) > 0, "Allocate: no devices")
		p.checkIDs("Allocate", r.DevicesIds)
		for _, d := range p.devices {
			p.check(d.Health == api.Healthy || !slices.Contains(r.DevicesIds, d.ID), "Allocate: %s is not healthy", d.ID)
		}
		answer := &api.ContainerAllocateResponse{Envs: map[string]string{"DEVICES": fmt.Sprint(r.DevicesIds)}}
		if p.Give != nil {
			answer = p.Give(r.DevicesIds)
		}
		out.ContainerResponses = append(out.ContainerResponses, answer)
	}
	return out, nil
}

func (p *Plugin) PreStartContainer(_ context.Context, req *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, fmt.Sprintf("PreStartContainer %v", req.DevicesIds))
	p.check(p.Options.GetPreStartRequired(), "PreStartContainer: the plugin needs none")
	p.check(len(req.DevicesIds) > 0, "PreStartContainer: no devices")
	p.checkIDs("PreStartContainer", req.DevicesIds)
	return &api.PreStartContainerResponse{}, nil
}

// GetInfo and NotifyRegistrationStatus are the registration with the plugin watcher.
func (p *Plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &registration.PluginInfo{Type: registration.DevicePlugin, Name: p.Resource, Endpoint: p.Endpoint, SupportedVersions: []string{api.Version}}, nil
}

func (p *Plugin) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers = append(p.answers, s)
	return &registration.RegistrationStatusResponse{}, nil
}
