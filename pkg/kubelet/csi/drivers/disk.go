package drivers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

var withoutBrackets = strings.NewReplacer("[", "", "]", "")

// links returns the names that udev has given to the disks of a session, by LUN.
func (h Host) links(d *disk, portal string) map[string]string {
	dir := h.path("dev", "disk", "by-path")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	// As ip-10.0.0.1:3260-iscsi-iqn.2001-04.com.example:a-lun-0; other transports put
	// the path of their adapter before it. IPv6 addresses have no brackets.
	prefix := fmt.Sprintf("ip-%s-iscsi-%s-lun-", withoutBrackets.Replace(portal), d.IQN)
	out := map[string]string{}
	for _, e := range entries {
		if _, lun, ok := strings.Cut(e.Name(), prefix); ok && !strings.Contains(lun, "-") { // no partition
			out[lun] = filepath.Join(dir, e.Name())
		}
	}
	return out
}

// luns returns the devices of a session, without some LUNs.
func (h Host) luns(d *disk, portal string, except ...string) (out []string) {
	for lun, link := range h.links(d, portal) {
		if device, err := filepath.EvalSymlinks(link); err == nil && !slices.Contains(except, lun) {
			out = append(out, device)
		}
	}
	slices.Sort(out)
	return out
}

// byPath returns the device of a disk at a portal, if udev has named it.
func (h Host) byPath(d *disk, portal string) (device string, ok bool) {
	link, ok := h.links(d, portal)[d.LUN]
	if !ok {
		return "", false
	}
	device, err := filepath.EvalSymlinks(link)
	return device, err == nil
}

// paths returns the devices of a disk, one for each of the portals that has one.
func (h Host) paths(d *disk, portals []string) (out []string) {
	for _, portal := range portals {
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
	paths := h.paths(d, d.Portals)
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

// giveUp checks that no mount uses devices any more, also none that was detached while a
// process used it, and has multipathd give them up. The end of the session would lose what
// they write. The error of a device in use is EBUSY.
func (h Host) giveUp(ctx context.Context, devices []string) error {
	var joined []string
	for _, device := range devices {
		if m, ok := h.multipath(device); ok {
			device = m
			if !slices.Contains(joined, m) {
				joined = append(joined, m)
			}
		}
		err := patiently(ctx, func() error { return h.Claim(device) })
		switch {
		case errors.Is(err, unix.EBUSY):
			return fmt.Errorf("the file system of %s is still mounted: %w", device, err)
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
			return fmt.Errorf("open %s: %w", device, err)
		}
	}
	for _, m := range joined {
		if _, err := h.Run(ctx, "multipath", "-f", m); err != nil {
			return fmt.Errorf("flush %s: %w", m, err)
		}
	}
	return nil
}

// remove deletes the device of a disk at a portal, if there is one: the target may give its
// LUN to another disk. It waits until udev no longer names the device, because the kernel
// may use its name again.
func (h Host) remove(ctx context.Context, d *disk, portal string) error {
	device, ok := h.byPath(d, portal)
	if !ok {
		return nil
	}
	if err := patiently(ctx, func() error { return h.Delete(device) }); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete %s: %w", device, err)
	}
	for begin := time.Now(); time.Since(begin) < deviceTimeout; {
		if now, err := os.Readlink(h.links(d, portal)[d.LUN]); err != nil || filepath.Base(now) != filepath.Base(device) {
			return nil
		}
		if err := backoff.Sleep(ctx, devicePeriod); err != nil {
			return err
		}
	}
	return fmt.Errorf("udev still names %s, which is deleted", device)
}

// renew deletes the devices of a disk that no volume uses, so that a scan finds what the
// target has at the LUN now. It leaves a disk alone that the host itself uses.
func (h Host) renew(ctx context.Context, d *disk) error {
	err := h.giveUp(ctx, h.paths(d, d.Portals))
	if errors.Is(err, unix.EBUSY) {
		return nil
	}
	for _, portal := range d.Portals {
		if err == nil {
			err = h.remove(ctx, d, portal)
		}
	}
	return err
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
