package machine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// run goes on from where the journal says, to the new version or back to the
// old one.
func (u *upgrading) run(ctx context.Context) error {
	if u.journal.Phase == phaseUndoing {
		return errors.Join(fmt.Errorf("the upgrade to %s had failed: %s", u.journal.To, u.journal.Failure), u.undo(ctx))
	}
	err := u.forward(ctx)
	if err == nil || !u.journal.Phase.begun() {
		return err
	}
	if u.journal.Phase == phaseFinishing {
		return fmt.Errorf("%w\n    the daemons are at %s and work; for the rest, again: podium upgrade apply", err, u.to)
	}
	u.journal.Failure = err.Error()
	return errors.Join(err, u.undo(context.WithoutCancel(ctx)))
}

func (u *upgrading) forward(ctx context.Context) error {
	if p := u.journal.Phase; p == phaseSwapping || p == phaseStarting || p == phaseFinishing {
		fmt.Fprintf(u.Out, "   going on with the upgrade to %s, at: %s\n", u.to, p)
	} else if done, err := u.begin(ctx); done || err != nil {
		return err
	}
	for _, s := range []struct {
		phase phase
		run   func(context.Context) error
	}{
		{phaseDraining, u.leave}, {phaseKeeping, u.keepFiles}, {phaseSwapping, u.replace},
		{phaseStarting, u.restart}, {phaseFinishing, u.finish},
	} {
		if slices.Index(phases, s.phase) < slices.Index(phases, u.journal.Phase) {
			continue // done before an interruption
		}
		if err := u.enter(s.phase); err != nil {
			return err
		}
		if err := s.run(ctx); err != nil {
			return err
		}
	}
	if err := u.enter(phaseDone); err != nil {
		return err
	}
	u.steps.Total(u.Node + " is at " + u.to)
	return nil
}

// begin looks at the cluster, and notes what the upgrade begins from.
func (u *upgrading) begin(ctx context.Context) (done bool, err error) {
	var s *survey
	err = u.steps.Do(ctx, "cluster looked at", plain(func(ctx context.Context) (err error) {
		if s, err = u.survey(ctx); err != nil {
			return err
		}
		return u.refuse(s)
	}))
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(s.nodes, func(n *corev1.Node) bool { return n.Name == u.Node })
	if i < 0 {
		return false, fmt.Errorf("the cluster has no node %s", u.Node)
	}
	self := s.nodes[i]
	if !u.journal.Phase.begun() {
		if same, err := u.inPlace(); err != nil || same && s.done() {
			if err == nil {
				fmt.Fprintf(u.Out, "   %s is at %s already\n", u.Node, u.to)
			}
			return true, err
		}
		source, err := filepath.Abs(u.Package)
		if err != nil {
			return false, err
		}
		u.journal = journal{From: self.Status.NodeInfo.KubeletVersion, To: u.to, Package: source, Drain: u.Drain, Cordoned: self.Spec.Unschedulable}
	}
	if !u.plane || !s.first() || u.journal.Backup != "" {
		return false, nil
	}
	file := filepath.Join(upgradeDir, "before-"+u.Now().UTC().Format("20060102-150405")+".backup")
	if err := u.steps.Do(ctx, "backup "+filepath.Base(file), plain(func(ctx context.Context) error { return u.fleet.backup(ctx, u.at(file)) })); err != nil {
		return false, err
	}
	u.journal.Backup = file
	return false, nil
}

// leave lets others have what runs here.
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
	return u.steps.Do(ctx, "present files kept", plain(u.keep))
}

