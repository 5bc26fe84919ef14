package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"podium/pkg/cluster/poll"
)

// unit is a daemon of this machine: a systemd unit and its configuration file.
type unit struct {
	name string
	file string // below configDir
	conf settings
}

// The machine's units, in start order.
var (
	controlPlaneUnits = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", cloudManager}
	nodeUnits         = []string{"kubelet", "kube-proxy"}
)

// renewalTimer is the systemd timer that renews certificates, on every machine.
const renewalTimer = "podium-certs.timer"

func allUnits() []string { return slices.Concat(controlPlaneUnits, nodeUnits) }

// start writes the units' files, and enables and starts the units. It restarts
// a running unit only if its file or m.renewed has changed. It does not wait
// until they are ready: they depend on each other for that.
func (m *machine) start(ctx context.Context, units []unit) error {
	var all, stale []string
	for _, u := range units {
		changed, err := writeYAML(m.at(configDir, u.file), u.conf)
		if err != nil {
			return err
		}
		all = append(all, u.name+".service")
		if changed || m.renewed {
			stale = append(stale, u.name+".service")
		}
	}
	if err := m.startServices(ctx, all, stale); err != nil {
		return err
	}
	_, err := m.host.Run(ctx, "systemctl", "enable", "--quiet", "--now", renewalTimer)
	return err
}

// startServices enables all services and starts those that do not run. It
// restarts the stale ones.
func (m *machine) startServices(ctx context.Context, all, stale []string) error {
	for _, args := range [][]string{
		append([]string{"enable", "--quiet"}, all...), // also reloads the unit files
		append([]string{"restart", "--no-block"}, stale...),
		append([]string{"start", "--no-block"}, all...),
	} {
		if args[0] == "restart" && len(stale) == 0 {
			continue
		}
		if _, err := m.host.Run(ctx, "systemctl", args...); err != nil {
			return err
		}
	}
	return nil
}

// stopUnits stops and disables units in reverse order. It skips those that
// systemd does not have.
func (m *machine) stopUnits(ctx context.Context, names []string) error {
	for _, name := range slices.Backward(names) {
		if !m.hasUnit(ctx, name) {
			continue
		}
		if _, err := m.host.Run(ctx, "systemctl", "disable", "--quiet", "--now", name+".service"); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) hasUnit(ctx context.Context, name string) bool {
	return m.hasFile(ctx, name+".service")
}

// hasFile reports whether systemd has a unit file with that name.
func (m *machine) hasFile(ctx context.Context, file string) bool {
	_, err := m.host.Run(ctx, "systemctl", "cat", file)
	return err == nil
}

// stopRenewal disables the renewal timer, and stops a renewal that it may have
// just started.
func (m *machine) stopRenewal(ctx context.Context) error {
	if !m.hasFile(ctx, renewalTimer) {
		return nil
	}
	if _, err := m.host.Run(ctx, "systemctl", "disable", "--quiet", "--now", renewalTimer); err != nil {
		return err
	}
	_, err := m.host.Run(ctx, "systemctl", "stop", strings.TrimSuffix(renewalTimer, ".timer")+".service")
	return err
}

// active reports whether a unit runs or is about to.
func (m *machine) active(ctx context.Context, name string) bool {
	out, _ := m.host.Run(ctx, "systemctl", "is-active", name+".service")
	state := strings.TrimSpace(out)
	return state == "active" || state == "activating" || state == "reloading"
}

// crashLoop returns an error if a unit has restarted at least five times, with
// the end of its log; nil if it may still come up.
func (m *machine) crashLoop(ctx context.Context, name string) error {
	out, err := m.host.Run(ctx, "systemctl", "show", "-p", "NRestarts", "--value", name+".service")
	if err != nil {
		return err
	}
	var restarts int
	if _, err := fmt.Sscan(out, &restarts); err != nil || restarts < 5 {
		return nil
	}
	log, _ := m.host.Run(ctx, "journalctl", "-u", name+".service", "-n", "5", "-o", "cat", "--no-pager")
	return fmt.Errorf("%s does not come up: it ended %d times; journalctl -u %s says:\n%s", name, restarts, name, strings.TrimSpace(log))
}

// wait calls check every 100 ms until it returns nil, one of the needed units
// fails permanently, or m.Wait is over. It reports check's errors by waiting.
func (m *machine) wait(ctx context.Context, waiting func(string), check func(context.Context) error, needs ...string) error {
	checks := 0
	failed := func(ctx context.Context) error {
		if checks++; checks%20 != 0 { // it runs two programs for each unit
			return nil
		}
		for _, name := range needs {
			if err := m.crashLoop(ctx, name); err != nil {
				return err
			}
		}
		return nil
	}
	return poll.Wait{For: m.Wait, Every: 100 * time.Millisecond, Report: waiting, Failed: failed}.Until(ctx, check)
}
