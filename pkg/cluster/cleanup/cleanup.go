// Package cleanup removes what pods leave on a machine when their kubelet is
// gone: sandboxes, shims, mounts and cgroups.
package cleanup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/cluster/poll"
)

// RemovePods stops and removes every pod of the CRI runtime at the socket with
// that path. It waits for the runtime until ctx ends.
func RemovePods(ctx context.Context, socket string) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", socket, err)
	}
	defer conn.Close()
	runtime := cri.NewRuntimeServiceClient(conn)
	list, err := runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("list pods of %s: %w", socket, err)
	}
	var all errgroup.Group
	all.SetLimit(8)
	for _, pod := range list.Items {
		all.Go(func() error {
			wait, cancel := context.WithTimeout(ctx, removeTimeout)
			defer cancel()
			err := poll.Until(wait, 100*time.Millisecond, func(ctx context.Context) error { return removePod(ctx, runtime, pod.Id) })
			if err != nil {
				return fmt.Errorf("remove pod %s/%s: %w", pod.Metadata.Namespace, pod.Metadata.Name, err)
			}
			return nil
		})
	}
	return all.Wait()
}

// removeTimeout limits the tries to remove a pod. The first fails if a container is
// being started: the runtime goes on with that after its kubelet has gone.
const removeTimeout = 30 * time.Second

func removePod(ctx context.Context, runtime cri.RuntimeServiceClient, id string) error {
	if _, err := runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	_, err := runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

// EndShims terminates the shims that containerd at the socket has started:
// SIGTERM, after five seconds SIGKILL. Call it after containerd has stopped: a
// containerd that was killed while it started a shim does not know the shim
// afterwards.
func EndShims(ctx context.Context, socket string) error {
	for i, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} { // on SIGTERM a shim removes its socket
		wait, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := poll.Until(wait, 20*time.Millisecond, func(context.Context) error {
			pids, err := shims(socket)
			if err != nil || len(pids) == 0 {
				return err
			}
			for _, pid := range pids {
				if err := unix.Kill(pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
					return fmt.Errorf("end shim %d: %w", pid, err)
				}
			}
			return fmt.Errorf("the shims %v do not end", pids)
		})
		cancel()
		if err == nil || i == 1 {
			return err
		}
	}
	return nil
}

// shims returns the process IDs of the live shims of the containerd at socket.
func shims(socket string) (pids []int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil {
			continue // the process has exited
		}
		args := strings.Split(string(line), "\x00")
		if !strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") || !slices.Contains(args, socket) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && !ended(pid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// ended reports whether a process has exited, including one that its parent has
// not reaped yet.
func ended(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	// The state follows the name, which is in parentheses and may contain any
	// character.
	_, rest, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

// UnmountBelow detaches every mount below dir, the deepest first. dir itself
// stays mounted.
func UnmountBelow(dir string) error {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer file.Close()
	var points []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			points = append(points, unescape.Replace(fields[4]))
		}
	}
	slices.Reverse(points) // a later mount may be below an earlier one
	for _, point := range points {
		err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return nil
}

// unescape decodes the kernel's escapes in mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// RemoveCgroups removes the cgroup with that name and those below it from every
// hierarchy, and kills the processes that are still in them. It returns nil if
// there is none.
func RemoveCgroups(ctx context.Context, name string) error {
	roots, err := filepath.Glob("/sys/fs/cgroup/*/" + name)
	if err != nil {
		return err
	}
	for _, root := range append(roots, "/sys/fs/cgroup/"+name) {
		var dirs []string
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("list cgroup %s: %w", root, err)
		}
		slices.Reverse(dirs)
		for _, dir := range dirs {
			if err := removeCgroup(ctx, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeCgroup removes a cgroup that has no children.
func removeCgroup(ctx context.Context, dir string) error {
	wait, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return poll.Until(wait, 20*time.Millisecond, func(context.Context) error {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, pid := range strings.Fields(string(procs)) {
			if n, err := strconv.Atoi(pid); err == nil && n > 1 {
				_ = unix.Kill(n, unix.SIGKILL) // the process may have exited
			}
		}
		return fmt.Errorf("remove cgroup %s: %w", dir, err)
	})
}
