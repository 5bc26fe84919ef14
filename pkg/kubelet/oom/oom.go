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

// KernelLog is where the kernel's log is read, a record at a time.
const KernelLog = "/dev/kmsg"

// remembered is how many containers are kept in mind: their ends are asked
// about within seconds.
const remembered = 1000

// Kills are the containers in which the kernel has killed for memory.
type Kills struct {
	mu    sync.Mutex
	ids   map[string]bool
	order []string // the oldest first
}

// New is Kills that know of none.
func New() *Kills { return &Kills{ids: map[string]bool{}} }

// Has says whether the kernel has killed a process of this container.
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

// Follow hears what the kernel says from now on, until ctx ends. Where its log
// may not be read the runtime's word is all there is.
func (k *Kills) Follow(ctx context.Context, path string, log *slog.Logger) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err == nil {
		_, err = file.Seek(0, io.SeekEnd)
	}
	if err != nil {
		log.Info("the kernel's log is not read: why a container was killed is the runtime's word", "error", err)
		return
	}
	stop := context.AfterFunc(ctx, func() { file.Close() })
	defer stop()
	defer file.Close()
	if err := k.listen(file); err != nil && ctx.Err() == nil {
		log.Warn("the kernel's log is not read any more", "error", err)
	}
}

// listen reads records, one a read, until there is none.
func (k *Kills) listen(records io.Reader) error {
	buf := make([]byte, 8<<10) // no record is longer
	for {
		n, err := records.Read(buf)
		switch {
		case errors.Is(err, unix.EPIPE): // we were too slow, and go on with what is there
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

// containerID is a container's in the path of a cgroup: cgroupfs names the
// cgroup by it, systemd's scopes have it in their name.
var containerID = regexp.MustCompile(`[0-9a-f]{64}`)

// containers are the ids in a record that tells of a kill for memory: those in
// the path of the cgroup of the process that was killed.
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

// Explain is the runtime with what the kernel has said about kills: a container
// that ended by one says OOMKilled.
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
