package manager

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/client"
	"podium/pkg/daemon"
)

// Config configures a controller manager.
type Config struct {
	Client *client.Client
	// ClientFor returns a client with the credentials of a service account in
	// kube-system; nil: all controllers use Client. Shared informers always use Client.
	ClientFor func(account string) (*client.Client, error)
	Log       *slog.Logger
	Registry  prometheus.Registerer // nil: metrics are not served
	Health    *daemon.Health        // nil: readiness is not served

	daemon.Election

	Controllers []string // names; "*" is all, "-name" all but this one; default "*"
}

// Default returns the default configuration of the controller manager called name.
func Default(name string) Config {
	return Config{Election: daemon.DefaultElection(name), Controllers: []string{"*"}}
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
}
