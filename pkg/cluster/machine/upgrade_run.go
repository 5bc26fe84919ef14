package machine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/cluster/machine/upgrade"
)

// run continues from the journal's phase: to the new version, or back to the
// old one. An error in a phase before upgrade.Finishing causes a roll-back.
func (u *upgrading) run(ctx context.Context) error {
	if u.journal.Phase == upgrade.Undoing {
		return errors.Join(fmt.Errorf("the upgrade to %s had failed: %s", u.journal.To, u.journal.Failure), u.undo(ctx))
	}
	err := u.forward(ctx)
	if err == nil || !u.journal.Phase.Begun() {
		return err
	}
	if u.journal.Phase == upgrade.Finishing {
		return fmt.Errorf("%w\n    the daemons run %s; to finish, run podium upgrade apply again", err, u.to)
	}
	u.journal.Failure = err.Error()
	return errors.Join(err, u.undo(context.WithoutCancel(ctx)))
}

// forward runs the phases from the journal's on. While no file has changed it
// checks the cluster first.
func (u *upgrading) forward(ctx context.Context) error {
	if p := u.journal.Phase; p == upgrade.Swapping || p == upgrade.Starting || p == upgrade.Finishing {
		fmt.Fprintf(u.Out, "   continuing the upgrade to %s at phase %s\n", u.to, p)
	} else if done, err := u.begin(ctx); done || err != nil {
		return err
	}
	for _, s := range []struct {
		phase upgrade.Phase
		run   func(context.Context) error
	}{
		{upgrade.Draining, u.leave}, {upgrade.Keeping, u.keepFiles}, {upgrade.Swapping, u.replace},
		{upgrade.Starting, u.restart}, {upgrade.Finishing, u.finish},
	} {
		if s.phase.Before(u.journal.Phase) {
			continue // done before an interruption
		}
		if err := u.enter(s.phase); err != nil {
			return err
		}
		if err := s.run(ctx); err != nil {
			return err
		}
	}
	if err := u.enter(upgrade.Done); err != nil {
		return err
	}
	u.steps.Total(u.Node + " is at " + u.to)
	return nil
}

// begin checks the cluster, records the state before the upgrade in the journal
// and, on the first control plane, makes a backup. done means that this machine
// needs no upgrade.
func (u *upgrading) begin(ctx context.Context) (done bool, err error) {
	var s *upgrade.Survey
	err = u.steps.Do(ctx, "cluster checked", plain(func(ctx context.Context) (err error) {
		if s, err = u.survey(ctx); err != nil {
			return err
		}
		return u.refuse(s)
	}))
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(s.Nodes, func(n *corev1.Node) bool { return n.Name == u.Node })
	if i < 0 {
		return false, fmt.Errorf("the cluster has no node %s", u.Node)
	}
	self := s.Nodes[i]
	if !u.journal.Phase.Begun() {
		if same, err := u.installed(); err != nil || same && s.Done() {
			if err == nil {
				fmt.Fprintf(u.Out, "   %s is at %s already\n", u.Node, u.to)
			}
			return true, err
		}
		source, err := filepath.Abs(u.Package)
		if err != nil {
			return false, err
		}
		u.journal = upgrade.Journal{From: self.Status.NodeInfo.KubeletVersion, To: u.to, Package: source, Drain: u.Drain, Cordoned: self.Spec.Unschedulable}
	}
	if !u.plane || !s.First() || u.journal.Backup != "" {
		return false, nil
	}
	file := filepath.Join(upgradeDir, "before-"+u.Now().UTC().Format("20060102-150405")+".backup")
	if err := u.steps.Do(ctx, "backup "+filepath.Base(file), plain(func(ctx context.Context) error { return u.fleet.backup(ctx, u.at(file)) })); err != nil {
		return false, err
	}
	u.journal.Backup = file
	return false, nil
}

// leave cordons and drains the node, if requested, and annotates it.
func (u *upgrading) leave(ctx context.Context) error {
	if !u.journal.Drain {
		return u.fleet.cordon(ctx, u.journal.Cordoned, u.to)
	}
	return u.steps.Do(ctx, "node "+u.Node+" drained", func(ctx context.Context, waiting func(string)) error {
		if err := u.fleet.cordon(ctx, true, u.to); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, u.DrainTimeout)
		defer cancel()
		return u.fleet.drain(ctx, waiting)
	})
}

func (u *upgrading) keepFiles(ctx context.Context) error {
	return u.steps.Do(ctx, "present files saved", plain(u.keep))
}

