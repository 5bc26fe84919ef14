package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"podium/pkg/cluster/progress"
	"podium/pkg/version"
)

// UpgradeOptions say to what, and how gently.
type UpgradeOptions struct {
	Package      string        // a Debian package, a folder as make install fills it (DESTDIR), or one with binaries; "": go on with what was begun
	Drain        bool          // move the pods that others can run before the daemons are started anew
	DrainTimeout time.Duration // how long that may take
	Ignore       []string      // names of checks that only warn; "all": each of them
}

// upgradeChecks are the names of what can be in the way.
var upgradeChecks = []string{"all", "certificates", "disk", "downgrade", "etcd", "interrupted", "nodes", "order", "package", "pods", "servers", "skew", "version"}

func (o UpgradeOptions) validate() error {
	for _, name := range o.Ignore {
		if !slices.Contains(upgradeChecks, name) {
			return fmt.Errorf("--ignore-preflight-errors: there is no check %q (there are %s)", name, strings.Join(upgradeChecks, ", "))
		}
	}
	return nil
}

// Where an upgrade keeps what it needs until it is done, and if it is not.
const (
	upgradeDir  = dataDir + "/upgrade"
	stagedDir   = upgradeDir + "/new" // the new files, by their paths
	keptDir     = upgradeDir + "/old" // those before, likewise
	journalFile = upgradeDir + "/state.json"
)

// upgrading is a machine on its way from one version to another. The podium
// that does it is the new one: it knows what its daemons need.
type upgrading struct {
	*machine
	UpgradeOptions
	fleet   fleet
	plane   bool // part of the control plane
	to      string
	journal journal
	steps   *progress.Steps
	ended   map[string]string // how often systemd had counted each daemon's end when it was started anew
}

// PlanUpgrade prints what runs where, in which order it would be upgraded to
// what this podium is (or the package holds), and what is in the way: that is
// the error.
func PlanUpgrade(ctx context.Context, cfg Config, host Host, o UpgradeOptions) error {
	return planUpgrade(ctx, cfg, host, o, connect)
}

// connector finds the machine's cluster; tests bring one of their own.
type connector func(m *machine, plane bool) (fleet, error)

func planUpgrade(ctx context.Context, cfg Config, host Host, o UpgradeOptions, find connector) error {
	return withUpgrade(ctx, cfg, host, o, find, func(u *upgrading) error {
		s, err := u.survey(ctx)
		if err != nil {
			return err
		}
		s.print(u.Out)
		if u.journal.Phase.begun() {
			fmt.Fprintf(u.Out, "\nAn upgrade of this machine to %s was interrupted: podium upgrade apply goes on with it.\n", u.journal.To)
			return nil
		}
		return u.refuse(s)
	})
}

// ApplyUpgrade brings this machine to the package's version, when its turn has
// come. What fails is rolled back. An interrupted run is gone on with by
// calling it again.
func ApplyUpgrade(ctx context.Context, cfg Config, host Host, o UpgradeOptions) error {
	return applyUpgrade(ctx, cfg, host, o, connect)
}

func applyUpgrade(ctx context.Context, cfg Config, host Host, o UpgradeOptions, find connector) error {
	return withUpgrade(ctx, cfg, host, o, find, func(u *upgrading) error {
		if !u.journal.Phase.begun() && u.Package == "" {
			return errors.New("nothing was begun here: name what to upgrade to with --package")
		}
		if err := u.steps.Do(ctx, "its turn", u.fleet.free); err != nil {
			return err
		}
		return u.fleet.turn(ctx, u.run)
	})
}

// withUpgrade unpacks the package, goes on as the podium that is in it, and
// keeps others from doing the same meanwhile.
func withUpgrade(ctx context.Context, cfg Config, host Host, o UpgradeOptions, find connector, do func(*upgrading) error) error {
	if err := o.validate(); err != nil {
		return err
	}
	m, err := recall(cfg, host)
	if err != nil {
		return err
	}
	if !host.IsRoot() {
		return errors.New("only root may do this: run it as root (sudo)")
	}
	unlock, err := lockFolder(m.at(upgradeDir))
	if err != nil {
		return err
	}
	defer unlock()
	u := &upgrading{machine: m, UpgradeOptions: o, to: version.Podium, steps: progress.Start(m.Out), ended: map[string]string{}}
	_, err = os.Stat(m.at(configDir, "kube-apiserver.yaml"))
	u.plane = err == nil
	if err := u.open(ctx, find); err != nil {
		return err
	}
	return do(u)
}

func (u *upgrading) open(ctx context.Context, find connector) (err error) {
	if u.journal, err = readJournal(u.at(journalFile)); err != nil {
		return err
	}
	if err := u.stage(ctx); err != nil {
		return err
	}
	if err := u.handOver(); err != nil {
		return err
	}
	if u.journal.Phase.begun() && u.journal.To != u.to {
		return fmt.Errorf("an upgrade to %s was interrupted: first go on with it (podium upgrade apply, without --package)", u.journal.To)
	}
	u.fleet, err = find(u.machine, u.plane)
	return err
}

// handOver goes on as the podium of the new files, unless that is who we are.
func (u *upgrading) handOver() error {
	if u.Package == "" && !u.journal.Phase.begun() {
		return nil
	}
	for _, prefix := range []string{"/usr", "/usr/local"} {
		next := u.at(stagedDir, prefix, "bin/podium")
		if _, err := os.Stat(next); err != nil {
			continue
		}
		return u.host.Become(next)
	}
	return fmt.Errorf("%s holds no podium", u.Package)
}

// lockFolder makes sure that one process at a time works in a folder.
func lockFolder(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(errors.New("another podium upgrade is at work on this machine: wait for it"), f.Close())
	}
	return func() { _ = f.Close() }, nil
}
