package controllers

import (
	"crypto"
	"net/netip"
	"time"

	"podium/pkg/controllers/crew"
	"podium/pkg/controllers/nodeipam"
	"podium/pkg/controllers/nodelifecycle"
)

// Config is what the daemon needs.
type Config struct {
	crew.Config

	// How many objects of a kind are reconciled at a time.
	DeploymentSyncs, ReplicaSetSyncs, ServiceEndpointSyncs, EndpointSyncs int
	NamespaceSyncs, ServiceAccountSyncs, GCSyncs, MirroringSyncs          int

	MaxEndpointsPerSlice int
	EndpointBatch        time.Duration // least time between two writes for one service
	EndpointSliceBatch   time.Duration

	RootCA   []byte               // PEM; without it no CA is published
	TokenKey func() crypto.Signer // signs the tokens kept in secrets; nil: none are

	PodGCThreshold int // how many pods that ended are kept; 0 for all

	Nodes nodelifecycle.Options

	AllocateNodeCIDRs bool
	ClusterCIDRs      []nodeipam.Range
	ServiceCIDRs      []netip.Prefix // never handed out to nodes

	Signing Signing
}

// Default is the configuration of a daemon that is told nothing.
func Default() Config {
	return Config{
		Config:          crew.Default("kube-controller-manager"),
		DeploymentSyncs: 5, ReplicaSetSyncs: 5, ServiceEndpointSyncs: 5, EndpointSyncs: 5,
		NamespaceSyncs: 10, ServiceAccountSyncs: 5, GCSyncs: 20, MirroringSyncs: 5,
		MaxEndpointsPerSlice: 100,
		PodGCThreshold:       12500,
		Nodes:                nodelifecycle.Defaults(),
		AllocateNodeCIDRs:    true,
		Signing:              Signing{Longest: signingDuration},
		ClusterCIDRs:         []nodeipam.Range{{CIDR: netip.MustParsePrefix("10.244.0.0/16"), MaskSize: 24}},
	}
}