// replace installs the new version's files, certificates and configuration of
// the daemons.
func (u *upgrading) replace(ctx context.Context) error {
	u.journal.Touched = true
	if err := u.enter(upgrade.Swapping); err != nil {
		return err
	}
	return u.steps.Do(ctx, "new files installed", plain(func(ctx context.Context) error {
		if err := u.swap(); err != nil {
			return err
		}
		if err := u.saveConfig(); err != nil {
			return err
		}
		if err := u.certificates(); err != nil {
			return err
		}
		var names []string
		for _, unit := range u.units() {
			if _, err := writeYAML(u.at(configDir, unit.file), unit.conf); err != nil {
				return err
			}
			names = append(names, unit.name+".service")
		}
		if _, err := u.host.Run(ctx, "systemctl", "daemon-reload"); err != nil {
			return err
		}
		_, err := u.host.Run(ctx, "systemctl", append([]string{"enable", "--quiet"}, names...)...)
		return err
	}))
}

// certificates creates the certificates that the new version needs: a control
// plane signs its own, a worker's kubelet requests them.
func (u *upgrading) certificates() error {
	if u.plane {
		return u.identities()
	}
	return u.requestServing()
}

// units returns this machine's units as the new version defines them.
func (u *upgrading) units() []unit {
	if u.plane {
		return append(u.controlPlane(), u.node()...)
	}
	j := &joining{machine: u.machine}
	return []unit{j.kubelet(), u.proxy()}
}

// restart restarts the daemons one after the other, in start order, and waits
// until the node is healthy.
func (u *upgrading) restart(ctx context.Context) error {
	for _, s := range []step{{"containerd set up", plain(u.runtime)}, {"images loaded", u.images}} {
		if err := u.steps.Do(ctx, s.name, s.run); err != nil {
			return err
		}
	}
	for _, unit := range u.units() {
		if err := u.restartUnit(ctx, unit.name); err != nil {
			return err
		}
	}
	return u.healthy(ctx, u.to)
}

// restartUnit restarts a daemon and waits until it has reported to systemd that
// it is ready.
func (u *upgrading) restartUnit(ctx context.Context, name string) error {
	return u.steps.Do(ctx, name+" restarted", func(ctx context.Context, waiting func(string)) (err error) {
		waiting("until it is ready")
		if name == "etcd" {
			if err := u.stopAPIServer(ctx); err != nil {
				return err
			}
		}
		starting, cancel := context.WithTimeout(ctx, u.Wait)
		defer cancel()
		if _, err = u.host.Run(starting, "systemctl", "restart", name+".service"); err != nil {
			return u.withLog(ctx, name, err)
		}
		if u.ended[name], err = u.ends(ctx, name); err != nil {
			return err
		}
		if name == "kube-apiserver" {
			return u.fleet.apiserver(ctx, waiting)
		}
		return nil
	})
}

// stopAPIServer moves the leadership to another member, and stops the apiserver,
// so that etcd's stop does not wait for its watches. The apiserver is the next
// daemon to be restarted.
func (u *upgrading) stopAPIServer(ctx context.Context) error {
	_ = u.fleet.moveLeader(ctx) // on an error the other members elect a leader
	_, err := u.host.Run(ctx, "systemctl", "stop", "kube-apiserver.service")
	return err
}

// withLog adds the end of a daemon's log to err.
func (u *upgrading) withLog(ctx context.Context, name string, err error) error {
	log, _ := u.host.Run(context.WithoutCancel(ctx), "journalctl", "-u", name+".service", "-n", "8", "-o", "cat", "--no-pager")
	return fmt.Errorf("%w\n    journalctl -u %s says:\n%s", err, name, strings.TrimSpace(log))
}

