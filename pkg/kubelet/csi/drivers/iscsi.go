package drivers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"podium/pkg/intree"
	"podium/pkg/kubelet/csi/keylock"
)

// ISCSI is the driver of iscsi volumes. It stages a volume with a session to its target
// and, unless containers get the device, a mount of its file system. It ends a session
// when no staged volume uses it.
type ISCSI struct {
	spec.UnimplementedNodeServer
	host    Host
	meter   meter
	records records

	targets keylock.Locks[string] // by IQN: held while sessions with the target begin or end
}

// NewISCSI returns the driver. It keeps what is staged in the directory dir, which it
// creates.
func NewISCSI(host Host, dir string, log *slog.Logger) *ISCSI {
	return &ISCSI{host: host.withDefaults(), records: records{dir: dir, log: log}}
}

// NodeGetCapabilities returns what the driver can do.
func (*ISCSI) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	return capabilities(spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, spec.NodeServiceCapability_RPC_GET_VOLUME_STATS), nil
}

// NodeGetVolumeStats returns the statistics of a file system or the size of a device.
func (s *ISCSI) NodeGetVolumeStats(ctx context.Context, req *spec.NodeGetVolumeStatsRequest) (*spec.NodeGetVolumeStatsResponse, error) {
	if info, err := os.Stat(req.VolumePath); err == nil && info.Mode()&os.ModeDevice != 0 {
		return deviceSize(req.VolumePath)
	}
	return s.meter.measure(ctx, req)
}

// NodeStageVolume logs in to the target, and makes and mounts a file system.
func (s *ISCSI) NodeStageVolume(ctx context.Context, req *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	d, err := diskOf(req.VolumeId, req.VolumeContext)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	device, err := s.connect(ctx, d, req.Secrets)
	if err != nil {
		return nil, err
	}
	mount := req.VolumeCapability.GetMount()
	if mount == nil {
		return &spec.NodeStageVolumeResponse{}, nil
	}
	if done, err := s.host.mounted(req.StagingTargetPath); err != nil || done {
		return &spec.NodeStageVolumeResponse{}, err
	}
	readOnly := req.VolumeContext[intree.ReadOnly] != "" ||
		req.VolumeCapability.GetAccessMode().GetMode() == spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	return &spec.NodeStageVolumeResponse{}, s.host.mountDisk(ctx, device, req.StagingTargetPath, mount.FsType, mount.MountFlags, readOnly)
}

// NodeUnstageVolume unmounts a volume, and logs out of its target if nothing else uses the
// session.
func (s *ISCSI) NodeUnstageVolume(ctx context.Context, req *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	points, err := s.host.Mounter.Under(req.StagingTargetPath)
	for _, p := range points {
		err = errors.Join(err, s.host.Mounter.Unmount(p))
	}
	if err != nil {
		return nil, fmt.Errorf("unmount %s: %w", req.StagingTargetPath, err)
	}
	return &spec.NodeUnstageVolumeResponse{}, s.disconnect(ctx, req.VolumeId)
}

// NodePublishVolume mounts the staged file system, or the device, for a pod.
func (s *ISCSI) NodePublishVolume(ctx context.Context, req *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	if done, err := s.host.mounted(req.TargetPath); err != nil || done {
		return &spec.NodePublishVolumeResponse{}, err
	}
	source := req.StagingTargetPath
	if req.GetVolumeCapability().GetBlock() != nil {
		d, err := diskOf(req.VolumeId, req.VolumeContext)
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		if source, _, err = s.host.device(d); err != nil {
			return nil, err
		}
		if err := os.WriteFile(req.TargetPath, nil, 0o640); err != nil {
			return nil, err
		}
	} else if err := os.Mkdir(req.TargetPath, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	f, err := os.OpenFile(source, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return &spec.NodePublishVolumeResponse{}, s.host.Mounter.Bind(int(f.Fd()), req.TargetPath)
}

// NodeUnpublishVolume removes a pod's mount.
func (s *ISCSI) NodeUnpublishVolume(_ context.Context, req *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	return &spec.NodeUnpublishVolumeResponse{}, s.host.unpublish(req.TargetPath, s.host.Mounter.Unmount)
}

// diskOf reads the attributes of a volume.
func diskOf(volume string, a map[string]string) (*disk, error) {
	d := &disk{
		Volume: volume, Portals: strings.Split(a[intree.Portals], ","), IQN: a[intree.IQN], LUN: a[intree.LUN], Interface: a[intree.Interface],
		Initiator: a[intree.Initiator], DiscoverCHAP: a[intree.DiscoverCHAP] != "", SessionCHAP: a[intree.SessionCHAP] != "",
	}
	for _, word := range append([]string{d.IQN, d.LUN, d.Interface}, d.Portals...) {
		if word == "" || strings.HasPrefix(word, "-") {
			return nil, fmt.Errorf("%q is no part of the address of an iSCSI volume", word)
		}
	}
	if strings.Contains(d.Interface, "/") {
		return nil, fmt.Errorf("%q is no iSCSI interface", d.Interface)
	}
	return d, nil
}
