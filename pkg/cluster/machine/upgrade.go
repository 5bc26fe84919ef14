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

	"podium/pkg/cluster/machine/upgrade"
	"podium/pkg/cluster/progress"
	"podium/pkg/version"
)

// UpgradeOptions say what to upgrade to, and how.
type UpgradeOptions struct {
	Package      string        // a Debian package, a directory filled by make install (DESTDIR), or one with binaries; "": continue the interrupted upgrade
	Drain        bool          // drain the node before the daemons restart
	DrainTimeout time.Duration // timeout of the drain
	Ignore       []string      // names of checks that only warn; "all" selects each of them
}

func (o UpgradeOptions) validate() error {
	for _, name := range o.Ignore {
		if !slices.Contains(upgrade.Checks(), name) {
			return fmt.Errorf("--ignore-preflight-errors: there is no check %q (there are %s)", name, strings.Join(upgrade.Checks(), ", "))
		}
	}
	return nil
}

// Files of an upgrade.
const (
	upgradeDir  = dataDir + "/upgrade"
	stagedDir   = upgradeDir + "/new" // the new files, by their paths on the machine
	keptDir     = upgradeDir + "/old" // copies of the old files, likewise
	journalFile = upgradeDir + "/state.json"
)

// upgrading is the upgrade of this machine. It runs in the podium of the new
// version, which knows what its daemons need.
type upgrading struct {
	*machine
	UpgradeOptions
	fleet   fleet
	plane   bool // whether this machine is a control plane
	to      string
	journal upgrade.Journal
	steps   *progress.Steps
	ended   map[string]string // systemd's restart counter of each daemon after we restarted it
}

// PlanUpgrade prints the versions of all nodes and control planes, and in which
// order to upgrade them to the version of the package (or of this podium). It
// returns an error with everything that prevents the upgrade of this machine.
// It changes no daemon, but unpacks the package.
func PlanUpgrade(ctx context.Context, cfg Config, host Host, o UpgradeOptions) error {
	return planUpgrade(ctx, cfg, host, o, connect)
}

// connector returns the cluster of a machine; tests provide their own.
type connector func(m *machine, plane bool) (fleet, error)

func planUpgrade(ctx context.Context, cfg Config, host Host, o UpgradeOptions, find connector) error {
	return withUpgrade(ctx, cfg, host, o, find, func(u *upgrading) error {
		s, err := u.survey(ctx)
		if err != nil {
			return err
		}
		s.Print(u.Out)
		if u.journal.Phase.Begun() {
			fmt.Fprintf(u.Out, "\nAn upgrade of this machine to %s was interrupted: podium upgrade apply continues it.\n", u.journal.To)
			return nil
		}
		return u.refuse(s)
	})
}

// ApplyUpgrade upgrades this machine to the package's version. It waits until
// no other machine is being upgraded, and blocks until the node is healthy. A
// failed upgrade is rolled back; an interrupted one continues with the next
// call.
func ApplyUpgrade(ctx context.Context, cfg Config, host Host, o UpgradeOptions) error {
	return applyUpgrade(ctx, cfg, host, o, connect)
}

func applyUpgrade(ctx context.Context, cfg Config, host Host, o UpgradeOptions, find connector) error {
	return withUpgrade(ctx, cfg, host, o, find, func(u *upgrading) error {
		if !u.journal.Phase.Begun() && u.Package == "" {
			return errors.New("no upgrade is in progress: give the package with --package")
		}
		if err := u.steps.Do(ctx, "its turn", u.fleet.free); err != nil {
			return err
		}
		return u.fleet.turn(ctx, u.run)
	})
}

// withUpgrade takes the machine's upgrade lock, unpacks the package, continues
// as the podium in it, and calls do.
func withUpgrade(ctx context.Context, cfg Config, host Host, o UpgradeOptions, find connector, do func(*upgrading) error) error {
	if err := o.validate(); err != nil {
		return err
	}
	m, err := loadMachine(cfg, host)
	if err != nil {
		return err
	}
	if !host.IsRoot() {
		return errors.New("this requires root: run it with sudo")
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

// open reads the journal, unpacks the package and hands over to the new podium.
func (u *upgrading) open(ctx context.Context, find connector) (err error) {
	if u.journal, err = upgrade.ReadJournal(u.at(journalFile)); err != nil {
		return err
	}
	if err := u.stage(ctx); err != nil {
		return err
	}
	if err := u.execStaged(); err != nil {
		return err
	}
	if u.journal.Phase.Begun() && u.journal.To != u.to {
		return fmt.Errorf("an upgrade to %s was interrupted: continue it first (podium upgrade apply, without --package)", u.journal.To)
	}
	u.fleet, err = find(u.machine, u.plane)
	return err
}

// execStaged replaces this process with the staged podium, unless this process is
// that one.
func (u *upgrading) execStaged() error {
	if u.Package == "" && !u.journal.Phase.Begun() {
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

// lockFolder takes an exclusive lock in dir, which it creates if needed. It
// does not wait: it returns an error if another process has the lock.
func lockFolder(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(errors.New("another podium upgrade runs on this machine: wait for it"), f.Close())
	}
	return func() { _ = f.Close() }, nil
}
