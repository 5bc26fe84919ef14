package stats

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Machine reads the node's statistics from the kernel.
type Machine struct {
	Proc    string // the mount point of procfs
	RootDir string // the node reports the file system of this directory
}

// Node returns the node's statistics. It omits what it cannot read.
func (m Machine) Node(name string, now time.Time) Node {
	at := metav1.NewTime(now)
	n := Node{NodeName: name}
	if cpu, boot, err := m.cpu(); err == nil {
		n.StartTime = metav1.Unix(boot, 0)
		n.CPU = &CPU{Time: at, UsageCoreNanoSeconds: &cpu}
	}
	n.Memory, n.Swap = m.memory(at)
	n.Network = m.network(at)
	n.Fs = m.filesystem(at)
	n.Rlimit = m.processes(at)
	return n
}

// cpu returns the non-idle CPU time and the boot time as a Unix time.
func (m Machine) cpu() (nanos uint64, boot int64, err error) {
	err = m.lines("stat", func(fields []string) {
		switch {
		case fields[0] == "cpu" && len(fields) > 8:
			// user nice system idle iowait irq softirq steal, in 1/100 s
			for _, i := range []int{1, 2, 3, 6, 7, 8} {
				v, _ := strconv.ParseUint(fields[i], 10, 64)
				nanos += v * uint64(time.Second/100)
			}
		case fields[0] == "btime" && len(fields) > 1:
			boot, _ = strconv.ParseInt(fields[1], 10, 64)
		}
	})
	return nanos, boot, err
}

// memory returns a nil Swap for a machine without swap space.
func (m Machine) memory(at metav1.Time) (*Memory, *Swap) {
	kb := map[string]uint64{}
	err := m.lines("meminfo", func(fields []string) {
		if len(fields) > 1 {
			kb[strings.TrimSuffix(fields[0], ":")], _ = strconv.ParseUint(fields[1], 10, 64)
		}
	})
	total := kb["MemTotal"] << 10
	if err != nil || total == 0 {
		return nil, nil
	}
	usage := total - kb["MemFree"]<<10
	working := usage - min(usage, kb["Inactive(file)"]<<10)
	available := total - working
	rss := kb["AnonPages"] << 10
	out := &Memory{Time: at, AvailableBytes: &available, UsageBytes: &usage, WorkingSetBytes: &working, RSSBytes: &rss}
	swap := kb["SwapTotal"] << 10
	if swap == 0 {
		return out, nil
	}
	free := min(kb["SwapFree"]<<10, swap)
	swapped := swap - free
	return out, &Swap{Time: at, SwapAvailableBytes: &free, SwapUsageBytes: &swapped}
}

func (m Machine) network(at metav1.Time) *Network {
	n := &Network{Time: at}
	err := m.lines("net/dev", func(fields []string) {
		name, ok := strings.CutSuffix(fields[0], ":")
		if !ok || name == "lo" || len(fields) < 12 {
			return
		}
		v := func(i int) *uint64 {
			u, _ := strconv.ParseUint(fields[i], 10, 64)
			return &u
		}
		n.Interfaces = append(n.Interfaces, Interface{Name: name, RxBytes: v(1), RxErrors: v(3), TxBytes: v(9), TxErrors: v(11)})
	})
	if err != nil {
		return nil
	}
	return n
}

func (m Machine) filesystem(at metav1.Time) *Filesystem {
	out, err := OfFilesystem(m.RootDir, at)
	if err != nil {
		return nil
	}
	return &out
}

// OfFilesystem returns the statistics of the file system that a directory is in. It blocks
// while the file system does not answer.
func OfFilesystem(dir string, at metav1.Time) (Filesystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Filesystem{}, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	block := uint64(st.Bsize)
	available, capacity, used := st.Bavail*block, st.Blocks*block, (st.Blocks-st.Bfree)*block
	inodesUsed := st.Files - st.Ffree
	return Filesystem{Time: at, AvailableBytes: &available, CapacityBytes: &capacity, UsedBytes: &used,
		InodesFree: &st.Ffree, Inodes: &st.Files, InodesUsed: &inodesUsed}, nil
}

func (m Machine) processes(at metav1.Time) *Rlimit {
	var most, now int64
	if err := m.lines("sys/kernel/pid_max", func(fields []string) { most, _ = strconv.ParseInt(fields[0], 10, 64) }); err != nil {
		return nil
	}
	err := m.lines("loadavg", func(fields []string) {
		if len(fields) > 3 {
			_, all, _ := strings.Cut(fields[3], "/")
			now, _ = strconv.ParseInt(all, 10, 64)
		}
	})
	if err != nil {
		return nil
	}
	return &Rlimit{Time: at, MaxPID: &most, NumOfRunningProcesses: &now}
}

// lines calls f with the fields of each line that is not empty.
func (m Machine) lines(file string, f func(fields []string)) error {
	r, err := os.Open(filepath.Join(m.Proc, file))
	if err != nil {
		return err
	}
	defer r.Close()
	s := bufio.NewScanner(r)
	for s.Scan() {
		if fields := strings.Fields(s.Text()); len(fields) > 0 {
			f(fields)
		}
	}
	return s.Err()
}
