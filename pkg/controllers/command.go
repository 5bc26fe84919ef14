package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"podium/pkg/controller/manager"
	"podium/pkg/controllers/nodeipam"
	"podium/pkg/daemon"
)

// options are the flags and the configuration that they set.
type options struct {
	manager.Flags
	rootCAFile   string
	tokenKeyFile string
	clusterCIDR  []string
	maskSize     int
	maskSizeIPv4 int
	maskSizeIPv6 int
	signing      signingFlags
	cfg          Config
}

// NewCommand returns the command of kube-controller-manager.
func NewCommand() *cobra.Command {
	o := &options{clusterCIDR: []string{"10.244.0.0/16"}, cfg: Default()}
	cmd := o.Command("kube-controller-manager", "Run the controllers that reconcile the state of the cluster", nil, o.run)
	o.addFlags(cmd)
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	fs, c := cmd.Flags(), &o.cfg
	fs.SortFlags = false
	o.AddFlags(fs, 10257, &c.Config)

	fs.IntVar(&c.DeploymentSyncs, "concurrent-deployment-syncs", c.DeploymentSyncs, "number of deployments to reconcile concurrently")
	fs.IntVar(&c.ReplicaSetSyncs, "concurrent-replicaset-syncs", c.ReplicaSetSyncs, "number of replica sets to reconcile concurrently")
	fs.IntVar(&c.DaemonSetSyncs, "concurrent-daemonset-syncs", c.DaemonSetSyncs, "number of daemon sets to reconcile concurrently")
	fs.IntVar(&c.ReplicationControllerSyncs, "concurrent-rc-syncs", c.ReplicationControllerSyncs, "number of replication controllers to reconcile concurrently")
	fs.IntVar(&c.StatefulSetSyncs, "concurrent-statefulset-syncs", c.StatefulSetSyncs, "number of stateful sets to reconcile concurrently")
	fs.IntVar(&c.JobSyncs, "concurrent-job-syncs", c.JobSyncs, "number of jobs to reconcile concurrently")
	fs.IntVar(&c.CronJobSyncs, "concurrent-cron-job-syncs", c.CronJobSyncs, "number of cron jobs to reconcile concurrently")
	fs.IntVar(&c.TTLAfterFinishedSyncs, "concurrent-ttl-after-finished-syncs", c.TTLAfterFinishedSyncs, "number of jobs whose time to live to check concurrently")
	fs.IntVar(&c.ServiceEndpointSyncs, "concurrent-service-endpoint-syncs", c.ServiceEndpointSyncs, "number of services whose EndpointSlices to reconcile concurrently")
	fs.IntVar(&c.EndpointSyncs, "concurrent-endpoint-syncs", c.EndpointSyncs, "number of services whose Endpoints to reconcile concurrently")
	fs.IntVar(&c.MirroringSyncs, "mirroring-concurrent-service-endpoint-syncs", c.MirroringSyncs, "number of user-managed Endpoints to mirror concurrently")
	fs.IntVar(&c.NamespaceSyncs, "concurrent-namespace-syncs", c.NamespaceSyncs, "number of namespaces to delete concurrently")
	fs.IntVar(&c.ServiceAccountSyncs, "concurrent-serviceaccount-token-syncs", c.ServiceAccountSyncs, "number of service accounts to reconcile concurrently")
	fs.IntVar(&c.ResourceQuotaSyncs, "concurrent-resource-quota-syncs", c.ResourceQuotaSyncs, "number of resource quotas to reconcile concurrently")
	fs.IntVar(&c.Autoscaling.Workers, "concurrent-horizontal-pod-autoscaler-syncs", c.Autoscaling.Workers, "number of horizontal pod autoscalers to reconcile concurrently")
	fs.IntVar(&c.GCSyncs, "concurrent-gc-syncs", c.GCSyncs, "number of objects to garbage collect concurrently")
	fs.IntVar(&c.EphemeralVolumeSyncs, "concurrent-ephemeralvolume-syncs", c.EphemeralVolumeSyncs, "number of pods whose ephemeral volumes to reconcile concurrently")
	fs.IntVar(&c.ResourceClaimSyncs, "concurrent-resource-claim-syncs", c.ResourceClaimSyncs, "number of pods, and of resource claims, to reconcile concurrently")
	fs.IntVar(&c.PolicyStatusSyncs, "concurrent-validating-admission-policy-status-syncs", c.PolicyStatusSyncs, "number of validating admission policies to check concurrently")

	fs.IntVar(&c.MaxEndpointsPerSlice, "max-endpoints-per-slice", c.MaxEndpointsPerSlice, "maximum number of endpoints in an EndpointSlice, 1 to 1000")
	fs.DurationVar(&c.EndpointBatch, "endpoint-updates-batch-period", c.EndpointBatch, "minimum time between two updates of an Endpoints object; 0 means 20ms")
	fs.DurationVar(&c.EndpointSliceBatch, "endpointslice-updates-batch-period", c.EndpointSliceBatch, "minimum time between two updates of a service's EndpointSlices; 0 means 20ms")
	fs.StringVar(&o.rootCAFile, "root-ca-file", "", "file with the CA certificates to publish in every namespace as ConfigMap kube-root-ca.crt")
	fs.StringVar(&o.tokenKeyFile, "service-account-private-key-file", "", "file with the private key that signs the tokens in Secrets of type kubernetes.io/service-account-token; reloaded when it changes; without it these Secrets get no token")
	fs.DurationVar(&c.LegacyTokenPeriod, "legacy-service-account-token-clean-up-period", c.LegacyTokenPeriod, "how long a generated token in a Secret must be unused to become invalid, and then how long it must stay so to be deleted")
	fs.DurationVar(&c.ResourceQuotaSyncPeriod, "resource-quota-sync-period", c.ResourceQuotaSyncPeriod, "period in which the usage of all resource quotas is computed again")
	fs.BoolVar(&c.NoForceDetach, "disable-force-detach-on-timeout", c.NoForceDetach, "do not detach volumes from unhealthy nodes that may still use them after six minutes")
	fs.DurationVar(&c.ClaimBinderSyncPeriod, "pvclaimbinder-sync-period", c.ClaimBinderSyncPeriod, "period in which claims without a persistent volume are looked at again")
	fs.DurationVar(&c.Autoscaling.SyncPeriod, "horizontal-pod-autoscaler-sync-period", c.Autoscaling.SyncPeriod, "time between two reconciles of a horizontal pod autoscaler")
	fs.DurationVar(&c.Autoscaling.DownscaleStabilization, "horizontal-pod-autoscaler-downscale-stabilization", c.Autoscaling.DownscaleStabilization, "how long fewer replicas must be recommended before a target is scaled down, unless the autoscaler says so itself")
	fs.Float64Var(&c.Autoscaling.Tolerance, "horizontal-pod-autoscaler-tolerance", c.Autoscaling.Tolerance, "fraction by which a metric may differ from its target without a change of the replicas, unless the autoscaler says so itself")
	fs.DurationVar(&c.Autoscaling.CPUInitializationPeriod, "horizontal-pod-autoscaler-cpu-initialization-period", c.Autoscaling.CPUInitializationPeriod, "time after the start of a pod in which its CPU samples count only once the pod is ready")
	fs.DurationVar(&c.Autoscaling.InitialReadinessDelay, "horizontal-pod-autoscaler-initial-readiness-delay", c.Autoscaling.InitialReadinessDelay, "time after the start of a pod in which changes of its readiness are those of its start")
	fs.IntVar(&c.PodGCThreshold, "terminated-pod-gc-threshold", c.PodGCThreshold, "number of terminated pods to keep; 0 keeps all")

	fs.DurationVar(&c.Nodes.GracePeriod, "node-monitor-grace-period", c.Nodes.GracePeriod, "time without a heartbeat after which a node is unreachable")
	fs.DurationVar(&c.Nodes.StartupGracePeriod, "node-startup-grace-period", c.Nodes.StartupGracePeriod, "the same for a node that has never sent a heartbeat")
	fs.Float64Var(&c.Nodes.EvictionRate, "node-eviction-rate", c.Nodes.EvictionRate, "nodes per second and zone whose pods may be evicted")
	fs.Float64Var(&c.Nodes.SecondaryEvictionRate, "secondary-node-eviction-rate", c.Nodes.SecondaryEvictionRate, "the same in a large zone that is unhealthy")
	fs.Float64Var(&c.Nodes.UnhealthyZoneThreshold, "unhealthy-zone-threshold", c.Nodes.UnhealthyZoneThreshold, "fraction of nodes that must be not ready for a zone to be unhealthy")
	fs.IntVar(&c.Nodes.LargeClusterSizeThreshold, "large-cluster-size-threshold", c.Nodes.LargeClusterSizeThreshold, "number of nodes above which a zone is large; no pods are evicted in a small unhealthy zone")

	fs.BoolVar(&c.AllocateNodeCIDRs, "allocate-node-cidrs", c.AllocateNodeCIDRs, "assign a pod CIDR to each node")
	fs.StringSliceVar(&o.clusterCIDR, "cluster-cidr", o.clusterCIDR, "pod addresses of the cluster: one CIDR, or one IPv4 and one IPv6 CIDR")
	daemon.ParsedSliceVar(fs, &c.ServiceCIDRs, "service-cluster-ip-range", nil, netip.ParsePrefix, "service addresses, never assigned to nodes")
	fs.IntVar(&o.maskSize, "node-cidr-mask-size", 0, "prefix length of a node's pod CIDR; default 24 for IPv4 and 64 for IPv6")
	fs.IntVar(&o.maskSizeIPv4, "node-cidr-mask-size-ipv4", 0, "prefix length of a node's IPv4 pod CIDR")
	fs.IntVar(&o.maskSizeIPv6, "node-cidr-mask-size-ipv6", 0, "prefix length of a node's IPv6 pod CIDR")
	o.signing.add(fs, &c.Signing)
}

