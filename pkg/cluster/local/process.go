package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"podium/pkg/cluster/files"
	"podium/pkg/cluster/poll"
)

// process is a long-running program of the cluster.
type process struct {
	name     string
	args     []string // args[0] is the binary's absolute path
	env      []string
	priority bool // start it with startWithPriority
}

// record is the content of a pid file. Started distinguishes the process from a
// later one with the same pid.
type record struct {
	PID     int      `json:"pid"`
	Started string   `json:"started"`
	Args    []string `json:"args"`
	Binary  string   `json:"binary"` // the binary's fingerprint
}

func (c *Config) pidFile(name string) string { return c.path("pids", name+".json") }

// start makes sure that p runs with these arguments and this binary. It keeps a
// process that does, and restarts one that runs with others.
func (c *Config) start(ctx context.Context, p process) error {
	binary, err := fingerprint(p.args[0])
	if err != nil {
		return fmt.Errorf("find %s: %w (build it: make build)", p.name, err)
	}
	if old, err := c.running(p.name); err != nil {
		return err
	} else if old != nil {
		if slices.Equal(old.Args, p.args) && old.Binary == binary {
			return nil
		}
		if err := c.stop(ctx, p.name); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(c.path("logs"), 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(c.logFile(p.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = c.Dir
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // survives the terminal
	start := (*exec.Cmd).Start
	if p.priority {
		start = startWithPriority
	}
	if err := start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	started, err := startTime(cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("%s ended at once; its log: %s", p.name, c.logFile(p.name))
	}
	go cmd.Wait() // reaps the process if it exits while
	return writeJSON(c.pidFile(p.name), record{cmd.Process.Pid, started, p.args, binary})
}

func (c *Config) logFile(name string) string { return c.path("logs", name+".log") }

// running returns the record of a process, or nil if it does not run.
func (c *Config) running(name string) (*record, error) {
	data, err := os.ReadFile(c.pidFile(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read %s: %w", c.pidFile(name), err)
	}
	if started, err := startTime(r.PID); err != nil || started != r.Started {
		return nil, nil
	}
	return &r, nil
}

// stop sends SIGTERM, and SIGKILL after ten seconds, and blocks until the
// process has exited. It returns nil if the process does not run.
func (c *Config) stop(ctx context.Context, name string) error {
	r, err := c.running(name)
	if err != nil || r == nil {
		return err
	}
	for i, patience := range []time.Duration{10 * time.Second, 5 * time.Second} {
		signal := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[i]
		if err := syscall.Kill(r.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop %s (pid %d): %w", name, r.PID, err)
		}
		wait, cancel := context.WithTimeout(ctx, patience)
		err := poll.Until(wait, 10*time.Millisecond, func(context.Context) error {
			if started, err := startTime(r.PID); err != nil || started != r.Started {
				return nil
			}
			return fmt.Errorf("pid %d still runs", r.PID)
		})
		cancel()
		if err == nil {
			return os.Remove(c.pidFile(name))
		}
	}
	return fmt.Errorf("stop %s: pid %d does not end, even by SIGKILL", name, r.PID)
}

// startTime returns the start time of a live process as the kernel reports it.
// It returns an error for a zombie.
func startTime(pid int) (string, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	// The second field is the program's name in parentheses and may hold
	// spaces; the state is the third field, the start time the 22nd.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return "", fmt.Errorf("process %d has ended", pid)
	}
	return fields[19], nil
}

// fingerprint returns text that changes when a file is replaced.
func fingerprint(file string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d %d %d", info.Sys().(*syscall.Stat_t).Ino, info.Size(), info.ModTime().UnixNano()), nil
}

func writeJSON(file string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = files.Write(file, data, 0o600)
	return err
}
