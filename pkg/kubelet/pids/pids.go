package pids

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Resource is the name under which --kube-reserved and --system-reserved
// reserve process ids.
const Resource = "pid"

// Signal is upstream's name of the eviction signal.
const Signal = "pid.available"

// defaultPodLimit is the default limit of a pod: far more than servers with a
// thread per request need, and an eighth of the smallest usual kernel.pid_max,
// 32768.
const defaultPodLimit = 4096

// Machine reads process counts from the kernel.
type Machine struct {
	Proc   string // the mount point of procfs
	Cgroup string // the mount point of the cgroup hierarchy, which may limit the whole node
}

// Usage is the number of process ids in use and their maximum. The kernel counts
// threads like processes.
type Usage struct{ Max, Running int64 }

// Available returns how many more process ids can be used, at least 0.
func (u Usage) Available() int64 { return max(u.Max-u.Running, 0) }

// Max returns how many process ids the node may have: the minimum of
// kernel.pid_max, kernel.threads-max and the limit of the node's own cgroup.
func (m Machine) Max() (int64, error) {
	least, err := m.number(m.Proc, "sys/kernel/pid_max")
	if err != nil {
		return 0, fmt.Errorf("read the number of process ids: %w", err)
	}
	threads, err := m.number(m.Proc, "sys/kernel/threads-max")
	if err != nil {
		return 0, fmt.Errorf("read the number of threads: %w", err)
	}
	least = min(least, threads)
	for _, name := range []string{"pids.max", "pids/pids.max"} { // cgroup v2, v1
		own, err := m.number(m.Cgroup, name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, strconv.ErrSyntax) { // no limit: the root cgroup has no such file, others have "max"
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("read the bound of the node's cgroup: %w", err)
		}
		least = min(least, own)
	}
	return least, nil
}

// Usage measures the node.
func (m Machine) Usage() (Usage, error) {
	most, err := m.Max()
	if err != nil {
		return Usage{}, err
	}
	data, err := os.ReadFile(filepath.Join(m.Proc, "loadavg"))
	if err != nil {
		return Usage{}, fmt.Errorf("count processes: %w", err)
	}
	running, err := parseLoad(string(data))
	return Usage{Max: most, Running: running}, err
}

// parseLoad returns the number of tasks in "0.20 0.18 0.12 1/80 11206".
func parseLoad(text string) (int64, error) {
	fields := strings.Fields(text)
	if len(fields) < 4 {
		return 0, fmt.Errorf("count processes: unexpected loadavg %q", text)
	}
	_, all, _ := strings.Cut(fields[3], "/")
	n, err := strconv.ParseInt(all, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("count processes: unexpected loadavg %q", text)
	}
	return n, nil
}

func (m Machine) number(dir, name string) (int64, error) {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}

// Allocatable returns how many of a node's process ids all pods may have together.
// If reserved is nil, a twentieth is reserved for the system; otherwise pods could
// keep its daemons from starting processes.
func Allocatable(most int64, reserved *resource.Quantity) int64 {
	keep := (most + 19) / 20
	if reserved != nil {
		keep = reserved.Value()
	}
	return max(most-keep, 0)
}

// PodLimit returns how many process ids one pod may have. configured is
// --pod-max-pids: a number, -1 for all that is allocatable, or 0 for a default
// that leaves room for other pods on small nodes.
func PodLimit(configured, allocatable int64) int64 {
	switch {
	case configured > 0:
		return configured
	case configured < 0:
		return allocatable
	}
	return min(defaultPodLimit, max(allocatable/4, 1))
}
