package manager

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/spf13/cobra"

	"podium/pkg/cloud"
	"podium/pkg/controllers/crew"
)

// options are the flags.
type options struct {
	crew.Flags
	provider    string
	cloudConfig string
	clusterCIDR []string
	cfg         Config
}

// NewCommand is the daemon's command line.
func NewCommand() *cobra.Command {
	o := &options{cfg: Default()}
	cmd := o.Command("cloud-controller-manager", "Keeps the cluster and whoever provides its machines in step", nil, o.run)
	o.addFlags(cmd)
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	fs, c := cmd.Flags(), &o.cfg
	fs.SortFlags = false
	o.AddFlags(fs, 10258, &c.Config)

	fs.StringVar(&o.provider, "cloud-provider", "", "who provides the machines; required")
	fs.StringVar(&o.cloudConfig, "cloud-config", "", "file that the provider reads")
	fs.StringVar(&c.ClusterName, "cluster-name", c.ClusterName, "the cluster's name at the provider")
	fs.IntVar(&c.NodeSyncs, "concurrent-node-syncs", c.NodeSyncs, "how many nodes are worked on at a time")
	fs.IntVar(&c.ServiceSyncs, "concurrent-service-syncs", c.ServiceSyncs, "how many services are worked on at a time")
	fs.DurationVar(&c.Refresh, "node-status-update-frequency", c.Refresh, "how often a node's addresses are looked at")
	fs.DurationVar(&c.Monitor, "node-monitor-period", c.Monitor, "how often the machine of a node that is not ready is looked for")
	fs.BoolVar(&c.ConfigureRoutes, "configure-cloud-routes", c.ConfigureRoutes, "let the provider route to each node's pods; for a pod network that does not")
	fs.StringSliceVar(&o.clusterCIDR, "cluster-cidr", nil, "the pods' addresses: routes to others are left alone; needed for --configure-cloud-routes")
	fs.DurationVar(&c.RoutePeriod, "route-reconciliation-period", c.RoutePeriod, "how often all routes are looked at")
}

// complete turns flags into the configuration and checks it.
func (o *options) complete() error {
	c := &o.cfg
	var errs []error
	for _, text := range o.clusterCIDR {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--cluster-cidr: %w", err))
			continue
		}
		c.ClusterCIDRs = append(c.ClusterCIDRs, p.Masked())
	}
	if c.ConfigureRoutes && len(o.clusterCIDR) == 0 {
		errs = append(errs, errors.New("--configure-cloud-routes needs --cluster-cidr"))
	}
	for flag, period := range map[string]int64{
		"node-status-update-frequency": int64(c.Refresh), "node-monitor-period": int64(c.Monitor), "route-reconciliation-period": int64(c.RoutePeriod),
	} {
		if period <= 0 {
			errs = append(errs, fmt.Errorf("--%s must be above 0", flag))
		}
	}
	if o.cloudConfig != "" {
		var err error
		if c.CloudConfig, err = os.ReadFile(o.cloudConfig); err != nil {
			errs = append(errs, fmt.Errorf("--cloud-config: %w", err))
		}
	}
	name := o.provider
	c.Provider = func(s cloud.Setup) (*cloud.Provider, error) { return provider(name, s) }
	return errors.Join(errs...)
}

func (o *options) run(cmd *cobra.Command) error {
	if err := o.complete(); err != nil {
		return err
	}
	return o.Serve(cmd.Context(), cmd.Name(), &o.cfg.Config, cmd.ErrOrStderr(), func(ctx context.Context) error { return Run(ctx, o.cfg) })
}
