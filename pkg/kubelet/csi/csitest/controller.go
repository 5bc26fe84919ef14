package csitest

import (
	"context"
	"maps"
	"os"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// MadeFor is the key of a created volume's context that names the claim, if the
// provisioner does.
const MadeFor = "made-for"

// ControllerGetCapabilities and the following are the controller service of the driver.
func (d *Driver) ControllerGetCapabilities(context.Context, *spec.ControllerGetCapabilitiesRequest) (*spec.ControllerGetCapabilitiesResponse, error) {
	can := []spec.ControllerServiceCapability_RPC_Type{spec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME}
	if d.Provisions {
		can = append(can, spec.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, spec.ControllerServiceCapability_RPC_EXPAND_VOLUME)
	}
	out := &spec.ControllerGetCapabilitiesResponse{}
	for _, c := range can {
		out.Capabilities = append(out.Capabilities, &spec.ControllerServiceCapability{Type: &spec.ControllerServiceCapability_Rpc{
			Rpc: &spec.ControllerServiceCapability_RPC{Type: c},
		}})
	}
	return out, nil
}

func (d *Driver) ControllerPublishVolume(_ context.Context, r *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	return &spec.ControllerPublishVolumeResponse{PublishContext: map[string]string{"attached-to": r.NodeId}}, nil
}

func (d *Driver) ControllerUnpublishVolume(context.Context, *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	return &spec.ControllerUnpublishVolumeResponse{}, nil
}

// CreateVolume names the volume by the request: a repeated request makes no second one.
func (d *Driver) CreateVolume(_ context.Context, r *spec.CreateVolumeRequest) (*spec.CreateVolumeResponse, error) {
	if r.Name == "" || len(r.VolumeCapabilities) == 0 {
		return nil, status.Error(codes.InvalidArgument, "a volume needs a name and capabilities")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	handle, size := "disk-"+r.Name, max(r.CapacityRange.GetRequiredBytes(), 1)
	if have, ok := d.sizes[handle]; ok && have != size {
		return nil, status.Errorf(codes.AlreadyExists, "volume %s has %d bytes", handle, have)
	}
	if err := os.MkdirAll(filepath.Join(d.Dir, handle), 0o777); err != nil {
		return nil, internal(err)
	}
	if d.sizes == nil {
		d.sizes = map[string]int64{}
	}
	d.sizes[handle] = size
	return &spec.CreateVolumeResponse{Volume: &spec.Volume{
		VolumeId: handle, CapacityBytes: size, VolumeContext: map[string]string{MadeFor: r.Parameters["csi.storage.k8s.io/pvc/name"]},
	}}, nil
}

func (d *Driver) DeleteVolume(_ context.Context, r *spec.DeleteVolumeRequest) (*spec.DeleteVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sizes, r.VolumeId)
	return &spec.DeleteVolumeResponse{}, internal(os.RemoveAll(filepath.Join(d.Dir, filepath.Base(r.VolumeId))))
}

func (d *Driver) ControllerExpandVolume(_ context.Context, r *spec.ControllerExpandVolumeRequest) (*spec.ControllerExpandVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.sizes[r.VolumeId]; !ok {
		return nil, status.Errorf(codes.NotFound, "there is no volume %s", r.VolumeId)
	}
	size := max(d.sizes[r.VolumeId], r.CapacityRange.GetRequiredBytes())
	d.sizes[r.VolumeId] = size
	return &spec.ControllerExpandVolumeResponse{CapacityBytes: size, NodeExpansionRequired: true}, nil
}

// Volumes returns the sizes of the volumes that were created and not deleted, by handle.
func (d *Driver) Volumes() map[string]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.sizes)
}
