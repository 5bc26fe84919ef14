package volumes

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mounter mounts and unmounts.
type Mounter interface {
	// Mount mounts a new file system on the directory target. options are those of
	// mount(8) for the file system, separated by commas.
	Mount(fsType, target, options string) error
	// Bind bind-mounts the file or directory behind fd on target, which must exist
	// and be of the same type.
	Bind(fd int, target string) error
	// Unmount removes one mount from target, even if it is in use.
	Unmount(target string) error
	// Under lists the mount points at and below dir, deepest first. A path with
	// several mounts appears several times.
	Under(dir string) ([]string, error)
}

// Kernel mounts with system calls. It needs CAP_SYS_ADMIN.
type Kernel struct{}

// Mount calls mount(2).
func (Kernel) Mount(fsType, target, options string) error {
	return unix.Mount(fsType, target, fsType, 0, options)
}

// Bind mounts by the descriptor, so that the source cannot be replaced meanwhile.
func (Kernel) Bind(fd int, target string) error {
	return unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), target, "", unix.MS_BIND, "")
}

// Unmount detaches a busy mount lazily: the path is free at once, and the kernel
// removes the mount when it is no longer used.
func (Kernel) Unmount(target string) error {
	err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
	if err == unix.EBUSY {
		err = unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	return err
}

// Under reads /proc/self/mountinfo.
func (Kernel) Under(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return mountPoints(f, dir)
}

// mountPoints parses a mountinfo table, in which a later line covers an earlier one.
func mountPoints(table io.Reader, dir string) ([]string, error) {
	var points []string
	lines := bufio.NewReader(table)
	for {
		line, err := lines.ReadString('\n')
		// 36 35 98:0 /root /the/mount/point rw,noatime ...
		if fields := strings.Fields(line); len(fields) > 4 {
			if p := unescape(fields[4]); p == dir || strings.HasPrefix(p, dir+"/") {
				points = append(points, p)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	slices.Reverse(points)
	slices.SortStableFunc(points, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return points, nil
}

// unescape decodes the octal escapes of mountinfo: \040 is a space.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// Unmounted mounts nothing: volumes are plain directories and sub-paths empty ones.
// It is for nodes without containers, as in the simulation.
type Unmounted struct{}

func (Unmounted) Mount(_, _, _ string) error     { return nil }
func (Unmounted) Bind(int, string) error         { return nil }
func (Unmounted) Unmount(string) error           { return nil }
func (Unmounted) Under(string) ([]string, error) { return nil, nil }
