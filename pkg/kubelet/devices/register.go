package devices

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podium/pkg/kubelet/plugins"
)

// socketName is the socket of the Registration service.
const socketName = "kubelet.sock"

// serve serves the Registration service until stop is called. It removes the sockets of an
// earlier kubelet's plugins: by that they notice that they have to register again.
func (m *Manager) serve() (stop func(), err error) {
	if err := os.MkdirAll(m.dir(), 0o750); err != nil {
		return nil, err
	}
	if err := removeSockets(m.dir()); err != nil {
		return nil, err
	}
	l, err := m.cfg.Listen(filepath.Join(m.dir(), socketName))
	if err != nil {
		return nil, err
	}
	s := grpc.NewServer(grpc.WaitForHandlers(true))
	api.RegisterRegistrationServer(s, &registrar{m: m})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // it ends with Stop
	}()
	return func() {
		s.Stop()
		<-done
	}, nil
}

func removeSockets(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type() != fs.ModeSocket {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// registrar is the Registration service.
type registrar struct {
	api.UnimplementedRegistrationServer
	m *Manager
}

// Register connects to a plugin. The plugin's socket is in the kubelet's directory for them,
// whatever path the request names.
func (r *registrar) Register(ctx context.Context, req *api.RegisterRequest) (*api.Empty, error) {
	if !slices.Contains(api.SupportedVersions[:], req.Version) {
		return nil, status.Errorf(codes.InvalidArgument, "requested API version %q is not supported by kubelet. Supported version is %q", req.Version, api.SupportedVersions)
	}
	if req.Endpoint == "" {
		return nil, status.Error(codes.InvalidArgument, "the endpoint is empty")
	}
	socket := filepath.Join(r.m.dir(), filepath.Join("/", req.Endpoint))
	if err := r.m.connect(ctx, req.ResourceName, socket, ""); err != nil {
		r.m.cfg.Log.Warn("register device plugin failed", "resource", clip(req.ResourceName), "error", err)
		return nil, err
	}
	return &api.Empty{}, nil
}

// clip shortens a text of a plugin for the log.
func clip(s string) string { return s[:min(len(s), 100)] }

var _ plugins.Handler = (*Manager)(nil)

// Register connects to a plugin that the plugin watcher has found. Its name is that of the
// resource.
func (m *Manager) Register(ctx context.Context, p plugins.Plugin) error {
	if !slices.ContainsFunc(p.Versions, func(v string) bool { return slices.Contains(api.SupportedVersions[:], v) }) {
		return fmt.Errorf("manager version, %s, is not among plugin supported versions %v", api.Version, p.Versions)
	}
	return m.connect(ctx, p.Name, p.Endpoint, p.Socket)
}

// Deregister ends the connection to a plugin, unless another one has taken its place.
func (m *Manager) Deregister(_ context.Context, p plugins.Plugin) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if have := m.newest[p.Name]; have != nil && have.watched == p.Socket {
		have.end()
	}
	return nil
}
