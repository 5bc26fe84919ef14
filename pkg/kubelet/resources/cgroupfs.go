package resources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/backoff"
)

// Options configure the cgroup hierarchy on this machine.
type Options struct {
	Mount   string // the mount point of cgroups; "": /sys/fs/cgroup
	Root    string // the parent of kubepods; "": the root cgroup
	Systemd Units  // systemd, if it manages the cgroups as slices; nil: plain directories
	PIDs    int64  // maximum process ids of all pods together; 0: no limit
	PodPIDs int64  // maximum process ids of one pod; 0: no limit
	Unbound bool   // create kubepods without limits: upstream's --enforce-node-allocatable=none
	// Unthrottled reports whether a pod has no CPU quota as a whole; nil: each has what
	// its limits say.
	Unthrottled func(types.UID) bool
	Log         *slog.Logger // required
}

// FS implements Cgroups in the cgroup file system, v1 or v2. If the host does not
// let it write, it logs that once and continues: containers have their own limits.
type FS struct {
	Options
	unified bool

	mu     sync.Mutex
	warned map[string]bool
}

var _ Cgroups = (*FS)(nil)

// controllers are the cgroup v1 controllers that the kubelet writes to; the runtime
// creates the directories of the others.
var controllers = []string{"cpu", "memory", "pids"}

// NewFS returns an FS for the cgroup version of the host.
func NewFS(o Options) *FS {
	if o.Mount == "" {
		o.Mount = "/sys/fs/cgroup"
	}
	_, err := os.Stat(filepath.Join(o.Mount, "cgroup.controllers"))
	return &FS{Options: o, unified: err == nil, warned: map[string]bool{}}
}

// Unified returns the settings of cgroup v2 that all containers have.
func (f *FS) Unified() map[string]string {
	if !f.unified {
		return nil
	}
	out := map[string]string{"memory.oom.group": "1"}
	if _, err := os.Stat(filepath.Join(f.Mount, f.dir(place{rootName}), swapMax)); err == nil { // the kernel may have no swap
		out[swapMax] = "0"
	}
	return out
}

const swapMax = "memory.swap.max"

// Prepare creates kubepods and the QoS classes.
func (f *FS) Prepare(ctx context.Context, allocatable corev1.ResourceList) error {
	top := Group{Memory: allocatable.Memory().Value(), PIDs: f.PIDs}
	if f.Unbound {
		top = Group{}
	}
	if err := f.lookForPIDs(); err != nil {
		f.warn("pids", "the host has no pids cgroup controller: the number of processes of pods is not bounded", err)
	}
	if milli := allocatable.Cpu().MilliValue(); milli > 0 {
		top.Shares = Shares(milli)
	}
	return errors.Join(
		f.set(ctx, place{rootName}, top),
		f.set(ctx, place{rootName, burstable}, Group{Shares: MinShares}),
		f.set(ctx, place{rootName, bestEffort}, Group{Shares: MinShares}),
	)
}

// Ensure creates or updates the pod's cgroup and returns its name for the runtime.
func (f *FS) Ensure(ctx context.Context, pod *corev1.Pod) (string, error) {
	p := placeOf(pod)
	if err := f.set(ctx, p, f.group(pod)); err != nil {
		return "", fmt.Errorf("cgroup of pod: %w", err)
	}
	if f.Systemd != nil {
		return p.below(f.Root).slice(), nil
	}
	return p.dir(f.Root), nil
}

// group returns the settings of the pod's cgroup.
func (f *FS) group(pod *corev1.Pod) Group {
	g := Pod(pod, f.PodPIDs)
	if f.Unthrottled != nil && f.Unthrottled(pod.UID) {
		g.Quota = 0
	}
	return g
}

// Widen raises the limits of the pod's cgroup.
func (f *FS) Widen(ctx context.Context, pod, from *corev1.Pod) error {
	if err := f.set(ctx, placeOf(pod), f.group(pod).Or(f.group(from))); err != nil {
		return fmt.Errorf("cgroup of pod: %w", err)
	}
	return nil
}

// Weigh sets the CPU weight of the burstable class.
func (f *FS) Weigh(ctx context.Context, pods []*corev1.Pod) error {
	return f.set(ctx, place{rootName, burstable}, Burstable(pods))
}

// Processes returns the number of process ids in the pod's cgroup, including threads.
// It returns 0 for a pod without a cgroup or if the host has no pids controller.
func (f *FS) Processes(pod *corev1.Pod) int64 {
	data, err := os.ReadFile(filepath.Join(f.pidsMount(), f.dir(placeOf(pod)), "pids.current"))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (f *FS) pidsMount() string {
	if f.unified {
		return f.Mount
	}
	return filepath.Join(f.Mount, "pids")
}

// lookForPIDs returns an error if the host does not have the pids controller.
func (f *FS) lookForPIDs() error {
	if !f.unified {
		_, err := os.Stat(f.pidsMount())
		return err
	}
	data, err := os.ReadFile(filepath.Join(f.Mount, "cgroup.controllers"))
	if err == nil && !slices.Contains(strings.Fields(string(data)), "pids") {
		err = errors.New("cgroup.controllers does not name pids")
	}
	return err
}

// Remove removes the pod's cgroup in every hierarchy. It first kills the processes
// that are still in it. A missing cgroup is not an error.
func (f *FS) Remove(ctx context.Context, uid types.UID) error {
	var errs []error
	if f.Systemd != nil {
		for _, c := range classes() {
			errs = append(errs, f.stopSlice(ctx, podPlace(c, uid)))
		}
	}
	for _, h := range f.hierarchies() {
		for _, c := range classes() {
			errs = append(errs, removeTree(ctx, filepath.Join(h, f.dir(podPlace(c, uid)))))
		}
	}
	return errors.Join(errs...)
}

// Abandoned returns the pods whose cgroups have no processes. Cgroups with processes
// may belong to another kubelet.
func (f *FS) Abandoned() ([]types.UID, error) {
	busy := map[types.UID]bool{}
	for _, h := range f.hierarchies() {
		for _, c := range classes() {
			p := podPlace(c, "")
			dir := filepath.Join(h, f.dir(p[:len(p)-1]))
			entries, err := os.ReadDir(dir)
			if err != nil {
				continue // not every hierarchy has pods
			}
			for _, e := range entries {
				if uid, ok := uidOf(e.Name()); ok && e.IsDir() {
					busy[uid] = busy[uid] || len(processes(filepath.Join(dir, e.Name()))) > 0
				}
			}
		}
	}
	var out []types.UID
	for uid, is := range busy {
		if !is {
			out = append(out, uid)
		}
	}
	return out, nil
}

func (f *FS) dir(p place) string {
	if f.Systemd != nil {
		return p.below(f.Root).sliceDir()
	}
	return p.dir(f.Root)
}

// hierarchies returns the roots of all hierarchies.
func (f *FS) hierarchies() []string {
	if f.unified {
		return []string{f.Mount}
	}
	entries, err := os.ReadDir(f.Mount)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, filepath.Join(f.Mount, e.Name()))
		}
	}
	return out
}

