// Package process reads what processes have used from /proc. Its functions return 0 for a
// process that does not exist.
package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory reads a field such as VmRSS of /proc/PID/status, in MiB.
func Memory(pid int, field string) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			kb, _ := strconv.ParseFloat(strings.Fields(v)[0], 64)
			return kb / 1024
		}
	}
	return 0
}

// CPU is the user plus system time a process has used.
func CPU(pid int) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(b), ") ") // the command name may hold spaces
	if f := strings.Fields(rest); ok && len(f) > 12 {
		u, _ := strconv.ParseFloat(f[11], 64)
		s, _ := strconv.ParseFloat(f[12], 64)
		return (u + s) / 100 // USER_HZ
	}
	return 0
}
