package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"podium/pkg/cluster/docker"
)

func newClusterKubeconfig(streams IO) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig [NAME]",
		Short: "Print the administrator's kubeconfig of a cluster of containers",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := (&docker.Engine{}).Kubeconfig(cmd.Context(), nameOf(args))
			if err != nil {
				return err
			}
			text, err := yaml.Marshal(config)
			if err != nil {
				return err
			}
			_, err = streams.Out.Write(text)
			return err
		},
	}
}

func newClusterLoad(IO) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Give images to the nodes of a cluster of containers",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	name := ""
	image := &cobra.Command{
		Use:   "image IMAGE|ARCHIVE.tar...",
		Short: "Load images of the engine, or archives of images, on every node",
		Example: `  podium cluster load image localhost/app:v1
  podium cluster load image _images/web.tar --name ci`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return (&docker.Engine{}).Load(cmd.Context(), name, args)
		},
	}
	image.Flags().StringVar(&name, "name", defaultCluster, "the cluster")
	cmd.AddCommand(image)
	return cmd
}

func newClusterLogs(streams IO) *cobra.Command {
	return &cobra.Command{
		Use:   "logs DIR [NAME]",
		Short: "Collect all that explains a failed run, for a CI artifact",
		Long: `Collect into a folder, of a cluster of containers: each node's journal, units,
network and pods' logs, the cluster's objects and events, and what the engine
says. Secrets are not among it.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := (&docker.Engine{}).Logs(cmd.Context(), nameOf(args[1:]), args[0]); err != nil {
				return err
			}
			fmt.Fprintln(streams.Out, args[0])
			return nil
		},
	}
}

// newClusterNode has what makes a node fail, and mends it.
func newClusterNode(streams IO) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Stop, start, pause or cut off a node of a cluster of containers",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	engine := &docker.Engine{}
	act := func(use, short, done string, do func(context.Context, string) error) *cobra.Command {
		return &cobra.Command{
			Use: use + " NODE", Short: short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				if err := do(cmd.Context(), args[0]); err != nil {
					return err
				}
				fmt.Fprintf(streams.Out, "node/%s %s\n", args[0], done)
				return nil
			},
		}
	}
	now := false
	stop := act("stop", "Shut a node down, or with --now: cut its power", "stopped", func(ctx context.Context, name string) error { return engine.Stop(ctx, name, now) })
	stop.Flags().BoolVar(&now, "now", false, "as by a power cut: nothing is told to end")
	cmd.AddCommand(stop,
		act("start", "Bring a node back that was stopped or paused", "started", engine.Start),
		act("pause", "Freeze a node's processes, until it is started", "paused", engine.Pause),
		act("partition", "Cut a node's network off; what runs on it goes on", "partitioned", engine.Partition),
		act("heal", "End a node's partition", "healed", engine.Heal),
	)
	return cmd
}
