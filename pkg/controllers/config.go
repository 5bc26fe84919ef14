package controllers

import (
	"crypto"
	"net/netip"
	"time"

	"podium/pkg/controller/manager"
	"podium/pkg/controllers/csrsigning"
	"podium/pkg/controllers/horizontalpodautoscaler"
	"podium/pkg/controllers/nodeipam"
	"podium/pkg/controllers/nodelifecycle"
)

// Config is the configuration of kube-controller-manager.
type Config struct {
	manager.Config

	// Number of objects of a kind that are reconciled concurrently.
	DeploymentSyncs, ReplicaSetSyncs, ReplicationControllerSyncs, StatefulSetSyncs, DaemonSetSyncs int
	JobSyncs, CronJobSyncs, TTLAfterFinishedSyncs                                                  int
	ServiceEndpointSyncs, EndpointSyncs, MirroringSyncs                                            int
	NamespaceSyncs, ServiceAccountSyncs, ResourceQuotaSyncs, GCSyncs, EphemeralVolumeSyncs         int
	PolicyStatusSyncs, ResourceClaimSyncs                                                          int

	ResourceQuotaSyncPeriod time.Duration // between two computations of all usage

	NoForceDetach         bool          // do not detach volumes from unhealthy nodes after six minutes
	ClaimBinderSyncPeriod time.Duration // between two looks at a claim that has no volume

	MaxEndpointsPerSlice int
	EndpointBatch        time.Duration // minimum time between two writes for one service
	EndpointSliceBatch   time.Duration

	RootCA   []byte               // PEM; nil: the CA is not published
	TokenKey func() crypto.Signer // signs the tokens in Secrets; nil: none are signed

	LegacyTokenPeriod time.Duration // after which unused tokens in Secrets become invalid, and then are deleted

	PodGCThreshold int // number of terminated pods to keep; 0: all

	Autoscaling horizontalpodautoscaler.Options

	Nodes nodelifecycle.Options

	AllocateNodeCIDRs bool
	ClusterCIDRs      []nodeipam.Range
	ServiceCIDRs      []netip.Prefix // never assigned to nodes

	Signing csrsigning.Options

	metrics metrics
}

// Default returns the default configuration.
func Default() Config {
	return Config{
		Config:          manager.Default("kube-controller-manager"),
		DeploymentSyncs: 5, ReplicaSetSyncs: 5, ReplicationControllerSyncs: 5, StatefulSetSyncs: 5, DaemonSetSyncs: 2,
		JobSyncs: 5, CronJobSyncs: 5, TTLAfterFinishedSyncs: 5,
		ServiceEndpointSyncs: 5, EndpointSyncs: 5, MirroringSyncs: 5,
		NamespaceSyncs: 10, ServiceAccountSyncs: 5, ResourceQuotaSyncs: 5, GCSyncs: 20, EphemeralVolumeSyncs: 5,
		PolicyStatusSyncs:       5,
		ResourceClaimSyncs:      50,
		ResourceQuotaSyncPeriod: 5 * time.Minute,
		ClaimBinderSyncPeriod:   15 * time.Second,
		MaxEndpointsPerSlice:    100,
		LegacyTokenPeriod:       365 * 24 * time.Hour,
		PodGCThreshold:          12500,
		Autoscaling:             horizontalpodautoscaler.Defaults(),
		Nodes:                   nodelifecycle.Defaults(),
		AllocateNodeCIDRs:       true,
		Signing:                 csrsigning.Options{MaxDuration: 365 * 24 * time.Hour},
		ClusterCIDRs:            []nodeipam.Range{{CIDR: netip.MustParsePrefix("10.244.0.0/16"), MaskSize: 24}},
	}
}
