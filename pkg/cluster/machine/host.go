package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"podium/pkg/cluster/cleanup"
)

// Host is the access to the machine that does not go through files. Tests
// provide their own.
type Host interface {
	Name() (string, error)
	Address() (string, error)         // that of the default route
	Addresses() ([]netip.Addr, error) // those of all interfaces
	IsRoot() bool
	Program(name string) bool // whether the program is installed
	PortFree(port int) error  // nil if a process could listen on the TCP port, otherwise the reason
	// Free returns the free space of dir's file system in bytes. dir need not
	// exist.
	Free(dir string) (uint64, error)
	// RemovePods removes every pod of the CRI runtime at a socket
	// (unix://PATH).
	RemovePods(ctx context.Context, socket string) error
	// RemoveCgroups kills the processes in the cgroups with that name and
	// removes the cgroups.
	RemoveCgroups(ctx context.Context, name string) error
	// Unmount detaches every mount below dir.
	Unmount(dir string) error
	// Run runs a program, waits until it exits and returns its standard output.
	// The error of a failed program includes its standard error.
	Run(ctx context.Context, program string, args ...string) (string, error)
	// Become replaces this process with program, with the same arguments. It
	// does nothing if this process runs that program already; otherwise it
	// returns only on error.
	Become(program string) error
}

// ThisHost implements Host for the machine that this process runs on.
type ThisHost struct{}

// Name implements Host.
func (ThisHost) Name() (string, error) { return os.Hostname() }

// Address implements Host. It sends no packet.
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

// Addresses implements Host.
func (ThisHost) Addresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, prefix.Addr())
		}
	}
	return out, nil
}

// IsRoot implements Host.
func (ThisHost) IsRoot() bool { return os.Geteuid() == 0 }

// Program implements Host. It also searches the directories of root's programs,
// which the PATH may lack.
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

// Free implements Host. For a directory that does not exist it uses the nearest
// existing parent.
func (ThisHost) Free(dir string) (uint64, error) {
	for {
		var s unix.Statfs_t
		err := unix.Statfs(dir, &s)
		if errors.Is(err, fs.ErrNotExist) && dir != "/" {
			dir = filepath.Dir(dir)
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("get the free space of %s: %w", dir, err)
		}
		return s.Bavail * uint64(s.Bsize), nil
	}
}

// RemovePods implements Host.
func (ThisHost) RemovePods(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return cleanup.RemovePods(ctx, strings.TrimPrefix(socket, "unix://"))
}

// RemoveCgroups implements Host.
func (ThisHost) RemoveCgroups(ctx context.Context, name string) error {
	return cleanup.RemoveCgroups(ctx, name)
}

// Unmount implements Host.
func (ThisHost) Unmount(dir string) error { return cleanup.UnmountBelow(dir) }

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
