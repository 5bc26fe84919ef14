package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// unit is a daemon of this machine: a systemd unit and the file that sets it up.
type unit struct {
	name string
	file string // below configDir
	conf settings
}

// The machine's units, in the order in which they are started.
var (
	controlPlaneUnits = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", cloudManager}
	nodeUnits         = []string{"kubelet", "kube-proxy"}
)

// renewalTimer has certificates renewed in time, on every machine.
const renewalTimer = "podium-certs.timer"

func allUnits() []string { return slices.Concat(controlPlaneUnits, nodeUnits) }

// start makes sure that units run with their present files, now and after every
// boot: what runs so is left alone. It does not wait until they are ready:
// they need each other for that.
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

// startServices starts those that do not run; stale ones are started afresh.
func (m *machine) startServices(ctx context.Context, all, stale []string) error {
	for _, args := range [][]string{
		append([]string{"enable", "--quiet"}, all...), // reads the files of units anew
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

// stopUnits stops units and keeps them from coming back. Those that systemd
// does not know are fine.
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

// hasFile says whether systemd knows a unit by its file's name.
func (m *machine) hasFile(ctx context.Context, file string) bool {
	_, err := m.host.Run(ctx, "systemctl", "cat", file)
	return err == nil
}

// stopRenewal ends the timer, and what it may have just started.
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

// active says whether a unit runs, or is about to.
func (m *machine) active(ctx context.Context, name string) bool {
	out, _ := m.host.Run(ctx, "systemctl", "is-active", name+".service")
	state := strings.TrimSpace(out)
	return state == "active" || state == "activating" || state == "reloading"
}

// trouble is what systemd knows of a unit that does not come up: nil while it
// may still do. One that has failed several times will not.
func (m *machine) trouble(ctx context.Context, name string) error {
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

// wait asks until check passes, a unit that it needs has failed for good, or
// the configured patience ends.
func (m *machine) wait(ctx context.Context, waiting func(string), check func(context.Context) error, needs ...string) error {
	ctx, cancel := context.WithTimeout(ctx, m.Wait)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last error
	for i := 1; ; i++ {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // what failed because time ran out says nothing new
			waiting(err.Error())
		}
		if i%20 == 0 {
			for _, name := range needs {
				if err := m.trouble(ctx, name); err != nil {
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up after %s: %w", m.Wait, last)
		case <-tick.C:
		}
	}
}
