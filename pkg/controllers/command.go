package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/controllers/nodeipam"
	"podium/pkg/daemon"
	"podium/pkg/scheme"
)

// options are the flags.
type options struct {
	daemon.Options
	kubeconfig   string
	secure       daemon.Secure
	rootCAFile   string
	tokenKeyFile string
	clusterCIDR  []string
	serviceCIDR  []string
	maskSize     int
	maskSizeIPv4 int
	maskSizeIPv6 int
	accounts     bool
	signing      signingFlags
	cfg          Config
}

// NewCommand is the daemon's command line.
func NewCommand() *cobra.Command {
	o := &options{clusterCIDR: []string{"10.244.0.0/16"}, cfg: Default()}
	cmd := &cobra.Command{
		Use:   "kube-controller-manager",
		Short: "Makes the cluster's state what the API says it should be",
		Args:  cobra.NoArgs,
	}
	o.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := daemon.LoadConfig(cmd, o.ConfigFile, nil); err != nil {
			return err
		}
		return o.run(cmd.Context(), cmd)
	}
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	fs, c := cmd.Flags(), &o.cfg
	fs.SortFlags = false
	o.AddFlags(fs)
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "file that says where the API is and who asks; default: the pod's service account")
	o.secure.AddFlags(fs, 10257)

	fs.BoolVar(&c.LeaderElect, "leader-elect", c.LeaderElect, "work only while holding the lease: for several replicas")
	fs.StringVar(&c.LeaseName, "leader-elect-resource-name", c.LeaseName, "name of the lease")
	fs.StringVar(&c.LeaseSpace, "leader-elect-resource-namespace", c.LeaseSpace, "namespace of the lease")
	fs.DurationVar(&c.LeaseDuration, "leader-elect-lease-duration", c.LeaseDuration, "how long a silent leader is respected")
	fs.DurationVar(&c.RenewDeadline, "leader-elect-renew-deadline", c.RenewDeadline, "how long a leader works on without a renewal")
	fs.DurationVar(&c.RetryPeriod, "leader-elect-retry-period", c.RetryPeriod, "time between attempts to get or renew the lease")

	fs.BoolVar(&o.accounts, "use-service-account-credentials", true, "let each controller work under a service account of its own, with a role that holds what it uses")
	fs.StringSliceVar(&c.Controllers, "controllers", c.Controllers, "names of the controllers to run; * is all, -name is not this one")
	fs.IntVar(&c.DeploymentSyncs, "concurrent-deployment-syncs", c.DeploymentSyncs, "how many deployments are worked on at a time")
	fs.IntVar(&c.ReplicaSetSyncs, "concurrent-replicaset-syncs", c.ReplicaSetSyncs, "how many replica sets are worked on at a time")
	fs.IntVar(&c.ServiceEndpointSyncs, "concurrent-service-endpoint-syncs", c.ServiceEndpointSyncs, "how many services' endpoint slices are worked on at a time")
	fs.IntVar(&c.EndpointSyncs, "concurrent-endpoint-syncs", c.EndpointSyncs, "how many services' endpoints are worked on at a time")
	fs.IntVar(&c.NamespaceSyncs, "concurrent-namespace-syncs", c.NamespaceSyncs, "how many namespaces are emptied at a time")
	fs.IntVar(&c.ServiceAccountSyncs, "concurrent-serviceaccount-token-syncs", c.ServiceAccountSyncs, "how many namespaces get their service account at a time")
	fs.IntVar(&c.GCSyncs, "concurrent-gc-syncs", c.GCSyncs, "how many objects the garbage collector works on at a time")

	fs.IntVar(&c.MaxEndpointsPerSlice, "max-endpoints-per-slice", c.MaxEndpointsPerSlice, "endpoints in one endpoint slice; 1 to 1000")
	fs.DurationVar(&c.EndpointBatch, "endpoint-updates-batch-period", c.EndpointBatch, "least time between two writes of one Endpoints object; 0: 20ms")
	fs.DurationVar(&c.EndpointSliceBatch, "endpointslice-updates-batch-period", c.EndpointSliceBatch, "least time between two writes of one service's endpoint slices; 0: 20ms")
	fs.StringVar(&o.rootCAFile, "root-ca-file", "", "the cluster's CA, published in every namespace as ConfigMap kube-root-ca.crt")
	fs.StringVar(&o.tokenKeyFile, "service-account-private-key-file", "", "key that signs the tokens kept in Secrets of type kubernetes.io/service-account-token; read again when it changes; without it those stay empty")
	fs.IntVar(&c.PodGCThreshold, "terminated-pod-gc-threshold", c.PodGCThreshold, "how many pods that ended are kept; 0 for all")

	fs.DurationVar(&c.Nodes.GracePeriod, "node-monitor-grace-period", c.Nodes.GracePeriod, "silence after which a node is unreachable")
	fs.DurationVar(&c.Nodes.StartupGracePeriod, "node-startup-grace-period", c.Nodes.StartupGracePeriod, "the same for a node that was never heard")
	fs.Float64Var(&c.Nodes.EvictionRate, "node-eviction-rate", c.Nodes.EvictionRate, "nodes of a zone per second whose pods may be evicted")
	fs.Float64Var(&c.Nodes.SecondaryEvictionRate, "secondary-node-eviction-rate", c.Nodes.SecondaryEvictionRate, "the same in a big zone that is mostly unhealthy")
	fs.Float64Var(&c.Nodes.UnhealthyZoneThreshold, "unhealthy-zone-threshold", c.Nodes.UnhealthyZoneThreshold, "part of a zone's nodes that must be not ready for the zone to be unhealthy")
	fs.IntVar(&c.Nodes.LargeClusterSizeThreshold, "large-cluster-size-threshold", c.Nodes.LargeClusterSizeThreshold, "nodes above which a zone is big; in a small unhealthy one nothing is evicted")

	fs.BoolVar(&c.AllocateNodeCIDRs, "allocate-node-cidrs", c.AllocateNodeCIDRs, "give each node its part of the pods' addresses")
	fs.StringSliceVar(&o.clusterCIDR, "cluster-cidr", o.clusterCIDR, "the pods' addresses; one range, or one for IPv4 and one for IPv6")
	fs.StringSliceVar(&o.serviceCIDR, "service-cluster-ip-range", nil, "the services' addresses, never given to nodes")
	fs.IntVar(&o.maskSize, "node-cidr-mask-size", 0, "prefix length of a node's part; default 24, or 64 for IPv6")
	fs.IntVar(&o.maskSizeIPv4, "node-cidr-mask-size-ipv4", 0, "the same for IPv4 only")
	fs.IntVar(&o.maskSizeIPv6, "node-cidr-mask-size-ipv6", 0, "the same for IPv6 only")
	o.signing.add(fs, &c.Signing)
}

