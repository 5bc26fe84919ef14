package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/spf13/cobra"

	"podium/pkg/controllers/crew"
	"podium/pkg/controllers/nodeipam"
)

// options are the flags.
type options struct {
	crew.Flags
	rootCAFile   string
	tokenKeyFile string
	clusterCIDR  []string
	serviceCIDR  []string
	maskSize     int
	maskSizeIPv4 int
	maskSizeIPv6 int
	signing      signingFlags
	cfg          Config
}

// NewCommand is the daemon's command line.
func NewCommand() *cobra.Command {
	o := &options{clusterCIDR: []string{"10.244.0.0/16"}, cfg: Default()}
	cmd := o.Command("kube-controller-manager", "Makes the cluster's state what the API says it should be", nil, o.run)
	o.addFlags(cmd)
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	fs, c := cmd.Flags(), &o.cfg
	fs.SortFlags = false
	o.AddFlags(fs, 10257, &c.Config)

	fs.IntVar(&c.DeploymentSyncs, "concurrent-deployment-syncs", c.DeploymentSyncs, "how many deployments are worked on at a time")
	fs.IntVar(&c.ReplicaSetSyncs, "concurrent-replicaset-syncs", c.ReplicaSetSyncs, "how many replica sets are worked on at a time")
	fs.IntVar(&c.ServiceEndpointSyncs, "concurrent-service-endpoint-syncs", c.ServiceEndpointSyncs, "how many services' endpoint slices are worked on at a time")
	fs.IntVar(&c.EndpointSyncs, "concurrent-endpoint-syncs", c.EndpointSyncs, "how many services' endpoints are worked on at a time")
	fs.IntVar(&c.MirroringSyncs, "mirroring-concurrent-service-endpoint-syncs", c.MirroringSyncs, "how many Endpoints made by hand are mirrored at a time")
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
	return errors.Join(append(errs, o.signing.complete(&c.Signing), c.CheckNames(members(c)))...)
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

func (o *options) run(cmd *cobra.Command) error {
	if err := o.complete(); err != nil {
		return err
	}
	return o.Serve(cmd.Context(), cmd.Name(), &o.cfg.Config, cmd.ErrOrStderr(), func(ctx context.Context) error { return Run(ctx, o.cfg) })
}
