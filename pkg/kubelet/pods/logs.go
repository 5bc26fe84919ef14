package pods

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/backoff"
	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/logs"
)

// rotateEvery is the interval between checks of the logs.
const rotateEvery = 10 * time.Second

// The suffixes of rotated logs and of compressed ones.
const (
	rotatedStamp = "20060102-150405"
	compressed   = ".gz"
	partial      = ".tmp" // being compressed
)

// rotateLogs rotates the logs of containers until ctx ends. It returns at once if
// LogMaxSize is 0.
func (m *Manager) rotateLogs(ctx context.Context) {
	if m.cfg.LogMaxSize <= 0 {
		return
	}
	for backoff.Sleep(ctx, rotateEvery) == nil {
		root, err := os.OpenRoot(m.cfg.LogsDir)
		if err != nil {
			continue // nothing has been logged yet
		}
		m.rotateAll(ctx, root)
		root.Close()
	}
}

// rotateAll rotates the log of each running container that is too large.
func (m *Manager) rotateAll(ctx context.Context, root *os.Root) {
	running := &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}
	list, err := m.cfg.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: running})
	if err != nil {
		return // the next check is soon
	}
	for _, c := range list.Containers {
		if err := m.rotateLog(ctx, root, c); err != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("rotate log failed", "container", c.Id, "error", err)
		}
	}
}

// rotateLog opens files only through root: a pod that may write there cannot make
// it follow a link out of root.
func (m *Manager) rotateLog(ctx context.Context, root *os.Root, c *runtimeapi.Container) error {
	if c.Labels[cri.LabelPodUID] == "" {
		return nil
	}
	name := listed(c).log()
	st, err := root.Lstat(name)
	if err != nil || !st.Mode().IsRegular() || st.Size() < m.cfg.LogMaxSize {
		return nil // a container may log nothing
	}
	rotated := name + "." + time.Now().Format(rotatedStamp)
	if err := root.Rename(name, rotated); err != nil {
		return err
	}
	if _, err := m.cfg.Runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: c.Id}); err != nil {
		return errors.Join(err, root.Rename(rotated, name)) // the runtime continues to write to it
	}
	return tidyLogs(root, name, m.cfg.LogMaxFiles)
}

// tidyLogs compresses all rotated logs except the newest, which may still be read,
// and removes the oldest ones beyond keep files, including the current one.
func tidyLogs(root *os.Root, name string, keep int) error {
	rotated, err := fs.Glob(root.FS(), name+".*")
	if err != nil {
		return err
	}
	slices.Sort(rotated)
	if extra := len(rotated) - max(keep-1, 1); extra > 0 {
		for _, old := range rotated[:extra] {
			if err := root.Remove(old); err != nil {
				return err
			}
		}
		rotated = rotated[extra:]
	}
	for i, log := range rotated {
		if i == len(rotated)-1 || strings.HasSuffix(log, compressed) || strings.HasSuffix(log, partial) {
			continue
		}
		if err := compress(root, log); err != nil {
			return err
		}
	}
	return nil
}

// removeLogs removes the container's log and its rotated logs, if there are any.
func (m *Manager) removeLogs(c logged) error {
	root, err := os.OpenRoot(m.cfg.LogsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	all, err := fs.Glob(root.FS(), c.log()+"*")
	for _, name := range all {
		err = errors.Join(err, root.RemoveAll(name))
	}
	return err
}

func compress(root *os.Root, name string) (err error) {
	in, err := logs.Open(root, name)
	if err != nil {
		return err
	}
	defer in.Close()
	part := name + partial
	if err := root.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(out)
	_, err = io.Copy(z, in)
	if err = errors.Join(err, z.Close(), out.Close()); err != nil {
		return errors.Join(err, root.Remove(part))
	}
	return errors.Join(root.Rename(part, name+compressed), root.Remove(name))
}
