package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// removeSandboxes stops and removes every pod of the runtime at a socket.
func removeSandboxes(ctx context.Context, socket string) error {
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
			if _, err := runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: pod.Id}); err != nil {
				return fmt.Errorf("stop pod %s/%s: %w", pod.Metadata.Namespace, pod.Metadata.Name, err)
			}
			if _, err := runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: pod.Id}); err != nil {
				return fmt.Errorf("remove pod %s/%s: %w", pod.Metadata.Namespace, pod.Metadata.Name, err)
			}
			return nil
		})
	}
	return all.Wait()
}

// unmountBelow detaches every mount under dir, the deepest first.
func unmountBelow(dir string) error {
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
	slices.Reverse(points) // a later mount may lie in an earlier one
	for _, point := range points {
		err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return nil
}

// unescape undoes the kernel's escapes in mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// removeCgroups removes the tree of that name from every hierarchy.
func removeCgroups(name string) error {
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
			if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove cgroup %s: %w", dir, err)
			}
		}
	}
	return nil
}
