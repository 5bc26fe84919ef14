// Package memory keeps a daemon within its memory limit: it sets the Go runtime's soft
// limit below the hard limit of the daemon's cgroup, so that the garbage collector works
// harder before the kernel kills the daemon.
package memory

import (
	"bufio"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Share of a hard limit that becomes the soft limit. The rest is for memory that the
// runtime does not count: memory-mapped files, tmpfs, kernel memory.
const (
	ofCgroup  = 0.9
	ofMachine = 0.5 // without a cgroup limit: other programs run there, too
)

// SetLimit sets the Go runtime's soft memory limit from the limit of the cgroup, or else
// from the machine's memory, and logs it. GOMEMLIMIT takes precedence. If neither can be
// read, there is no limit.
func SetLimit(log *slog.Logger) {
	if value := os.Getenv("GOMEMLIMIT"); value != "" { // the runtime has read it
		log.Info("soft memory limit", "bytes", debug.SetMemoryLimit(-1), "source", "GOMEMLIMIT")
		return
	}
	machine, err := Machine()
	if err != nil {
		log.Warn("no soft memory limit", "error", err)
		return
	}
	cgroup, err := Cgroup(os.DirFS("/"))
	if err != nil {
		log.Warn("read memory limit of the cgroup failed", "error", err)
	}
	limit, source := decide(cgroup, machine)
	debug.SetMemoryLimit(limit)
	log.Info("soft memory limit", "bytes", limit, "source", source)
}

// CollectAt makes the garbage collector run when the heap has grown by percent since it
// last ran: for daemons that run on each node and have little to do. GOGC takes precedence.
func CollectAt(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// decide returns the soft limit for hard limits in bytes. cgroup is 0 if the cgroup has
// no limit.
func decide(cgroup, machine uint64) (limit int64, source string) {
	if cgroup == 0 || cgroup > machine {
		return share(machine, ofMachine), "machine"
	}
	return share(cgroup, ofCgroup), "cgroup"
}

func share(bytes uint64, part float64) int64 {
	return int64(min(float64(bytes)*part, math.MaxInt64/2))
}

// Machine returns the memory of the machine in bytes. It uses a system call because
// systemd units hide /proc/meminfo from their daemons.
func Machine() (uint64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("read the machine's memory: %w", err)
	}
	return uint64(info.Totalram) * uint64(max(info.Unit, 1)), nil
}

// Cgroup returns the lowest memory limit in bytes of this process's cgroup and its
// ancestors, for cgroup v1 and v2; 0 if there is none.
func Cgroup(root fs.FS) (uint64, error) {
	cgroups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, err
	}
	mounts, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return 0, err
	}
	least := uint64(0)
	for _, h := range hierarchies(string(cgroups), string(mounts)) {
		for dir := h.dir; ; dir = path.Dir(dir) {
			if n := readLimit(root, path.Join(dir, h.file)); n > 0 && (least == 0 || n < least) {
				least = n
			}
			if dir == h.top || dir == "." || dir == "/" {
				break
			}
		}
	}
	return least, nil
}

// hierarchy is where a limit of this process may be set: in file, in dir and its parents
// up to top. Paths have no leading slash.
type hierarchy struct{ top, dir, file string }

// hierarchies returns the mounted hierarchies of the memory controller.
func hierarchies(cgroups, mounts string) (out []hierarchy) {
	scan := bufio.NewScanner(strings.NewReader(mounts))
	for scan.Scan() {
		// ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS [TAGS...] - TYPE SOURCE SUPEROPTIONS
		mount, fsinfo, ok := strings.Cut(scan.Text(), " - ")
		words, types := strings.Fields(mount), strings.Fields(fsinfo)
		if !ok || len(words) < 5 || len(types) < 3 {
			continue
		}
		controller, file := "", "memory.max"
		switch {
		case types[0] == "cgroup" && contains(types[2], "memory"):
			controller, file = "memory", "memory.limit_in_bytes"
		case types[0] != "cgroup2":
			continue
		}
		own, ok := ownCgroup(cgroups, controller)
		if !ok {
			continue
		}
		top := strings.Trim(words[4], "/")
		below := strings.TrimPrefix(own, strings.TrimSuffix(words[3], "/")) // the mount may show a subtree only
		out = append(out, hierarchy{top, path.Join(top, path.Join("/", below)), file})
	}
	return out
}

// ownCgroup returns the process's cgroup; the controller of cgroup v2 is "".
func ownCgroup(cgroups, controller string) (string, bool) {
	for line := range strings.Lines(cgroups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && (parts[1] == controller || controller != "" && contains(parts[1], controller)) {
			return parts[2], true
		}
	}
	return "", false
}

func contains(list, word string) bool {
	for have := range strings.SplitSeq(list, ",") {
		if have == word {
			return true
		}
	}
	return false
}

// readLimit returns 0 if the file does not exist or contains no limit ("max").
func readLimit(root fs.FS, file string) uint64 {
	data, err := fs.ReadFile(root, file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	if err != nil || n >= math.MaxInt64>>12<<12 { // cgroup v1's value for no limit
		return 0
	}
	return n
}
