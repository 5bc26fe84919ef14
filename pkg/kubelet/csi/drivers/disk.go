package drivers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"podium/pkg/backoff"
)

const (
	deviceTimeout    = 30 * time.Second // after the login, until udev has named the device
	multipathTimeout = 5 * time.Second  // after several devices, until multipathd has joined them
	devicePeriod     = 100 * time.Millisecond
)

// byPath returns the device of a disk at a portal, if udev has named it.
func (h Host) byPath(d *disk, portal string) (device string, ok bool) {
	dir := h.path("dev", "disk", "by-path")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", false
	}
	// As ip-10.0.0.1:3260-iscsi-iqn.2001-04.com.example:a-lun-0; other transports put
	// the path of their adapter before it.
	suffix := fmt.Sprintf("ip-%s-iscsi-%s-lun-%s", portal, d.IQN, d.LUN)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		if device, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name())); err == nil {
			return device, true
		}
	}
	return "", false
}

// paths returns the devices of a disk, one for each portal that has one.
func (h Host) paths(d *disk) (out []string) {
	for _, portal := range d.Portals {
		if device, ok := h.byPath(d, portal); ok && !slices.Contains(out, device) {
			out = append(out, device)
		}
	}
	return out
}

// multipath returns the device by which multipathd joins the paths that include one.
func (h Host) multipath(device string) (joined string, ok bool) {
	holders, err := os.ReadDir(h.path("sys", "class", "block", filepath.Base(device), "holders"))
	if err != nil {
		return "", false
	}
	for _, e := range holders {
		uuid, err := os.ReadFile(h.path("sys", "class", "block", e.Name(), "dm", "uuid"))
		if err == nil && strings.HasPrefix(string(uuid), "mpath-") {
			return h.path("dev", e.Name()), true
		}
	}
	return "", false
}

// device returns the device of a disk that has a session. joined says that it is one of
// multipathd.
func (h Host) device(d *disk) (device string, joined bool, err error) {
	paths := h.paths(d)
	for _, p := range paths {
		if device, ok := h.multipath(p); ok {
			return device, true, nil
		}
	}
	if len(paths) == 0 {
		return "", false, fmt.Errorf("no device of target %s, LUN %s, has appeared", d.IQN, d.LUN)
	}
	return paths[0], false, nil
}

// await returns the device of a disk when it has appeared. If the disk has several portals,
// it also waits for multipathd, which need not run.
func (h Host) await(ctx context.Context, d *disk) (string, error) {
	begin := time.Now()
	for {
		device, joined, err := h.device(d)
		waited := time.Since(begin)
		if err == nil && (joined || len(d.Portals) == 1 || waited >= multipathTimeout) {
			return device, nil
		}
		if err != nil && waited >= deviceTimeout {
			return "", err
		}
		if err := backoff.Sleep(ctx, devicePeriod); err != nil {
			return "", err
		}
	}
}

// giveUp checks that no mount uses a disk any more, also none that was detached while a
// process used it, and has multipathd give it up. The end of the session would lose what
// they write.
func (h Host) giveUp(ctx context.Context, d *disk) error {
	device, joined, err := h.device(d)
	if err != nil { // without a device there is nothing to lose
		return nil
	}
	if err := h.Claim(device); errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("the file system of %s is still mounted", device)
	}
	if !joined {
		return nil
	}
	if _, err := h.Run(ctx, "multipath", "-f", device); err != nil {
		return fmt.Errorf("flush %s: %w", device, err)
	}
	return nil
}

// deviceSize returns the size of a block device as statistics; its usage is not known.
func deviceSize(path string) (*spec.NodeGetVolumeStatsResponse, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	return &spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{{Unit: spec.VolumeUsage_BYTES, Total: size}}}, err
}
