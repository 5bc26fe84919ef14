package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"podium/pkg/cluster/machine"
)

// upgradeRun is what plan and apply do.
type upgradeRun func(context.Context, machine.Config, machine.Host, machine.UpgradeOptions) error

func newUpgrade(streams IO, plan, apply upgradeRun) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Bring this machine's daemons to another version",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newUpgradePlan(streams, plan), newUpgradeApply(streams, apply))
	return cmd
}

// packageFlags are those of both.
func packageFlags(cmd *cobra.Command, o *machine.UpgradeOptions) {
	fs := cmd.Flags()
	fs.StringVar(&o.Package, "package", "", "what to upgrade to: a Debian package, or a folder with binaries (or as make install DESTDIR= fills it)")
	fs.BoolVar(&o.Drain, "drain", true, "move the pods that other nodes can run")
	fs.StringSliceVar(&o.Ignore, "ignore-preflight-errors", nil, "checks that shall only warn; all: each of them")
}

func newUpgradePlan(streams IO, run upgradeRun) *cobra.Command {
	cfg, o := machine.Default(), machine.UpgradeOptions{}
	cfg.Out = streams.Out
	cmd := &cobra.Command{
		Use:   "plan [--package FILE]",
		Short: "Show what runs where, what an upgrade would do, and what is in the way",
		Long: `Show which version each node and apiserver has, in which order machines are
upgraded to the package's version (without one: to podium's own), what is done
there, and what is in the way. It fails when something is. Nothing is changed
but for the package being unpacked below /var/lib/podium/upgrade.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), cfg, machine.ThisHost{}, o) },
	}
	packageFlags(cmd, &o)
	return cmd
}

func newUpgradeApply(streams IO, run upgradeRun) *cobra.Command {
	cfg, o := machine.Default(), machine.UpgradeOptions{}
	cfg.Out = streams.Out
	cmd := &cobra.Command{
		Use:   "apply --package FILE",
		Short: "Upgrade this machine, when its turn has come",
		Long: `Upgrade this machine to the package's version: wait until no other machine of
the cluster is being upgraded, look for what is in the way, back the first
control plane up, move the pods that other nodes can run, put the new files in
place, and start the daemons anew, one after the other. Pods that stay run on.
When a daemon does not come up, the old version is brought back.

Control planes come first, then workers. A run that was interrupted is gone on
with by the same command, also without --package.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), cfg, machine.ThisHost{}, o) },
	}
	packageFlags(cmd, &o)
	cmd.Flags().DurationVar(&o.DrainTimeout, "drain-timeout", 5*time.Minute, "how long pods may take to move")
	cmd.Flags().DurationVar(&cfg.Wait, "wait", time.Minute, "how long to wait for each daemon, and for the node")
	return cmd
}
