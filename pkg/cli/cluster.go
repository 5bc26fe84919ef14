package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"podium/pkg/cluster/docker"
	"podium/pkg/cluster/local"
)

// defaultCluster is the name of a cluster that got none.
const defaultCluster = "podium"

// The providers of clusters.
const (
	providerDocker = "docker"
	providerLocal  = "local"
)

func newCluster(f *Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Create, delete and list clusters on this machine",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newClusterCreate(f, docker.Create, local.Create),
		newClusterDelete(f, docker.Delete, local.Delete),
		newClusterList(f.IO, (&docker.Engine{}).List, local.List),
		newClusterKubeconfig(f.IO),
		newClusterLoad(f.IO),
		newClusterLogs(f.IO),
		newClusterNode(f.IO),
	)
	return cmd
}

// providerFlags holds which provider is asked for, and which flags are only one's.
type providerFlags struct {
	provider string
	only     map[string]string // flag → provider
}

func (p *providerFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&p.provider, "provider", providerDocker, "what the nodes are: docker (containers), or local (one node: processes of this machine)")
}

// of adds flags that only one provider has.
func (p *providerFlags) of(provider string, fs *pflag.FlagSet, add func(*pflag.FlagSet)) {
	if p.only == nil {
		p.only = map[string]string{}
	}
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	add(own)
	own.VisitAll(func(f *pflag.Flag) { p.only[f.Name] = provider })
	fs.AddFlagSet(own)
}

// check refuses a provider that does not exist, and flags of another.
func (p *providerFlags) check(fs *pflag.FlagSet) error {
	if p.provider != providerDocker && p.provider != providerLocal {
		return fmt.Errorf("--provider %q: use %s or %s", p.provider, providerDocker, providerLocal)
	}
	var wrong []string
	fs.Visit(func(f *pflag.Flag) {
		if of := p.only[f.Name]; of != "" && of != p.provider {
			wrong = append(wrong, fmt.Sprintf("--%s is for --provider %s", f.Name, of))
		}
	})
	if len(wrong) > 0 {
		return fmt.Errorf("%s", strings.Join(wrong, "; "))
	}
	return nil
}

// localFlags say where a local cluster is.
func localFlags(cfg *local.Config) func(*pflag.FlagSet) {
	return func(fs *pflag.FlagSet) {
		fs.StringVar(&cfg.Dir, "dir", "_run", "local: folder of the cluster")
		fs.StringVar(&cfg.Bin, "bin", "", "local: folder of the daemons' binaries (default: that of podium)")
	}
}

func nameOf(args []string) string {
	if len(args) == 0 {
		return defaultCluster
	}
	return args[0]
}

// dockerDelete and localDelete are what delete does.
type (
	dockerDelete func(ctx context.Context, engine docker.Engine, cluster, kubeconfig string, out io.Writer) error
	localDelete  func(context.Context, local.Config) error
)

func newClusterDelete(f *Factory, inDocker dockerDelete, here localDelete) *cobra.Command {
	cfg := local.Config{Out: f.Out}
	var provider providerFlags
	cmd := &cobra.Command{
		Use:   "delete [NAME]",
		Short: "End a cluster and remove all it left on this machine",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := provider.check(cmd.Flags()); err != nil {
				return err
			}
			if provider.provider == providerDocker {
				return inDocker(cmd.Context(), docker.Engine{}, nameOf(args), f.conn.kubeconfig, f.Out)
			}
			if len(args) == 1 {
				cfg.Name = args[0]
			}
			return here(cmd.Context(), cfg)
		},
	}
	provider.add(cmd.Flags())
	provider.of(providerLocal, cmd.Flags(), localFlags(&cfg))
	return cmd
}

// listing is a row of list.
type listing struct{ name, provider, running, context string }

func newClusterList(streams IO, inDocker func(context.Context) ([]docker.Found, error), here func(dir string) ([]local.Found, error)) *cobra.Command {
	dir := ""
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the clusters of this machine",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
			defer cancel()
			var rows []listing
			// Without an engine there are no clusters in it: said only where
			// nothing else is.
			containers, noEngine := inDocker(ctx)
			for _, c := range containers {
				rows = append(rows, listing{c.Name, providerDocker, fmt.Sprintf("%d/%d", c.Running(), len(c.Nodes)), docker.ContextName(c.Name)})
			}
			processes, err := here(dir)
			if err != nil {
				return err
			}
			for _, c := range processes {
				rows = append(rows, listing{c.Name, providerLocal, fmt.Sprintf("%d/%d", c.Running, c.Processes), c.Kubeconfig})
			}
			if len(rows) == 0 {
				fmt.Fprintln(streams.Err, "No clusters found. Bring one up with: podium cluster create")
				if noEngine != nil {
					fmt.Fprintln(streams.Err, "Docker was not looked at:", noEngine)
				}
				return nil
			}
			slices.SortStableFunc(rows, func(a, b listing) int {
				return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.provider, b.provider))
			})
			fmt.Fprintf(streams.Out, "%-16s %-10s %-8s %s\n", "NAME", "PROVIDER", "RUNNING", "CONTEXT OR KUBECONFIG")
			for _, r := range rows {
				fmt.Fprintf(streams.Out, "%-16s %-10s %-8s %s\n", r.name, r.provider, r.running, r.context)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "_run", "folder to look in for a local cluster, besides those that run")
	return cmd
}
