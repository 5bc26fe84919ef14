package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"podium/pkg/cluster/leftovers"
)

// Host is what cannot be seen or done through files. Tests bring one of their own.
type Host interface {
	Name() (string, error)
	Address() (string, error) // that of the default route
	IsRoot() bool
	Program(name string) bool // is it in the PATH
	PortFree(port int) error  // nil, or why nobody can listen at it
	Free(dir string) (uint64, error)
	// RemovePods ends every pod of the runtime at a socket (unix://PATH).
	RemovePods(ctx context.Context, socket string) error
	// RemoveCgroups ends what is in the cgroups of that name and removes them.
	RemoveCgroups(ctx context.Context, name string) error
	// Unmount detaches every mount below a folder.
	Unmount(dir string) error
	// Run runs a program to its end and returns what it printed, with an
	// error that holds what it complained about.
	Run(ctx context.Context, program string, args ...string) (string, error)
	// Become goes on as another program, with our arguments; if we are that
	// program it does nothing.
	Become(program string) error
}

// ThisHost is the machine we run on.
type ThisHost struct{}

// Name implements Host.
func (ThisHost) Name() (string, error) { return os.Hostname() }

// Address implements Host. It sends nothing.
func (ThisHost) Address() (string, error) {
	conn, err := net.Dial("udp4", "192.0.2.1:9")
	if err != nil {
		conn, err = net.Dial("udp6", "[2001:db8::1]:9")
	}
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).IP.String(), nil
}

// IsRoot implements Host.
func (ThisHost) IsRoot() bool { return os.Geteuid() == 0 }

// Program implements Host. The folders of root's programs are looked in even
// when the PATH lacks them.
func (ThisHost) Program(name string) bool {
	if _, err := exec.LookPath(name); err == nil {
		return true
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}

// PortFree implements Host.
func (ThisHost) PortFree(port int) error {
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	return l.Close()
}

// Free implements Host. A folder that is not there yet will be on the file
// system of the first above it that is.
func (ThisHost) Free(dir string) (uint64, error) {
	for {
		var s unix.Statfs_t
		err := unix.Statfs(dir, &s)
		if errors.Is(err, fs.ErrNotExist) && dir != "/" {
			dir = filepath.Dir(dir)
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("ask for the free space of %s: %w", dir, err)
		}
		return s.Bavail * uint64(s.Bsize), nil
	}
}

// RemovePods implements Host.
func (ThisHost) RemovePods(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return leftovers.RemovePods(ctx, strings.TrimPrefix(socket, "unix://"))
}

// RemoveCgroups implements Host.
func (ThisHost) RemoveCgroups(ctx context.Context, name string) error {
	return leftovers.RemoveCgroups(ctx, name)
}

// Unmount implements Host.
func (ThisHost) Unmount(dir string) error { return leftovers.UnmountBelow(dir) }

// Run implements Host.
func (ThisHost) Run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(complaint.String())
		if text == "" {
			text = strings.TrimSpace(out.String())
		}
		return out.String(), fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, text)
	}
	return out.String(), nil
}

// Become implements Host.
func (ThisHost) Become(program string) error {
	self, err := os.Executable()
	if err != nil || self == program {
		return err
	}
	if err := unix.Exec(program, os.Args, os.Environ()); err != nil {
		return fmt.Errorf("run %s: %w", program, err)
	}
	return nil
}
