// Package csitest is a CSI driver for tests. A volume is a directory below Dir, named by
// its handle; staging and publishing bind-mount it. It serves the node, identity and
// controller services and the registration on real sockets, and lets a test look at, fail
// or delay every call.
package csitest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"sync"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Capability is something that the node service of a driver can do.
type Capability = spec.NodeServiceCapability_RPC_Type

// Driver is a CSI driver.
type Driver struct {
	Name, NodeID string
	Dir          string // of the volumes
	Limit        int64  // of volumes per node; 0: none
	Topology     map[string]string
	Capabilities []Capability
	Versions     []string // nil: 1.0.0
	Mounts       Mounts
	Provisions   bool // it also creates, expands and deletes volumes

	// Before and After are called around every call, with the name of its method. An
	// error is the answer. They may block; both may be nil.
	Before, After func(ctx context.Context, method string, req any) error

	spec.UnimplementedNodeServer
	spec.UnimplementedIdentityServer
	spec.UnimplementedControllerServer
	registration.UnimplementedRegistrationServer

	mu       sync.Mutex
	statuses []*registration.RegistrationStatus
	sizes    map[string]int64 // of the volumes that were created, in bytes, by handle
}

// Mounts are the mounts of a node.
type Mounts interface {
	Bind(source, target string, readOnly bool) error
	Unmount(target string) error // of a target that is mounted
	Mounted(target string) (bool, error)
}

// Serve serves the driver on the socket endpoint and its registration in the directory
// registry, until stop is called.
func (d *Driver) Serve(endpoint, registry string) (stop func(), err error) {
	driver := grpc.NewServer(grpc.UnaryInterceptor(d.around))
	spec.RegisterNodeServer(driver, d)
	spec.RegisterIdentityServer(driver, d)
	spec.RegisterControllerServer(driver, d)
	if err := listen(driver, endpoint); err != nil {
		return nil, err
	}
	registrar := grpc.NewServer()
	registration.RegisterRegistrationServer(registrar, &registrarOf{d: d, endpoint: endpoint})
	socket := filepath.Join(registry, d.Name+"-reg.sock")
	if err := listen(registrar, socket); err != nil {
		driver.Stop()
		return nil, err
	}
	return func() {
		registrar.Stop()
		driver.Stop()
	}, nil
}

func listen(s *grpc.Server, socket string) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	go func() { _ = s.Serve(l) }() // it ends with Stop
	return nil
}

func (d *Driver) around(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	method := path.Base(info.FullMethod)
	if d.Before != nil {
		if err := d.Before(ctx, method, req); err != nil {
			return nil, err
		}
	}
	resp, err := handle(ctx, req)
	if err == nil && d.After != nil {
		err = d.After(ctx, method, req)
	}
	return resp, err
}

type registrarOf struct {
	registration.UnimplementedRegistrationServer
	d        *Driver
	endpoint string
}

func (r *registrarOf) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	versions := r.d.Versions
	if versions == nil {
		versions = []string{"1.0.0"}
	}
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.d.Name, Endpoint: r.endpoint, SupportedVersions: versions}, nil
}

func (r *registrarOf) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	r.d.statuses = append(r.d.statuses, s)
	return &registration.RegistrationStatusResponse{}, nil
}

// Statuses returns the answers to registrations: "" for success, else the error.
func (d *Driver) Statuses() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for _, s := range d.statuses {
		out = append(out, s.Error)
	}
	return out
}

// GetPluginInfo, Probe and the following are the services of the driver.
func (d *Driver) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: d.Name, VendorVersion: "1"}, nil
}

func (d *Driver) GetPluginCapabilities(context.Context, *spec.GetPluginCapabilitiesRequest) (*spec.GetPluginCapabilitiesResponse, error) {
	return &spec.GetPluginCapabilitiesResponse{Capabilities: []*spec.PluginCapability{{Type: &spec.PluginCapability_Service_{
		Service: &spec.PluginCapability_Service{Type: spec.PluginCapability_Service_CONTROLLER_SERVICE},
	}}}}, nil
}

func (d *Driver) Probe(context.Context, *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	return &spec.ProbeResponse{}, nil
}

func (d *Driver) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	out := &spec.NodeGetInfoResponse{NodeId: d.NodeID, MaxVolumesPerNode: d.Limit}
	if d.Topology != nil {
		out.AccessibleTopology = &spec.Topology{Segments: d.Topology}
	}
	return out, nil
}

func (d *Driver) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	out := &spec.NodeGetCapabilitiesResponse{}
	for _, c := range d.Capabilities {
		out.Capabilities = append(out.Capabilities, &spec.NodeServiceCapability{Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: c}}})
	}
	return out, nil
}

func (d *Driver) NodeStageVolume(_ context.Context, r *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	dir := filepath.Join(d.Dir, r.VolumeId)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, internal(err)
	}
	return &spec.NodeStageVolumeResponse{}, internal(d.bind(dir, r.StagingTargetPath, false))
}

func (d *Driver) NodeUnstageVolume(_ context.Context, r *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	return &spec.NodeUnstageVolumeResponse{}, internal(d.unmount(r.StagingTargetPath))
}

func (d *Driver) NodePublishVolume(_ context.Context, r *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	source := r.StagingTargetPath
	if source == "" {
		source = filepath.Join(d.Dir, r.VolumeId)
		if err := os.MkdirAll(source, 0o777); err != nil {
			return nil, internal(err)
		}
	} else if ok, err := d.Mounts.Mounted(source); err != nil || !ok {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is not staged: %v", r.VolumeId, err)
	}
	if err := os.MkdirAll(r.TargetPath, 0o750); err != nil {
		return nil, internal(err)
	}
	return &spec.NodePublishVolumeResponse{}, internal(d.bind(source, r.TargetPath, r.Readonly))
}

func (d *Driver) NodeUnpublishVolume(_ context.Context, r *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	if err := d.unmount(r.TargetPath); err != nil {
		return nil, internal(err)
	}
	if err := os.Remove(r.TargetPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, internal(err)
	}
	return &spec.NodeUnpublishVolumeResponse{}, nil
}

func (d *Driver) NodeExpandVolume(context.Context, *spec.NodeExpandVolumeRequest) (*spec.NodeExpandVolumeResponse, error) {
	return &spec.NodeExpandVolumeResponse{}, nil
}

func (d *Driver) NodeGetVolumeStats(_ context.Context, r *spec.NodeGetVolumeStatsRequest) (*spec.NodeGetVolumeStatsResponse, error) {
	return &spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{
		{Unit: spec.VolumeUsage_BYTES, Total: 100, Used: 30, Available: 70}, {Unit: spec.VolumeUsage_INODES, Total: 10, Used: 3, Available: 7},
	}}, nil
}

// bind and unmount do nothing if it is already done.
func (d *Driver) bind(source, target string, readOnly bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ok, err := d.Mounts.Mounted(target); ok || err != nil {
		return err
	}
	return d.Mounts.Bind(source, target, readOnly)
}

func (d *Driver) unmount(target string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ok, err := d.Mounts.Mounted(target); !ok || err != nil {
		return err
	}
	return d.Mounts.Unmount(target)
}

func internal(err error) error {
	if err == nil {
		return nil
	}
	return status.Error(codes.Internal, fmt.Sprint(err))
}
