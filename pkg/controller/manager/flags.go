package manager

import (
	"context"
	"io"

	"github.com/spf13/pflag"

	"podium/pkg/client"
	"podium/pkg/daemon"
	"podium/pkg/scheme"
)

// Flags are the flags of all controller managers.
type Flags struct {
	daemon.Worker
	accounts bool
}

// AddFlags registers the flags. c holds the defaults; port is the default port.
func (f *Flags) AddFlags(fs *pflag.FlagSet, port int, c *Config) {
	f.Worker.AddFlags(fs, port)
	c.Election.AddFlags(fs)
	fs.BoolVar(&f.accounts, "use-service-account-credentials", true, "use individual service account credentials for each controller")
	fs.StringSliceVar(&c.Controllers, "controllers", c.Controllers, "controllers to enable: * enables all, name enables one, -name disables one")
}

// Serve runs the daemon around run until ctx ends. It adds the client, the
// metrics, the health checks and the logger to c; name is in the user agent.
func (f *Flags) Serve(ctx context.Context, name string, c *Config, logs io.Writer, run func(context.Context) error) error {
	tools, err := f.Tools(name, f.Logger(logs))
	if err != nil {
		return err
	}
	c.Client, c.Registry, c.Health, c.Log = tools.Client, tools.Registry, tools.Health, tools.Log
	if f.accounts {
		c.ClientFor = identities(tools.Client, tools.API, func(api client.Config) (*client.Client, error) { return client.New(scheme.New(), api) })
	}
	return f.Run(ctx, tools, run)
}
