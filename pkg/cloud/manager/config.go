package manager

import (
	"net/netip"
	"time"

	"podium/pkg/cloud"
	"podium/pkg/controllers/crew"
)

// Config is what the daemon needs.
type Config struct {
	crew.Config

	// Provider makes the provider; see cloud.Setup.
	Provider    func(cloud.Setup) (*cloud.Provider, error)
	CloudConfig []byte // what the provider is told
	ClusterName string

	NodeSyncs    int           // nodes worked on at a time
	ServiceSyncs int           // services worked on at a time
	Refresh      time.Duration // how often a node's addresses are looked at
	Monitor      time.Duration // how often the machine of a node that is not ready is

	ConfigureRoutes bool
	ClusterCIDRs    []netip.Prefix // the pods' addresses; routes to others are not ours
	RoutePeriod     time.Duration  // how often all routes are looked at
}

// Default is the configuration of a daemon that is told nothing.
func Default() Config {
	return Config{
		Config: crew.Default("cloud-controller-manager"), ClusterName: "podium",
		NodeSyncs: 5, ServiceSyncs: 5, Refresh: 5 * time.Minute, Monitor: 5 * time.Second,
		RoutePeriod: 10 * time.Second,
	}
}
