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

// Mounter is what the manager asks of the kernel.
type Mounter interface {
	// Tmpfs mounts a memory file system on the directory target. size 0: the kernel's default.
	Tmpfs(target string, size int64) error
	// Bind makes the file or directory behind fd visible at target, which exists and is of the same sort.
	Bind(fd int, target string) error
	// Unmount takes one mount off target, even while it is in use.
	Unmount(target string) error
	// Under lists the mount points at and below dir, deepest first, one that
	// is mounted over several times as often.
	Under(dir string) ([]string, error)
}

// Kernel mounts for real. It needs CAP_SYS_ADMIN.
type Kernel struct{}

// Tmpfs keeps the contents out of swap where the kernel can (6.4).
func (Kernel) Tmpfs(target string, size int64) error {
	data := "mode=0777"
	if size > 0 {
		data += ",size=" + strconv.FormatInt(size, 10)
	}
	err := unix.Mount("tmpfs", target, "tmpfs", 0, data+",noswap")
	if err == unix.EINVAL {
		err = unix.Mount("tmpfs", target, "tmpfs", 0, data)
	}
	return err
}

// Bind goes by the descriptor, so that nobody can put something else in its place.
func (Kernel) Bind(fd int, target string) error {
	return unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), target, "", unix.MS_BIND, "")
}

// Unmount detaches a busy mount: the path is free at once, the contents live
// until the last user is gone.
func (Kernel) Unmount(target string) error {
	err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
	if err == unix.EBUSY {
		err = unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	return err
}

func (Kernel) Under(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return mountPoints(f, dir)
}

// mountPoints reads a mountinfo table. In it, a later line lies over an earlier.
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

// unescape reads the octal escapes of mountinfo: \040 is a space.
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

// Unmounted mounts nothing: volumes are plain directories and sub-paths empty
// ones. For nodes without containers, as in the simulation.
type Unmounted struct{}

func (Unmounted) Tmpfs(string, int64) error      { return nil }
func (Unmounted) Bind(int, string) error         { return nil }
func (Unmounted) Unmount(string) error           { return nil }
func (Unmounted) Under(string) ([]string, error) { return nil, nil }
