package vm

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"podium/test/e2e/page"
)

// Timeouts for slow machines: the processor is emulated, and the host has few.
const (
	bootPatience   = 6 * time.Minute
	scriptPatience = 8 * time.Minute
	memory         = "2048"
)

// machine is a virtual machine; the operator's shell on it is SSH.
type machine struct {
	*lab
	t      *testing.T
	name   string
	number int
	qemu   *program // nil while it is powered off
	line   *program // the SSH connection that commands share; nil before it has booted
}

// place creates a blank machine, powered off.
func (l *lab) place(t *testing.T, number int, name string) (*machine, *page.Operator) {
	t.Helper()
	m := &machine{lab: l, t: t, name: name, number: number}
	sh(t, `cp --sparse=always "$1/disk" "$2"
		debugfs -w -R "write $3/key.pub /root/.ssh/authorized_keys" "$2" 2>/dev/null
		ip tuntap add `+m.tap()+` mode tap; ip link set `+m.tap()+` master machines up`, l.boot, m.disk(), l.dir)
	o := &page.Operator{T: t, Machine: m, Name: name, Patience: scriptPatience}
	t.Cleanup(func() {
		if t.Failed() && m.line != nil {
			m.journal(o)
		}
		m.powerOff()
		sh(t, "ip link delete "+m.tap())
		if err := os.Remove(m.disk()); err != nil {
			t.Error(err)
		}
	})
	return m, o
}

// journal saves the machine's journal beside its console.
func (m *machine) journal(o *page.Operator) {
	file := filepath.Join(m.dir, m.name+".journal")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	said, err := m.Run(ctx, "journalctl --no-pager -o short-monotonic")
	o.Logf("%s: what it said is kept in %s and %s (%v, %v)", m.name, m.console(), file, err, os.WriteFile(file, []byte(said), 0o600))
}

func (m *machine) ip() string      { return subnet + strconv.Itoa(10+m.number) }
func (m *machine) tap() string     { return "tap" + strconv.Itoa(m.number) }
func (m *machine) disk() string    { return filepath.Join(m.dir, m.name+".disk") }
func (m *machine) console() string { return filepath.Join(m.dir, m.name+".console") }

// kernelArgs returns the kernel command line, which identifies the machine.
func (m *machine) kernelArgs() string {
	return strings.Join([]string{
		"root=/dev/vda rw console=ttyS0 panic=5 net.ifnames=0",
		"ip=" + m.ip() + "::" + bridge + ":255.255.255.0:" + m.name + ":eth0:off",
		"systemd.hostname=" + m.name,
		// Emulated processors are slow: no mitigations that an emulated processor does
		// not need, no status messages on the console, no serial lines that do not
		// exist, no logind.
		"mitigations=off loglevel=4 systemd.show_status=error 8250.nr_uarts=1 systemd.mask=systemd-logind.service",
	}, " ")
}

// powerOn starts the machine. It does not wait until it has booted.
func (m *machine) powerOn() {
	m.t.Helper()
	console, err := os.OpenFile(m.console(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		m.t.Fatal(err)
	}
	defer console.Close()
	m.qemu = start(m.t, console, "qemu-system-x86_64", "-name", m.name, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-accel", m.accel, "-cpu", "max", "-smp", "1", "-m", memory,
		"-kernel", filepath.Join(m.boot, "vmlinuz"), "-initrd", filepath.Join(m.boot, "initrd"), "-append", m.kernelArgs(),
		// What a machine has written survives in the host's memory, as on a disk.
		"-drive", "file="+m.disk()+",format=raw,if=virtio,cache=unsafe",
		"-netdev", "tap,id=net,script=no,downscript=no,ifname="+m.tap(),
		"-device", fmt.Sprintf("virtio-net-pci,netdev=net,romfile=,mac=52:54:00:00:00:%02x", 10+m.number),
		"-device", "virtio-rng-pci", "-serial", "stdio")
}

// booted waits until the machine has started all services, and opens the connection that its
// commands share.
func (m *machine) booted(o *page.Operator) {
	o.Helper()
	o.Until(bootPatience, "systemctl is-system-running | grep -qE 'running|degraded'")
	m.line = start(o.T, nil, "ssh", append(m.options(), "-o", "ControlMaster=yes", "-N", m.user())...)
}

// powerOff ends the machine without a shutdown.
func (m *machine) powerOff() {
	m.qemu.end()
	m.line.end()
	m.qemu, m.line = nil, nil
	_ = os.Remove(m.socket()) // of the SSH connection, if there was one
}

// program is a process that runs beside the test.
type program struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func start(t *testing.T, out io.Writer, name string, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(name, args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // its output contains its error
	}()
	return p
}

// end kills the process, if it has not ended by itself.
func (p *program) end() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
}

func (m *machine) user() string { return "root@" + m.ip() }

func (m *machine) socket() string { return filepath.Join(m.dir, m.name+".ssh") }

// options returns the options of ssh. Host keys are not verified: all machines have the same one,
// and nothing else is on the bridge.
func (m *machine) options() []string {
	return []string{
		"-i", filepath.Join(m.dir, "key"), "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=10",
		"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "ControlPath=" + m.socket(),
	}
}

// Run implements page.Machine.
func (m *machine) Run(ctx context.Context, script string) (string, error) {
	return m.ssh(ctx, strings.NewReader(script), "bash -e -s")
}

// Put implements page.Machine.
func (m *machine) Put(ctx context.Context, file, path string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if said, err := m.ssh(ctx, f, "cat >'"+path+"'"); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}

func (m *machine) ssh(ctx context.Context, in io.Reader, command string) (string, error) {
	cmd := exec.CommandContext(ctx, "ssh", append(m.options(), m.user(), command)...)
	cmd.Stdin = in
	out, err := cmd.CombinedOutput()
	return string(out), err
}
