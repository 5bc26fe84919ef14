package cli

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"podium/pkg/cluster/local"
)

func newCluster(streams IO) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Create, delete and list clusters on this machine",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newClusterCreate(streams, local.Create),
		newClusterDelete(streams, local.Delete),
		newClusterList(streams, local.List),
	)
	return cmd
}

// clusterRun is what create and delete do with their options.
type clusterRun func(context.Context, local.Config) error

func newClusterCreate(streams IO, run clusterRun) *cobra.Command {
	cfg := local.Config{Out: streams.Out}
	provider := ""
	images := ""
	cmd := &cobra.Command{
		Use:   "create [NAME]",
		Short: "Bring a cluster up, or back to what its flags say",
		Long: `Bring a cluster up, or back to what its flags say: what runs and fits is left
alone, what is missing or has died is started. With --provider local, the
default, the daemons and a containerd of their own run as processes of this
machine, as root, with all they need in one folder.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := onlyLocal(provider); err != nil {
				return err
			}
			if len(args) == 1 {
				cfg.Name = args[0]
			}
			if cfg.Images, err = filepath.Glob(filepath.Join(images, "*.tar")); err != nil {
				return fmt.Errorf("--images %q: %w", images, err)
			}
			return run(cmd.Context(), cfg)
		},
	}
	clusterFlags(cmd, &cfg, &provider)
	cmd.Flags().StringVar(&images, "images", "_images", "folder of image archives (*.tar) to load")
	cmd.Flags().StringVar(&cfg.Node, "node-name", "", "name of the node (default: the host's name)")
	cmd.Flags().StringVar(&cfg.NodeIP, "node-ip", "", "address of the node (default: that of the default route)")
	cmd.Flags().IntVar(&cfg.Port, "port", 6443, "port of the apiserver")
	cmd.Flags().DurationVar(&cfg.Wait, "wait", 0, "how long to wait for the node to be Ready (default 1m)")
	return cmd
}

func newClusterDelete(streams IO, run clusterRun) *cobra.Command {
	cfg := local.Config{Out: streams.Out}
	provider := ""
	cmd := &cobra.Command{
		Use:   "delete [NAME]",
		Short: "End a cluster and remove all it left on this machine",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := onlyLocal(provider); err != nil {
				return err
			}
			if len(args) == 1 {
				cfg.Name = args[0]
			}
			return run(cmd.Context(), cfg)
		},
	}
	clusterFlags(cmd, &cfg, &provider)
	return cmd
}

func newClusterList(streams IO, list func(dir string) ([]local.Found, error)) *cobra.Command {
	dir := ""
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the clusters of this machine",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			found, err := list(dir)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				fmt.Fprintln(streams.Err, "No clusters found. Bring one up with: podium cluster create")
				return nil
			}
			fmt.Fprintf(streams.Out, "%-16s %-10s %-8s %s\n", "NAME", "PROVIDER", "RUNNING", "KUBECONFIG")
			for _, c := range found {
				fmt.Fprintf(streams.Out, "%-16s %-10s %-8s %s\n", c.Name, "local", fmt.Sprintf("%d/%d", c.Running, c.Processes), c.Kubeconfig)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "_run", "folder to look in, besides those of running clusters")
	return cmd
}

func clusterFlags(cmd *cobra.Command, cfg *local.Config, provider *string) {
	cmd.Flags().StringVar(provider, "provider", "local", "what the nodes are: local (processes of this machine)")
	cmd.Flags().StringVar(&cfg.Dir, "dir", "_run", "folder of the cluster")
	cmd.Flags().StringVar(&cfg.Bin, "bin", "", "folder of the daemons' binaries (default: that of podium)")
}

func onlyLocal(provider string) error {
	if provider != "local" {
		return fmt.Errorf("provider %q is unknown: use --provider local", provider)
	}
	return nil
}
