package controllers

import (
	"crypto"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/client"
	"podium/pkg/controllers/nodeipam"
	"podium/pkg/controllers/nodelifecycle"
	"podium/pkg/daemon"
)

// Config is what the daemon needs.
type Config struct {
	Client *client.Client
	// ClientFor makes a controller's own client, which speaks as a service
	// account of kube-system; nil: all use Client. The shared informers do.
	ClientFor func(account string) (*client.Client, error)
	Log       *slog.Logger
	Registry  prometheus.Registerer // nil: no metrics are shown
	Health    *daemon.Health        // nil: no readiness is shown

	LeaderElect   bool
	LeaseName     string
	LeaseSpace    string
	LeaseDuration time.Duration
	RenewDeadline time.Duration
	RetryPeriod   time.Duration
	Identity      string // of this replica; default: host name and something random

	Controllers []string // names; "*" is all, "-name" all but this one; default "*"

	// How many objects of a kind are reconciled at a time.
	DeploymentSyncs, ReplicaSetSyncs, ServiceEndpointSyncs, EndpointSyncs int
	NamespaceSyncs, ServiceAccountSyncs, GCSyncs                          int

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
		LeaderElect: true, LeaseName: "kube-controller-manager", LeaseSpace: "kube-system",
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Controllers:     []string{"*"},
		DeploymentSyncs: 5, ReplicaSetSyncs: 5, ServiceEndpointSyncs: 5, EndpointSyncs: 5,
		NamespaceSyncs: 10, ServiceAccountSyncs: 5, GCSyncs: 20,
		MaxEndpointsPerSlice: 100,
		PodGCThreshold:       12500,
		Nodes:                nodelifecycle.Defaults(),
		AllocateNodeCIDRs:    true,
		Signing:              Signing{Longest: signingDuration},
		ClusterCIDRs:         []nodeipam.Range{{CIDR: netip.MustParsePrefix("10.244.0.0/16"), MaskSize: 24}},
	}
}

func (c *Config) setDefaults() {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	if c.Health == nil {
		c.Health = &daemon.Health{}
	}
	if c.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		c.Identity = host + "_" + uuid.NewString()
	}
}
