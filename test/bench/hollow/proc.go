package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"bench/process"
)

// used is what a process has used: CPU time in seconds, and resident memory, now and at
// most, in MiB.
type used struct{ cpu, rss, peak float64 }

// daemons returns what the daemons of the cluster and this process have used, by name:
// the processes with the directory of the cluster among their arguments.
func (b *bench) daemons() map[string]used {
	out := map[string]used{"hollow": usageOf(os.Getpid())}
	if b.dir == "" {
		return out
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		pid, _ := strconv.Atoi(filepath.Base(p))
		line, err := os.ReadFile(filepath.Join(p, "cmdline"))
		program, args, _ := strings.Cut(string(line), "\x00")
		if name := filepath.Base(program); err == nil && pid != os.Getpid() && strings.HasPrefix(name, "kube") && strings.Contains(args, b.dir+"/") {
			out[name] = usageOf(pid)
		}
	}
	return out
}

func usageOf(pid int) used {
	return used{process.CPU(pid), process.Memory(pid, "VmRSS"), process.Memory(pid, "VmHWM")}
}
