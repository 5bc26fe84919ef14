package pods

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
)

// rotateEvery is how often logs are looked at.
const rotateEvery = 10 * time.Second

// The form of the suffix a rotated log gets, and of those that are compressed.
const (
	rotatedStamp = "20060102-150405"
	compressed   = ".gz"
	partial      = ".tmp" // being compressed
)

// rotateLogs keeps containers' logs within their bounds until ctx ends.
func (m *Manager) rotateLogs(ctx context.Context) {
	if m.cfg.LogMaxSize <= 0 {
		return
	}
	for sleep(ctx, rotateEvery, nil) {
		running := &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}
		list, err := m.cfg.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: running})
		if err != nil {
			continue // the next look is soon
		}
		for _, c := range list.Containers {
			if err := m.rotateLog(ctx, c); err != nil && ctx.Err() == nil {
				m.cfg.Log.Warn("log not rotated", "container", c.Id, "error", err)
			}
		}
	}
}

func (m *Manager) rotateLog(ctx context.Context, c *runtimeapi.Container) error {
	l := c.Labels
	if l[cri.LabelPodUID] == "" {
		return nil
	}
	attempt := c.Annotations[cri.AnnotationRestartCount]
	if attempt == "" {
		attempt = fmt.Sprint(c.Metadata.GetAttempt())
	}
	dir := strings.Join([]string{l[cri.LabelPodNamespace], l[cri.LabelPodName], l[cri.LabelPodUID]}, "_")
	path := filepath.Join(m.cfg.LogsDir, dir, l[cri.LabelContainerName], attempt+".log")
	st, err := os.Stat(path)
	if err != nil || st.Size() < m.cfg.LogMaxSize {
		return nil // a container may log nothing
	}
	rotated := path + "." + time.Now().Format(rotatedStamp)
	if err := os.Rename(path, rotated); err != nil {
		return err
	}
	if _, err := m.cfg.Runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: c.Id}); err != nil {
		return errors.Join(err, os.Rename(rotated, path)) // the runtime goes on writing to it
	}
	return tidyLogs(path, m.cfg.LogMaxFiles)
}

// tidyLogs compresses rotated logs but the newest, which log readers may be at,
// and removes the oldest beyond keep files, the present one counted.
func tidyLogs(path string, keep int) error {
	rotated, err := filepath.Glob(path + ".*")
	if err != nil {
		return err
	}
	slices.Sort(rotated)
	if extra := len(rotated) - max(keep-1, 1); extra > 0 {
		for _, old := range rotated[:extra] {
			if err := os.Remove(old); err != nil {
				return err
			}
		}
		rotated = rotated[extra:]
	}
	for i, log := range rotated {
		if i == len(rotated)-1 || strings.HasSuffix(log, compressed) || strings.HasSuffix(log, partial) {
			continue
		}
		if err := compress(log); err != nil {
			return err
		}
	}
	return nil
}

func compress(path string) (err error) {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	part := path + partial
	out, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(out)
	_, err = io.Copy(z, in)
	if err = errors.Join(err, z.Close(), out.Close()); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return errors.Join(os.Rename(part, path+compressed), os.Remove(path))
}
