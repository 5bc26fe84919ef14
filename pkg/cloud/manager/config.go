package manager

import (
	"net/netip"
	"time"

	"podium/pkg/cloud"
	"podium/pkg/controller/manager"
)

// Config is the configuration of cloud-controller-manager.
type Config struct {
	manager.Config

	// Provider builds the provider; see cloud.Setup.
	Provider    func(cloud.Setup) (*cloud.Provider, error)
	CloudConfig []byte // content of the file --cloud-config
	ClusterName string

	NodeSyncs    int           // nodes reconciled concurrently
	ServiceSyncs int           // services reconciled concurrently
	Refresh      time.Duration // between two checks of a node's addresses
	Monitor      time.Duration // between two checks of the instance of a node that is not ready

	ConfigureRoutes bool
	ClusterCIDRs    []netip.Prefix // the pods' addresses; routes to other destinations are ignored
	RoutePeriod     time.Duration  // between two checks of all routes
}

// Default returns the default configuration.
func Default() Config {
	return Config{
		Config: manager.Default("cloud-controller-manager"), ClusterName: "podium",
		NodeSyncs: 5, ServiceSyncs: 5, Refresh: 5 * time.Minute, Monitor: 5 * time.Second,
		RoutePeriod: 10 * time.Second,
	}
}