// set creates or updates a cgroup. If the host does not permit that, set logs it
// once and returns nil: containers still have their own limits.
func (f *FS) set(ctx context.Context, p place, g Group) error {
	var err error
	switch {
	case f.Systemd != nil:
		err = f.setSlice(ctx, p, g)
	case f.unified:
		err = f.setV2(p, g)
	default:
		err = f.setV1(p, g)
	}
	if err != nil {
		return err
	}
	return f.setHugePages(p, g)
}

func (f *FS) setV1(p place, g Group) error {
	files := map[string][][2]string{
		"cpu":    {{"cpu.shares", number(g.Shares)}, {"cpu.cfs_period_us", period(g.Quota)}, {"cpu.cfs_quota_us", number(g.Quota)}},
		"memory": {{"memory.limit_in_bytes", number(g.Memory)}},
		"pids":   {{"pids.max", number(g.PIDs)}},
	}
	for _, c := range controllers {
		base := filepath.Join(f.Mount, c)
		if _, err := os.Stat(base); err != nil {
			f.warn(c, "the host has no such cgroup controller; pods are not bounded by it as a whole", err)
			continue
		}
		dir := filepath.Join(base, f.dir(p))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			if f.readOnly(c, err) {
				continue
			}
			return err
		}
		f.write(c, dir, files[c])
	}
	return nil
}

func (f *FS) setV2(p place, g Group) error {
	dir := f.Mount
	for _, name := range levels(f.dir(p)) {
		f.delegate(dir)
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			if f.readOnly("v2", err) {
				return nil
			}
			return err
		}
	}
	files := [][2]string{{"memory.max", number(g.Memory)}, {"pids.max", number(g.PIDs)}}
	if g.Shares > 0 {
		files = append(files, [2]string{"cpu.weight", number(Weight(g.Shares))})
	}
	if g.Quota > 0 {
		files = append(files, [2]string{"cpu.max", fmt.Sprintf("%d %d", g.Quota, QuotaPeriod)})
	}
	f.write("v2", dir, files)
	return nil
}

// levels returns the names in a path.
func levels(dir string) []string { return strings.Split(strings.Trim(dir, "/"), "/") }

// delegate enables all controllers of a cgroup for its children: a controller must be enabled at every
// level above. It logs failures.
func (f *FS) delegate(dir string) {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return
	}
	offered, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	enabled := " " + strings.TrimSpace(string(have)) + " "
	for _, c := range strings.Fields(string(offered)) {
		if strings.Contains(enabled, " "+c+" ") {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
			f.warn("delegate "+c, "a cgroup controller cannot be handed down to pods", err)
		}
	}
}

func (f *FS) write(controller, dir string, files [][2]string) {
	for _, file := range files {
		if file[1] == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, file[0]), []byte(file[1]), 0); err != nil {
			f.warn(controller+"/"+file[0], "a cgroup limit cannot be set", err)
		}
	}
}

func number(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func period(quota int64) string {
	if quota <= 0 {
		return ""
	}
	return strconv.Itoa(QuotaPeriod)
}

// readOnly reports whether err means that the host's cgroups cannot be written, and
// logs it once.
func (f *FS) readOnly(what string, err error) bool {
	if errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) {
		f.warn(what, "cgroups are not writable here; pods are not bounded as a whole", err)
		return true
	}
	return false
}

// warn logs a message once per key.
func (f *FS) warn(key, message string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.warned[key] {
		f.warned[key] = true
		f.Log.Warn(message, "controller", key, "error", err)
	}
}

// removeTree removes a cgroup and its descendants after killing their processes.
func removeTree(ctx context.Context, dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for try := 0; ; try++ {
		killAll(dir)
		err := removeDirs(dir)
		if err == nil || try == 20 {
			return err
		}
		if backoff.Sleep(ctx, 50*time.Millisecond) != nil { // the kernel needs time to remove killed processes
			return err
		}
	}
}

func removeDirs(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for i := len(dirs) - 1; i >= 0; i-- {
		if e := os.Remove(dirs[i]); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

func killAll(dir string) {
	for _, pid := range processes(dir) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have exited already
	}
}

// processes returns the ids of the processes in a cgroup and its descendants.
func processes(dir string) []int {
	var out []int
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() != "cgroup.procs" {
			return nil // a cgroup removed meanwhile is empty
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		for _, f := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
				out = append(out, pid)
			}
		}
		return nil
	})
	return out
}
