package machine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"podium/pkg/cluster/machine/etcd"
)

// check is a preflight check. run returns what is wrong and changes nothing; do
// is the advice to the operator.
type check struct {
	name string
	run  func(ctx context.Context, m *machine) error
	do   string
	warn bool // a failure only prints a warning
}

// leastDisk is the free space in bytes that etcd, logs and images need at once.
const leastDisk = 1 << 30

// commonChecks returns the checks for every machine.
func commonChecks() []check {
	return []check{
		{name: "root", run: checkRoot, do: "run this as root (sudo)"},
		{name: "systemd", run: checkSystemd, do: "boot this machine with systemd; to try Podium without it: podium cluster create"},
		{name: "units", run: checkUnits(nodeUnits), do: "install Podium's package, or make install"},
		{name: "timer", run: checkTimer, do: "install Podium's package, or make install"},
		{name: "programs", run: checkPrograms, do: "install Podium's package, or what is named from Debian: apt-get install containerd runc iptables iproute2 mount containernetworking-plugins"},
		{name: "ports", run: checkPorts(10250, 10248, 10249, 10256), do: "stop the process that listens there (ss -ltnp shows it); podium reset removes what is left of another cluster"},
		{name: "forwarding", run: checkForwarding, do: "sysctl -w net.ipv4.ip_forward=1 (IPv6: net.ipv6.conf.all.forwarding=1), and to keep it, put that into /etc/sysctl.d/60-podium.conf"},
		{name: "overlay", run: checkOverlay, do: "modprobe overlay, and to keep it: echo overlay > /etc/modules-load.d/podium.conf"},
		{name: "cgroups", run: checkCgroups, do: "turn the controllers on in the kernel's command line (cgroup_enable=memory)"},
		{name: "disk", run: checkDisk, do: "free space, or mount a larger disk there"},
		{name: "clock", run: checkClock, do: "set the clock and keep it right: apt-get install systemd-timesyncd"},
		{name: "swap", run: checkSwap, do: "swapoff -a, and take swap out of /etc/fstab", warn: true},
	}
}

// controlPlaneChecks returns the checks for a control plane whose apiserver
// listens on port.
func controlPlaneChecks(port int) []check {
	return append(commonChecks(),
		check{name: "control-plane-units", run: checkUnits(controlPlaneUnits), do: "install Podium's package, or make install"},
		check{name: "control-plane-ports", run: checkPorts(port, etcd.ClientPort, etcd.PeerPort, 10257, 10259), do: "stop the process that listens there (ss -ltnp shows it); podium reset removes what is left of another cluster"},
	)
}

func checkNames() []string {
	names := []string{"all"}
	for _, c := range controlPlaneChecks(0) {
		names = append(names, c.name)
	}
	return names
}

func knownCheck(name string) bool { return slices.Contains(checkNames(), name) }

