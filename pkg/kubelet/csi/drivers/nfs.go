package drivers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"podium/pkg/intree"
)

// NFS is the driver of nfs volumes. Each pod has a mount of its own.
type NFS struct {
	spec.UnimplementedNodeServer
	host  Host
	meter meter
}

// NewNFS returns the driver.
func NewNFS(host Host) *NFS { return &NFS{host: host.withDefaults()} }

// NodeGetCapabilities returns what the driver can do.
func (*NFS) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	return capabilities(spec.NodeServiceCapability_RPC_GET_VOLUME_STATS), nil
}

// NodeGetVolumeStats returns the statistics of the server's file system.
func (n *NFS) NodeGetVolumeStats(ctx context.Context, req *spec.NodeGetVolumeStatsRequest) (*spec.NodeGetVolumeStatsResponse, error) {
	return n.meter.measure(ctx, req)
}

// NodePublishVolume mounts a directory of the server with mount(8).
func (n *NFS) NodePublishVolume(ctx context.Context, req *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	mount := req.GetVolumeCapability().GetMount()
	if mount == nil {
		return nil, status.Error(codes.InvalidArgument, "nfs volumes are file systems: volumeMode Block is not supported")
	}
	if done, err := n.host.mounted(req.TargetPath); err != nil || done {
		return &spec.NodePublishVolumeResponse{}, err
	}
	source, err := export(req.VolumeContext)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := os.Mkdir(req.TargetPath, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	options := mount.MountFlags
	if req.Readonly {
		options = append(options, "ro")
	}
	args := []string{"-t", "nfs"}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	if _, err := n.host.Run(ctx, "mount", append(args, "--", source, req.TargetPath)...); err != nil {
		return nil, errors.Join(n.explain(err), os.Remove(req.TargetPath))
	}
	return &spec.NodePublishVolumeResponse{}, nil
}

// export returns a directory of a server as mount(8) takes it.
func export(attributes map[string]string) (string, error) {
	server, share := attributes[intree.Server], attributes[intree.Share]
	if server == "" || strings.HasPrefix(server, "-") || strings.ContainsAny(server, "/ \t\n") {
		return "", fmt.Errorf("%q is no NFS server", server)
	}
	if strings.Contains(server, ":") && !strings.HasPrefix(server, "[") {
		server = "[" + server + "]"
	}
	return server + ":" + share, nil
}

// explain adds what to do if mount(8) has failed for the want of its helper.
func (n *NFS) explain(err error) error {
	const helper = "mount.nfs"
	var failed *ProgramError
	if errors.As(err, &failed) && strings.Contains(failed.Output, "helper program") {
		return fmt.Errorf("%w: %w", missing(helper), err)
	}
	return err
}

// unmountPatience is how long an unmount waits for the server.
const unmountPatience = 10 * time.Second

// NodeUnpublishVolume unmounts a volume, also if its server does not answer.
func (n *NFS) NodeUnpublishVolume(ctx context.Context, req *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	return &spec.NodeUnpublishVolumeResponse{}, n.host.unpublish(req.TargetPath, func(target string) error { return n.unmount(ctx, target) })
}

// unmount waits for the server for a while. Then the mount is gone from the directory, and
// the kernel frees the rest when the server answers; or it ends the calls that wait for
// the server, and fails.
func (n *NFS) unmount(ctx context.Context, target string) error {
	done := make(chan error, 1)
	go func() { done <- n.host.Mounter.Unmount(target) }()
	wait := time.NewTimer(unmountPatience)
	defer wait.Stop()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-wait.C:
	}
	if still, err := n.host.mounted(target); err != nil || !still {
		return err
	}
	return errors.Join(errors.New("the server does not answer"), n.host.Force(target))
}
