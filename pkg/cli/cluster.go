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

// defaultCluster is the default name of a cluster.
const defaultCluster = "podium"

// The values of --provider.
const (
	providerDocker = "docker"
	providerLocal  = "local"
)

func newCluster(f *Factory) *cobra.Command {
	return group("cluster", "Create, delete and list clusters on this machine",
		newClusterCreate(f, docker.Create, local.Create),
		newClusterDelete(f, docker.Delete, local.Delete),
		newClusterList(f.IO, (&docker.Engine{}).List, local.List),
		newClusterKubeconfig(f.IO),
		newClusterLoad(f.IO),
		newClusterLogs(f.IO),
		newClusterNode(f.IO),
	)
}

// providerFlags holds the value of --provider, and which flags belong to one
// provider only.
type providerFlags struct {
	provider string
	only     map[string]string // flag → provider
}

func (p *providerFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&p.provider, "provider", providerDocker, "provider of the nodes: docker (containers) or local (one node: processes on this machine)")
}

// of adds flags that belong to one provider only.
func (p *providerFlags) of(provider string, fs *pflag.FlagSet, add func(*pflag.FlagSet)) {
	if p.only == nil {
		p.only = map[string]string{}
	}
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	add(own)
	own.VisitAll(func(f *pflag.Flag) { p.only[f.Name] = provider })
	fs.AddFlagSet(own)
}

// check returns an error for an unknown provider, and for flags of another one.
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

// localFlags adds the flags that locate a local cluster.
func localFlags(cfg *local.Config) func(*pflag.FlagSet) {
	return func(fs *pflag.FlagSet) {
		fs.StringVar(&cfg.Dir, "dir", "_run", "local: directory of the cluster")
		fs.StringVar(&cfg.Bin, "bin", "", "local: directory of the daemons' binaries (default: that of podium)")
	}
}

func nameOf(args []string) string {
	if len(args) == 0 {
		return defaultCluster
	}
	return args[0]
}

// dockerDelete and localDelete implement cluster delete.
type (
	dockerDelete func(ctx context.Context, engine docker.Engine, cluster, kubeconfig string, out io.Writer) error
	localDelete  func(context.Context, local.Config) error
)

func newClusterDelete(f *Factory, inDocker dockerDelete, here localDelete) *cobra.Command {
	cfg := local.Config{Out: f.Out}
	var provider providerFlags
	cmd := &cobra.Command{
		Use:   "delete [NAME]",
		Short: "Delete a cluster and everything that it created on this machine",
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

// listing is a row of cluster list.
type listing struct{ name, provider, running, context string }

func newClusterList(streams IO, inDocker func(context.Context) ([]docker.Found, error), here func(dir string) ([]local.Found, error)) *cobra.Command {
	dir := ""
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the clusters on this machine",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
			defer cancel()
			var rows []listing
			// Without an engine there are no clusters in it: report the error
			// only if no other cluster is found.
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
