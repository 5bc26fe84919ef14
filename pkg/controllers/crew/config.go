package crew

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/client"
	"podium/pkg/daemon"
)

// Config is what every such daemon needs.
type Config struct {
	Client *client.Client
	// ClientFor makes a controller's own client, which speaks as a service
	// account of kube-system; nil: all use Client. The shared informers do.
	ClientFor func(account string) (*client.Client, error)
	Log       *slog.Logger
	Registry  prometheus.Registerer // nil: no metrics are shown
	Health    *daemon.Health        // nil: no readiness is shown

	daemon.Election

	Controllers []string // names; "*" is all, "-name" all but this one; default "*"
}

// Default is the configuration of a daemon that is told nothing but its name.
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
