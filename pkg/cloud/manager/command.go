package manager

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/spf13/cobra"

	"podium/pkg/cloud"
	"podium/pkg/controller/manager"
)

// options are the flags and the configuration that they set.
type options struct {
	manager.Flags
	provider    string
	cloudConfig string
	clusterCIDR []string
	cfg         Config
}

// NewCommand returns the command of cloud-controller-manager.
func NewCommand() *cobra.Command {
	o := &options{cfg: Default()}
	cmd := o.Command("cloud-controller-manager", "Run the controllers that connect the cluster to a cloud provider", nil, o.run)
	o.addFlags(cmd)
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	fs, c := cmd.Flags(), &o.cfg
	fs.SortFlags = false
	o.AddFlags(fs, 10258, &c.Config)

	fs.StringVar(&o.provider, "cloud-provider", "", "name of the cloud provider (required)")
	fs.StringVar(&o.cloudConfig, "cloud-config", "", "path to the configuration file of the provider")
	fs.StringVar(&c.ClusterName, "cluster-name", c.ClusterName, "name of the cluster at the provider")
	fs.IntVar(&c.NodeSyncs, "concurrent-node-syncs", c.NodeSyncs, "number of nodes to reconcile concurrently")
	fs.IntVar(&c.ServiceSyncs, "concurrent-service-syncs", c.ServiceSyncs, "number of services to reconcile concurrently")
	fs.DurationVar(&c.Refresh, "node-status-update-frequency", c.Refresh, "interval between updates of a node's addresses")
	fs.DurationVar(&c.Monitor, "node-monitor-period", c.Monitor, "interval between checks of the instance of a node that is not ready")
	fs.BoolVar(&c.ConfigureRoutes, "configure-cloud-routes", c.ConfigureRoutes, "configure routes to the pods of each node at the provider, for a pod network without routes of its own")
	fs.StringSliceVar(&o.clusterCIDR, "cluster-cidr", nil, "pod addresses of the cluster; routes to other addresses are left alone; required by --configure-cloud-routes")
	fs.DurationVar(&c.RoutePeriod, "route-reconciliation-period", c.RoutePeriod, "interval between reconciliations of all routes")
}

// complete sets the configuration from the flags and validates it.
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
