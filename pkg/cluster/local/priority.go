package local

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
)

// niceness is the nice value of the daemons: about ten times the CPU weight of
// a process at 0.
const niceness = -10

// startWithPriority starts cmd, a session leader, with a higher CPU priority
// than pods: a pod that uses all cores must not delay heartbeats or the API
// server. Systemd units use podium.slice for that. Without the right to raise
// priorities the process starts at the caller's.
func startWithPriority(cmd *exec.Cmd) error {
	// A child inherits the niceness of the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if err != nil {
		return fmt.Errorf("read this thread's priority: %w", err)
	}
	own := 20 - raw // the raw system call returns 20 minus the nice value
	if own > niceness && syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness) == nil {
		defer syscall.Setpriority(syscall.PRIO_PROCESS, 0, own)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	// Kernels with autogroup compare sessions before processes.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid), []byte(strconv.Itoa(niceness)), 0)
	return nil
}