// healthy waits until the node is Ready with version want and all members of
// etcd are healthy. Then it returns an error if a daemon has restarted since.
func (u *upgrading) healthy(ctx context.Context, want string) error {
	return u.steps.Do(ctx, "node "+u.Node+" healthy", func(ctx context.Context, waiting func(string)) error {
		err := u.wait(ctx, waiting, func(ctx context.Context) error { return u.checkHealth(ctx, want) })
		if err != nil {
			return err
		}
		for _, unit := range u.units() {
			if err := u.steady(ctx, unit.name); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkHealth checks the node, its version and, on a control plane, etcd's
// members once.
func (u *upgrading) checkHealth(ctx context.Context, want string) error {
	nodes, err := u.fleet.nodes(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(nodes, func(n *corev1.Node) bool { return n.Name == u.Node })
	if i < 0 {
		return fmt.Errorf("the cluster has no node %s", u.Node)
	}
	n := nodes[i]
	if err := u.up(n); err != nil {
		return err
	}
	if have := n.Status.NodeInfo.KubeletVersion; have != want {
		return fmt.Errorf("the kubelet still reports version %s", have)
	}
	if !u.plane {
		return nil
	}
	members, err := u.fleet.members(ctx)
	if err != nil {
		return err
	}
	for _, e := range members {
		if e.State != "healthy" {
			return fmt.Errorf("etcd's member %s is %s", e.Name, e.State)
		}
	}
	return nil
}

// steady returns an error unless a daemon runs and has not restarted since
// restartUnit.
func (u *upgrading) steady(ctx context.Context, name string) error {
	if !u.active(ctx, name) {
		return u.withLog(ctx, name, fmt.Errorf("%s does not run", name))
	}
	n, err := u.ends(ctx, name)
	if err == nil && n != u.ended[name] {
		err = u.withLog(ctx, name, fmt.Errorf("%s became ready and exited again", name))
	}
	return err
}

// ends returns systemd's restart counter of a daemon.
func (u *upgrading) ends(ctx context.Context, name string) (string, error) {
	out, err := u.host.Run(ctx, "systemctl", "show", "-p", "NRestarts", "--value", name+".service")
	return strings.TrimSpace(out), err
}

// finish does what does not justify a roll-back if it fails.
func (u *upgrading) finish(ctx context.Context) error {
	if err := u.restoreScheduling(ctx); err != nil {
		return err
	}
	if u.hasFile(ctx, renewalTimer) { // a directory of binaries has no timer
		if _, err := u.host.Run(ctx, "systemctl", "enable", "--quiet", "--now", renewalTimer); err != nil {
			return err
		}
	}
	if u.plane {
		if err := u.steps.Do(ctx, "settings for other machines", u.fleet.settings); err != nil {
			return err
		}
		if err := u.steps.Do(ctx, "CA of kubelets' serving certificates", u.kubeletCA); err != nil {
			return err
		}
	}
	if !u.isDeb() {
		return nil
	}
	return u.steps.Do(ctx, "package registered", plain(func(ctx context.Context) error {
		// The daemons run already: the package must not restart them.
		_, err := u.host.Run(ctx, "env", "PODIUM_UPGRADE=1", "DEBIAN_FRONTEND=noninteractive", "dpkg", "--force-confdef", "--force-confold", "--install", u.journal.Package)
		return err
	}))
}

// kubeletCA finishes the move to the kubelet CA if all kubelets have moved.
// Those of machines that are not upgraded yet have not: the renewal timer
// continues later.
func (u *upgrading) kubeletCA(ctx context.Context, _ func(string)) error {
	waits, err := u.finishMoving(ctx, u.fleet)
	if err == nil && waits != "" {
		fmt.Fprintf(u.Out, "   the cluster's CA stays trusted for kubelets (podium certs renew --expiring goes on, daily by itself): %s\n", waits)
	}
	return err
}

// restoreScheduling uncordons the node, unless it was cordoned before the upgrade.
func (u *upgrading) restoreScheduling(ctx context.Context) error {
	return u.steps.Do(ctx, "node "+u.Node+" uncordoned", func(ctx context.Context, waiting func(string)) error {
		return u.wait(ctx, waiting, func(ctx context.Context) error { return u.fleet.cordon(ctx, u.journal.Cordoned, "") })
	})
}

// undo rolls back to the old version. It always returns an error, which says
// whether the roll-back succeeded.
func (u *upgrading) undo(ctx context.Context) error {
	if err := u.enter(upgrade.Undoing); err != nil {
		return err
	}
	fmt.Fprintf(u.Out, "   rolling back to %s: %s\n", u.journal.From, firstLine(u.journal.Failure))
	if u.journal.Touched {
		if err := u.restoreOld(ctx); err != nil {
			return fmt.Errorf("the roll-back to %s failed; run podium upgrade apply again: %w", u.journal.From, err)
		}
	}
	if err := u.restoreScheduling(ctx); err != nil {
		return fmt.Errorf("the old version runs again, but: %w", err)
	}
	if err := u.enter(upgrade.Undone); err != nil {
		return err
	}
	if u.journal.Touched {
		return fmt.Errorf("the upgrade to %s is rolled back: %s runs %s, as before", u.journal.To, u.Node, u.journal.From)
	}
	return fmt.Errorf("nothing was changed: %s runs %s", u.Node, u.journal.From)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// restoreOld restores the files and restarts the old daemons, each even if another
// one fails.
func (u *upgrading) restoreOld(ctx context.Context) error {
	var units []string
	err := u.steps.Do(ctx, "old files restored", plain(func(ctx context.Context) error {
		for _, unit := range u.units() {
			if slices.Contains(u.journal.Added, filepath.Join(configDir, unit.file)) { // added by the new version
				if err := u.stopUnits(ctx, []string{unit.name}); err != nil {
					return err
				}
				continue
			}
			units = append(units, unit.name)
		}
		if err := u.restore(); err != nil {
			return err
		}
		_, err := u.host.Run(ctx, "systemctl", "daemon-reload")
		return err
	}))
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range units {
		errs = append(errs, u.restartUnit(ctx, name))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return u.healthy(ctx, u.journal.From)
}

// enter records in the journal that a phase starts.
func (u *upgrading) enter(p upgrade.Phase) error {
	u.journal.Phase = p
	return u.journal.Write(u.at(journalFile))
}
