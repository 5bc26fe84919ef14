package oom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
)

// KernelLog is the device of the kernel's log; each read returns one record.
const KernelLog = "/dev/kmsg"

// remembered is how many containers are remembered. The kubelet reads their
// status within seconds of their exit.
const remembered = 1000

// Kills are the containers in which the OOM killer has killed a process. It is safe
// for concurrent use.
type Kills struct {
	mu    sync.Mutex
	ids   map[string]bool
	order []string // oldest first
}

// New returns empty Kills.
func New() *Kills { return &Kills{ids: map[string]bool{}} }

// Has reports whether the OOM killer has killed a process of the container.
func (k *Kills) Has(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ids[id]
}

func (k *Kills) add(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ids[id] {
		return
	}
	k.ids[id], k.order = true, append(k.order, id)
	if len(k.order) > remembered {
		delete(k.ids, k.order[0])
		k.order = k.order[1:]
	}
}

// Follow adds the kills that the kernel logs from now on, until ctx ends. If the
// log cannot be read, Follow logs that and returns; then the runtime is the only
// source of the reason.
func (k *Kills) Follow(ctx context.Context, path string, log *slog.Logger) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err == nil {
		_, err = file.Seek(0, io.SeekEnd)
	}
	if err != nil {
		log.Info("read kernel log failed; OOM kills are reported as the runtime reports them", "error", err)
		return
	}
	stop := context.AfterFunc(ctx, func() { file.Close() })
	defer stop()
	defer file.Close()
	if err := k.listen(file); err != nil && ctx.Err() == nil {
		log.Warn("read kernel log failed", "error", err)
	}
}

// listen reads one record per read until EOF.
func (k *Kills) listen(records io.Reader) error {
	buf := make([]byte, 8<<10) // no record is longer
	for {
		n, err := records.Read(buf)
		switch {
		case errors.Is(err, unix.EPIPE): // the reader was too slow and lost records; continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the kernel's log: %w", err)
		default:
			for _, id := range containers(string(buf[:n])) {
				k.add(id)
			}
		}
	}
}

// containerID matches a container's id in a cgroup path. With cgroupfs it is the
// name of the cgroup, with systemd a part of the name of the scope.
var containerID = regexp.MustCompile(`[0-9a-f]{64}`)

// containers returns the container ids in a record of an OOM kill: those in the
// cgroup path of the killed process.
func containers(record string) []string {
	_, text, ok := strings.Cut(record, ";")
	if !ok || !strings.HasPrefix(text, "oom-kill:") {
		return nil
	}
	text, _, _ = strings.Cut(text, "\n")
	for field := range strings.SplitSeq(text, ",") {
		if cgroup, ok := strings.CutPrefix(field, "task_memcg="); ok {
			return containerID.FindAllString(cgroup, -1)
		}
	}
	return nil
}

// Explain returns a runtime whose container statuses have the reason OOMKilled for
// containers in k that SIGKILL ended.
func (k *Kills) Explain(r cri.Runtime) cri.Runtime { return explained{r, k} }

type explained struct {
	cri.Runtime
	kills *Kills
}

func (e explained) ContainerStatus(ctx context.Context, in *runtimeapi.ContainerStatusRequest, opts ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	out, err := e.Runtime.ContainerStatus(ctx, in, opts...)
	if err == nil && out.Status.GetExitCode() == 137 && out.Status.GetReason() == "Error" && e.kills.Has(out.Status.Id) {
		out.Status.Reason = "OOMKilled"
	}
	return out, err
}