// complete sets the configuration from the flags and validates it.
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
	if c.MaxEndpointsPerSlice < 1 || c.MaxEndpointsPerSlice > 1000 {
		errs = append(errs, fmt.Errorf("--max-endpoints-per-slice is %d: must be from 1 to 1000", c.MaxEndpointsPerSlice))
	}
	errs = append(errs, c.checkPeriods()...)
	if c.Autoscaling.Workers < 1 {
		errs = append(errs, fmt.Errorf("--concurrent-horizontal-pod-autoscaler-syncs is %d: must be at least 1", c.Autoscaling.Workers))
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
	return errors.Join(append(errs, o.signing.complete(&c.Signing), c.CheckNames(specs(c)))...)
}

// checkPeriods returns an error for each period that is not above 0.
func (c *Config) checkPeriods() (errs []error) {
	for _, p := range []struct {
		flag  string
		value time.Duration
	}{
		{"resource-quota-sync-period", c.ResourceQuotaSyncPeriod},
		{"pvclaimbinder-sync-period", c.ClaimBinderSyncPeriod},
		{"legacy-service-account-token-clean-up-period", c.LegacyTokenPeriod},
		{"horizontal-pod-autoscaler-sync-period", c.Autoscaling.SyncPeriod},
		{"node-monitor-grace-period", c.Nodes.GracePeriod},
	} {
		if p.value <= 0 {
			errs = append(errs, fmt.Errorf("--%s is %s: must be above 0", p.flag, p.value))
		}
	}
	return errs
}

func (o *options) maskFor(p netip.Prefix) int {
	if p.Addr().Is6() {
		return cmp.Or(o.maskSizeIPv6, o.maskSize, 64)
	}
	return cmp.Or(o.maskSizeIPv4, o.maskSize, 24)
}

func (o *options) run(cmd *cobra.Command) error {
	if err := o.complete(); err != nil {
		return err
	}
	return o.Serve(cmd.Context(), cmd.Name(), &o.cfg.Config, cmd.ErrOrStderr(), func(ctx context.Context) error { return Run(ctx, o.cfg) })
}
