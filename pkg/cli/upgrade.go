package cli

import (
	"time"

	"github.com/spf13/cobra"

	"podium/pkg/cluster/machine"
)

func newUpgrade(streams IO, plan, apply optionsRun[machine.UpgradeOptions]) *cobra.Command {
	return group("upgrade", "Upgrade the daemons of this machine", newUpgradePlan(streams, plan), newUpgradeApply(streams, apply))
}

// packageFlags adds the flags that plan and apply have in common.
func packageFlags(cmd *cobra.Command, o *machine.UpgradeOptions) {
	fs := cmd.Flags()
	fs.StringVar(&o.Package, "package", "", "version to upgrade to: a Debian package, a directory with binaries, or one that make install DESTDIR= has filled")
	fs.BoolVar(&o.Drain, "drain", true, "evict the pods that other nodes can run")
	preflightFlag(fs, &o.Ignore)
}

func newUpgradePlan(streams IO, run optionsRun[machine.UpgradeOptions]) *cobra.Command {
	o := machine.UpgradeOptions{}
	cmd, _ := onMachine(streams, &cobra.Command{
		Use:   "plan [--package FILE]",
		Short: "Show versions, the steps of an upgrade, and what prevents it",
		Long: `Show which version each node and apiserver runs, in which order machines are
upgraded to the package's version (without one: to podium's own), the steps on
this machine, and what prevents the upgrade. The command fails if something does.
It changes nothing, except that it unpacks the package below
/var/lib/podium/upgrade.`,
	}, with(run, &o))
	packageFlags(cmd, &o)
	return cmd
}

func newUpgradeApply(streams IO, run optionsRun[machine.UpgradeOptions]) *cobra.Command {
	o := machine.UpgradeOptions{}
	cmd, cfg := onMachine(streams, &cobra.Command{
		Use:   "apply --package FILE",
		Short: "Upgrade this machine to the version of a package",
		Long: `Upgrade this machine to the package's version: wait until no other machine of
the cluster is being upgraded, run preflight checks, back up the first control
plane, evict the pods that other nodes can run, install the new files, and restart
the daemons one after the other. Other pods keep running. If a daemon does not
become ready, the upgrade is rolled back.

Upgrade control planes first, then workers. To continue an interrupted upgrade,
run the command again, with or without --package.`,
	}, with(run, &o))
	packageFlags(cmd, &o)
	cmd.Flags().DurationVar(&o.DrainTimeout, "drain-timeout", 5*time.Minute, "length of time to wait for pods to be evicted")
	cmd.Flags().DurationVar(&cfg.Wait, "wait", time.Minute, "how long to wait for each daemon, and for the node")
	return cmd
}