// replace puts the new version's files, and its settings of the daemons, in
// place of the old ones.
func (u *upgrading) replace(ctx context.Context) error {
	u.journal.Touched = true
	if err := u.enter(phaseSwapping); err != nil {
		return err
	}
	return u.steps.Do(ctx, "new files put in place", plain(func(ctx context.Context) error {
		if err := u.swap(); err != nil {
			return err
		}
		if err := u.remember(); err != nil {
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

// certificates are those that the new version wants: a control plane signs its
// own, a worker's kubelet asks for them.
func (u *upgrading) certificates() error {
	if u.plane {
		return u.identities()
	}
	return u.askForServing()
}

// units are those of this machine, as the new version wants them.
func (u *upgrading) units() []unit {
	if u.plane {
		return append(u.controlPlane(), u.node()...)
	}
	j := &joining{machine: u.machine}
	return []unit{j.kubelet(), u.proxy()}
}

// restart starts the daemons anew, one after the other in the order of their
// needs, and waits until all is as it was.
func (u *upgrading) restart(ctx context.Context) error {
	for _, s := range []step{{"containerd set up", plain(u.runtime)}, {"images loaded", u.images}} {
		if err := u.steps.Do(ctx, s.name, s.run); err != nil {
			return err
		}
	}
	for _, unit := range u.units() {
		if err := u.startAnew(ctx, unit.name); err != nil {
			return err
		}
	}
	return u.healthy(ctx, u.to)
}

// startAnew waits until systemd has heard that a daemon is ready.
func (u *upgrading) startAnew(ctx context.Context, name string) error {
	return u.steps.Do(ctx, name+" started anew", func(ctx context.Context, waiting func(string)) (err error) {
		waiting("until it is ready")
		if name == "etcd" {
			if err := u.beforeEtcd(ctx); err != nil {
				return err
			}
		}
		starting, cancel := context.WithTimeout(ctx, u.Wait)
		defer cancel()
		if _, err = u.host.Run(starting, "systemctl", "restart", name+".service"); err != nil {
			return u.lastWords(ctx, name, err)
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

// beforeEtcd: the others need not notice that their leader is gone, and etcd
// need not wait until the apiserver has closed its watches. That is the next to
// be started.
func (u *upgrading) beforeEtcd(ctx context.Context) error {
	_ = u.fleet.handLead(ctx) // if it does not, the others elect one
	_, err := u.host.Run(ctx, "systemctl", "stop", "kube-apiserver.service")
	return err
}

func (u *upgrading) lastWords(ctx context.Context, name string, err error) error {
	log, _ := u.host.Run(context.WithoutCancel(ctx), "journalctl", "-u", name+".service", "-n", "8", "-o", "cat", "--no-pager")
	return fmt.Errorf("%w\n    journalctl -u %s says:\n%s", err, name, strings.TrimSpace(log))
}

// healthy waits until the node is Ready with that version, and etcd's members
// all are well. Then every daemon must be one that has not ended since.
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
		return fmt.Errorf("the kubelet says it is %s still", have)
	}
	if !u.plane {
		return nil
	}
	members, err := u.fleet.members(ctx)
	if err != nil {
		return err
	}
	for _, e := range members {
		if e.state != "healthy" {
			return fmt.Errorf("etcd's member %s is %s", e.name, e.state)
		}
	}
	return nil
}

// steady says whether a daemon has run since it was started anew.
func (u *upgrading) steady(ctx context.Context, name string) error {
	if !u.active(ctx, name) {
		return u.lastWords(ctx, name, fmt.Errorf("%s does not run", name))
	}
	n, err := u.ends(ctx, name)
	if err == nil && n != u.ended[name] {
		err = u.lastWords(ctx, name, fmt.Errorf("%s became ready and ended again", name))
	}
	return err
}

// ends is how often systemd has had to start a daemon again.
func (u *upgrading) ends(ctx context.Context, name string) (string, error) {
	out, err := u.host.Run(ctx, "systemctl", "show", "-p", "NRestarts", "--value", name+".service")
	return strings.TrimSpace(out), err
}

// finish is what may fail without undoing what works.
func (u *upgrading) finish(ctx context.Context) error {
	if err := u.comeBack(ctx); err != nil {
		return err
	}
	if u.hasFile(ctx, renewalTimer) { // a folder may hold daemons only
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
		// The daemons run already: the package shall not start them anew.
		_, err := u.host.Run(ctx, "env", "PODIUM_UPGRADE=1", "DEBIAN_FRONTEND=noninteractive", "dpkg", "--force-confdef", "--force-confold", "--install", u.journal.Package)
		return err
	}))
}

// kubeletCA has kubelets trusted by their own CA only, if all have moved to it.
// Those of machines that are not upgraded yet have not: the timer goes on.
func (u *upgrading) kubeletCA(ctx context.Context, _ func(string)) error {
	waits, err := u.finishMoving(ctx, u.fleet)
	if err == nil && waits != "" {
		fmt.Fprintf(u.Out, "   the cluster's CA stays trusted for kubelets (podium certs renew --expiring goes on, daily by itself): %s\n", waits)
	}
	return err
}

// comeBack lets the node take pods again, if it did before.
func (u *upgrading) comeBack(ctx context.Context) error {
	return u.steps.Do(ctx, "node "+u.Node+" takes pods as before", func(ctx context.Context, waiting func(string)) error {
		return u.wait(ctx, waiting, func(ctx context.Context) error { return u.fleet.cordon(ctx, u.journal.Cordoned, "") })
	})
}

// undo goes back to what was, and says so in its error if that is not all.
func (u *upgrading) undo(ctx context.Context) error {
	if err := u.enter(phaseUndoing); err != nil {
		return err
	}
	fmt.Fprintf(u.Out, "   going back to %s: %s\n", u.journal.From, firstLine(u.journal.Failure))
	if u.journal.Touched {
		if err := u.putBack(ctx); err != nil {
			return fmt.Errorf("going back to %s did not work: again, podium upgrade apply: %w", u.journal.From, err)
		}
	}
	if err := u.comeBack(ctx); err != nil {
		return fmt.Errorf("the old version is back, but: %w", err)
	}
	if err := u.enter(phaseUndone); err != nil {
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

// putBack restores the files and starts the old daemons, each even if another
// does not come up.
func (u *upgrading) putBack(ctx context.Context) error {
	var units []string
	err := u.steps.Do(ctx, "old files put back", plain(func(ctx context.Context) error {
		for _, unit := range u.units() {
			if slices.Contains(u.journal.Added, filepath.Join(configDir, unit.file)) { // new with the new version
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
		errs = append(errs, u.startAnew(ctx, name))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return u.healthy(ctx, u.journal.From)
}
