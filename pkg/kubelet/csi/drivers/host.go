package drivers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/kubelet/stats"
	"podium/pkg/kubelet/volumes"
)

// Host is the node as the drivers need it. The zero value is the real one.
type Host struct {
	Mounter volumes.Mounter // nil: volumes.Kernel
	// Run runs a program with a C locale until it ends or ctx ends, and returns what it
	// has written. An error of the program is a *ProgramError. Nil: it is executed.
	Run func(ctx context.Context, program string, args ...string) (string, error)
	// Force ends the calls that wait for the file system on a mount point. Nil: by
	// umount2(2).
	Force func(target string) error
	// Claim opens a block device exclusively and closes it. It fails while a file system
	// on it is mounted anywhere. Nil: by open(2) with O_EXCL.
	Claim func(device string) error
	// Delete deletes a SCSI device. Nil: by sysfs.
	Delete func(device string) error
	// Read reads the start and the end of a block device. Nil: by read(2).
	Read func(device string) error
	Root string // of /dev and /sys; "": "/"
}

func (h Host) withDefaults() Host {
	if h.Mounter == nil {
		h.Mounter = volumes.Kernel{}
	}
	if h.Run == nil {
		h.Run = run
	}
	if h.Force == nil {
		h.Force = func(target string) error { return unix.Unmount(target, unix.MNT_FORCE) }
	}
	if h.Claim == nil {
		h.Claim = func(device string) error {
			f, err := os.OpenFile(device, os.O_RDONLY|unix.O_EXCL, 0)
			if err != nil {
				return err
			}
			return f.Close()
		}
	}
	if h.Read == nil {
		h.Read = readEnds
	}
	h.Root = cmp.Or(h.Root, "/")
	if h.Delete == nil {
		h.Delete = h.deleteDevice
	}
	return h
}

func (h Host) deleteDevice(device string) error {
	f, err := os.OpenFile(h.path("sys", "class", "block", filepath.Base(device), "device", "delete"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("1")
	return errors.Join(err, f.Close())
}

// readEnds reads the start and the end of a device, where file systems, RAID and partition
// tables are described.
func readEnds(device string) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size == 0 {
		return errors.New("it has no size")
	}
	buf := make([]byte, min(size, 128<<10))
	for _, at := range []int64{0, size - int64(len(buf))} {
		if _, err := f.ReadAt(buf, at); err != nil {
			return err
		}
	}
	return nil
}

func (h Host) path(parts ...string) string {
	return filepath.Join(append([]string{h.Root}, parts...)...)
}

// ProgramError says how a program has failed. It does not contain the arguments, which may
// be secrets.
type ProgramError struct {
	Program string
	Code    int // the exit status; -1: a signal ended it
	Output  string
}

func (e *ProgramError) Error() string {
	return fmt.Sprintf("%s: exit status %d: %s", e.Program, e.Code, strings.Join(strings.Fields(e.Output), " "))
}

// exited reports whether an error is that of a program with one of the exit statuses.
func exited(err error, codes ...int) bool {
	var failed *ProgramError
	return errors.As(err, &failed) && slices.Contains(codes, failed.Code)
}

// outputLimit bounds what an error says of a program's output, in bytes.
const outputLimit = 1 << 10

func run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.WaitDelay = time.Second
	// mount(8) runs helpers, which must not outlive it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	text := string(out)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return text, fmt.Errorf("%s: %w", program, ctx.Err())
	case errors.Is(err, exec.ErrNotFound):
		return text, missing(program)
	case errors.As(err, &exit):
		return text, &ProgramError{program, exit.ExitCode(), text[:min(len(text), outputLimit)]}
	case err != nil:
		return text, fmt.Errorf("%s: %w", program, err)
	}
	return text, nil
}

// packages are the Debian packages of programs.
var packages = map[string]string{"mount.nfs": "nfs-common", "iscsiadm": "open-iscsi", "mkfs.xfs": "xfsprogs", "mkfs.btrfs": "btrfs-progs"}

func missing(program string) error {
	if p, ok := packages[program]; ok {
		return fmt.Errorf("%s is not installed on the node: install %s", program, p)
	}
	return fmt.Errorf("%s is not installed on the node", program)
}

// mounted reports whether something is mounted on a path.
func (h Host) mounted(path string) (bool, error) {
	points, err := h.Mounter.Under(path)
	return slices.Contains(points, path), err
}

// unpublish unmounts a path and removes it. It is no error if it does not exist.
func (h Host) unpublish(path string, unmount func(string) error) error {
	points, err := h.Mounter.Under(path)
	if err != nil {
		return err
	}
	for _, p := range points {
		if err := unmount(p); err != nil {
			return fmt.Errorf("unmount %s: %w", p, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// capabilities returns the answer of a driver with these capabilities.
func capabilities(types ...spec.NodeServiceCapability_RPC_Type) *spec.NodeGetCapabilitiesResponse {
	out := &spec.NodeGetCapabilitiesResponse{}
	for _, t := range types {
		out.Capabilities = append(out.Capabilities, &spec.NodeServiceCapability{
			Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return out
}

// meter measures file systems. One that does not answer is not asked again until it does.
type meter struct {
	mu   sync.Mutex
	busy map[string]bool
}

// measure returns the statistics of a volume's file system.
func (m *meter) measure(ctx context.Context, req *spec.NodeGetVolumeStatsRequest) (*spec.NodeGetVolumeStatsResponse, error) {
	type answer struct {
		stats.Filesystem
		err error
	}
	got := make(chan answer, 1)
	if !m.begin(req.VolumePath) {
		return nil, fmt.Errorf("%s does not answer", req.VolumePath)
	}
	go func() {
		defer m.end(req.VolumePath)
		fs, err := stats.OfFilesystem(req.VolumePath, metav1.Now())
		got <- answer{fs, err}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case a := <-got:
		if a.err != nil {
			return nil, a.err
		}
		usage := func(unit spec.VolumeUsage_Unit, available, total, used *uint64) *spec.VolumeUsage {
			return &spec.VolumeUsage{Unit: unit, Available: int64(*available), Total: int64(*total), Used: int64(*used)}
		}
		return &spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{
			usage(spec.VolumeUsage_BYTES, a.AvailableBytes, a.CapacityBytes, a.UsedBytes),
			usage(spec.VolumeUsage_INODES, a.InodesFree, a.Inodes, a.InodesUsed),
		}}, nil
	}
}

func (m *meter) begin(path string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy[path] {
		return false
	}
	if m.busy == nil {
		m.busy = map[string]bool{}
	}
	m.busy[path] = true
	return true
}

func (m *meter) end(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.busy, path)
}
