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
		Short: "Print the admin kubeconfig of a cluster of containers",
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
	name := ""
	image := &cobra.Command{
		Use:   "image IMAGE|ARCHIVE.tar...",
		Short: "Load images of the engine or image archives onto every node",
		Example: `  podium cluster load image localhost/app:v1
  podium cluster load image _images/web.tar --name ci`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return (&docker.Engine{}).Load(cmd.Context(), name, args)
		},
	}
	image.Flags().StringVar(&name, "name", defaultCluster, "the cluster")
	return group("load", "Manage images on the nodes of a cluster of containers", image)
}

func newClusterLogs(streams IO) *cobra.Command {
	return &cobra.Command{
		Use:   "logs DIR [NAME]",
		Short: "Export logs and state of a cluster for troubleshooting",
		Long: `Export to a directory, for a cluster of containers: the journal, units, network
state and pod logs of each node, the objects and events of the cluster, and the
engine's information about the containers. Secrets are left out.`,
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

// newClusterNode groups the commands that simulate failures of a node.
func newClusterNode(streams IO) *cobra.Command {
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
	stop := act("stop", "Shut down a node; with --now, as by a power failure", "stopped", func(ctx context.Context, name string) error { return engine.Stop(ctx, name, now) })
	stop.Flags().BoolVar(&now, "now", false, "kill the container: processes get no signal to terminate")
	return group("node", "Stop, start, pause or disconnect a node of a cluster of containers", stop,
		act("start", "Start a node that is stopped or paused", "started", engine.Start),
		act("pause", "Freeze the processes of a node until it is started", "paused", engine.Pause),
		act("partition", "Disconnect a node from the network; its processes keep running", "partitioned", engine.Partition),
		act("heal", "Reconnect a partitioned node", "healed", engine.Heal),
	)
}