// complete turns flags into the configuration and checks it.
func (o *options) complete() error {
	c := &o.cfg
	var errs []error
	c.ClusterCIDRs = nil
	for _, text := range o.clusterCIDR {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--cluster-cidr: %w", err))
			continue
		}
		c.ClusterCIDRs = append(c.ClusterCIDRs, nodeipam.Range{CIDR: p, MaskSize: o.maskFor(p)})
	}
	if n := len(c.ClusterCIDRs); c.AllocateNodeCIDRs && (n == 0 || n > 2 || n == 2 && c.ClusterCIDRs[0].CIDR.Addr().Is4() == c.ClusterCIDRs[1].CIDR.Addr().Is4()) {
		errs = append(errs, errors.New("--cluster-cidr: one range is needed, or one for IPv4 and one for IPv6"))
	}
	for _, text := range o.serviceCIDR {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--service-cluster-ip-range: %w", err))
			continue
		}
		c.ServiceCIDRs = append(c.ServiceCIDRs, p)
	}
	if c.MaxEndpointsPerSlice < 1 || c.MaxEndpointsPerSlice > 1000 {
		errs = append(errs, fmt.Errorf("--max-endpoints-per-slice is %d: must be from 1 to 1000", c.MaxEndpointsPerSlice))
	}
	if c.Nodes.GracePeriod <= 0 {
		errs = append(errs, fmt.Errorf("--node-monitor-grace-period is %s: must be above 0", c.Nodes.GracePeriod))
	}
	if o.rootCAFile != "" {
		var err error
		if c.RootCA, err = os.ReadFile(o.rootCAFile); err != nil {
			errs = append(errs, fmt.Errorf("--root-ca-file: %w", err))
		}
	}
	if o.tokenKeyFile != "" {
		var err error
		if c.TokenKey, err = tokenKey(o.tokenKeyFile); err != nil {
			errs = append(errs, fmt.Errorf("--service-account-private-key-file: %w", err))
		}
	}
	return errors.Join(append(errs, o.signing.complete(&c.Signing), checkNames(c))...)
}

func (o *options) maskFor(p netip.Prefix) int {
	family, otherwise := o.maskSizeIPv4, 24
	if p.Addr().Is6() {
		family, otherwise = o.maskSizeIPv6, 64
	}
	for _, size := range []int{family, o.maskSize} {
		if size != 0 {
			return size
		}
	}
	return otherwise
}

func (o *options) run(ctx context.Context, cmd *cobra.Command) error {
	if err := o.complete(); err != nil {
		return err
	}
	cfg := o.cfg
	cfg.Log = o.Logger(cmd.ErrOrStderr())
	api, err := kubeconfig.ForDaemon(o.kubeconfig, "kube-controller-manager")
	if err != nil {
		return err
	}
	if cfg.Client, err = client.New(scheme.New(), api); err != nil {
		return err
	}
	if o.accounts {
		cfg.ClientFor = identities(cfg.Client, api, func(c client.Config) (*client.Client, error) { return client.New(scheme.New(), c) })
	}
	registry := daemon.Metrics()
	cfg.Registry = registry
	cfg.Health = &daemon.Health{}

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return o.secure.Serve(ctx, daemon.Mux(cfg.Health, registry), cfg.Client, cfg.Log) })
	g.Go(func() error { return Run(ctx, cfg) })
	g.Go(func() error { return kubeconfig.Follow(ctx, cfg.Client, o.kubeconfig, cfg.Log) })
	g.Go(func() error { return daemon.Watchdog(ctx, cfg.Health.Live) })
	daemon.NotifyReady()
	defer daemon.NotifyStopping()
	return g.Wait()
}