// preflight runs the checks and reports all failures at once. Commands call it
// before they change anything.
func (m *machine) preflight(ctx context.Context, checks []check) error {
	var errs []error
	for _, c := range checks {
		err := c.run(ctx, m)
		if err == nil {
			continue
		}
		if c.warn || slices.Contains(m.IgnorePreflight, c.name) || slices.Contains(m.IgnorePreflight, "all") {
			fmt.Fprintf(m.Out, "   warning: %v\n", err)
			continue
		}
		errs = append(errs, fmt.Errorf("[%s] %w\n    → %s", c.name, err, c.do))
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("this machine is not ready; nothing was changed\n%w", errors.Join(errs...))
}

func checkRoot(_ context.Context, m *machine) error {
	if !m.host.IsRoot() {
		return errors.New("only root may do this")
	}
	return nil
}

func checkSystemd(_ context.Context, m *machine) error {
	if _, err := os.Stat(m.at("/run/systemd/system")); err != nil {
		return errors.New("systemd does not run this machine")
	}
	return nil
}

// checkUnits checks that the units and the programs of the same names are
// installed.
func checkUnits(names []string) func(context.Context, *machine) error {
	return func(ctx context.Context, m *machine) error {
		var missing []string
		for _, name := range names {
			if !m.hasUnit(ctx, name) {
				missing = append(missing, name+".service")
			}
			if !m.host.Program(name) {
				missing = append(missing, name)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("not installed: %s", strings.Join(missing, ", "))
		}
		return nil
	}
}

func checkTimer(ctx context.Context, m *machine) error {
	if !m.hasFile(ctx, renewalTimer) {
		return errors.New("not installed: " + renewalTimer)
	}
	return nil
}

// checkPrograms checks for the programs that the daemons run.
func checkPrograms(_ context.Context, m *machine) error {
	programs := []string{"iptables", "iptables-restore", "ip", "mount"}
	if m.six() {
		programs = append(programs, "ip6tables", "ip6tables-restore")
	}
	if m.Runtime == "" {
		programs = append(programs, "containerd", "ctr", "runc")
	}
	var missing []string
	for _, p := range programs {
		if !m.host.Program(p) {
			missing = append(missing, p)
		}
	}
	if m.Runtime == "" && m.cniPlugins() == "" {
		missing = append(missing, "the CNI plugins (in /opt/cni/bin or /usr/lib/cni)")
	}
	if len(missing) > 0 {
		return fmt.Errorf("not installed: %s", strings.Join(missing, ", "))
	}
	return nil
}

// checkPorts accepts a port that is in use if the unit that owns it is active.
func checkPorts(ports ...int) func(context.Context, *machine) error {
	owners := map[int]string{etcd.ClientPort: "etcd", etcd.PeerPort: "etcd", 10257: "kube-controller-manager", 10259: "kube-scheduler",
		10250: "kubelet", 10248: "kubelet", 10249: "kube-proxy", 10256: "kube-proxy"}
	return func(ctx context.Context, m *machine) error {
		var taken []string
		for _, port := range ports {
			owner := owners[port]
			if owner == "" {
				owner = "kube-apiserver"
			}
			if err := m.host.PortFree(port); err != nil && !m.active(ctx, owner) {
				taken = append(taken, fmt.Sprintf("%d (%s)", port, owner))
			}
		}
		if len(taken) > 0 {
			return fmt.Errorf("in use by another program: port %s", strings.Join(taken, ", "))
		}
		return nil
	}
}

func checkForwarding(_ context.Context, m *machine) error {
	family, file := "IPv4", "/proc/sys/net/ipv4/ip_forward"
	if m.six() {
		family, file = "IPv6", "/proc/sys/net/ipv6/conf/all/forwarding"
	}
	data, err := os.ReadFile(m.at(file))
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(data)) != "1" {
		return fmt.Errorf("the kernel does not forward %s packets", family)
	}
	return nil
}

func checkOverlay(_ context.Context, m *machine) error {
	data, err := os.ReadFile(m.at("/proc/filesystems"))
	if err != nil {
		return err
	}
	if !slices.Contains(strings.Fields(string(data)), "overlay") {
		return errors.New("the kernel has no overlay file system, which containers' images need")
	}
	return nil
}

// checkCgroups supports both versions of cgroups.
func checkCgroups(_ context.Context, m *machine) error {
	var have []string
	if data, err := os.ReadFile(m.at("/sys/fs/cgroup/cgroup.controllers")); err == nil {
		have = strings.Fields(string(data))
	} else {
		entries, err := os.ReadDir(m.at("/sys/fs/cgroup"))
		if err != nil {
			return err
		}
		for _, e := range entries {
			have = append(have, strings.Split(e.Name(), ",")...)
		}
	}
	var missing []string
	for _, name := range []string{"cpu", "memory", "pids"} {
		if !slices.Contains(have, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the kernel lacks the cgroup controllers %s", strings.Join(missing, ", "))
	}
	return nil
}

func checkDisk(_ context.Context, m *machine) error {
	for _, dir := range []string{dataDir, "/var/lib/containerd", "/var/lib/kubelet"} {
		free, err := m.host.Free(m.at(dir))
		if err != nil {
			return err
		}
		if free < leastDisk {
			return fmt.Errorf("only %d MiB are free for %s: at least %d are needed", free>>20, dir, leastDisk>>20)
		}
	}
	return nil
}

// checkClock detects a clock that was never set: certificates would not be
// valid on any other machine.
func checkClock(_ context.Context, m *machine) error {
	built := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	if now := m.Now(); now.Before(built) {
		return fmt.Errorf("the clock shows %s, which is in the past", now.UTC().Format(time.RFC3339))
	}
	return nil
}

func checkSwap(_ context.Context, m *machine) error {
	f, err := os.Open(m.at("/proc/swaps"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := 0
	for s := bufio.NewScanner(f); s.Scan(); {
		lines++
	}
	if lines > 1 {
		return errors.New("swap is on: pods' memory limits will not hold what goes there (swapoff -a)")
	}
	return nil
}
