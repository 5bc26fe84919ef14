package crew

import (
	"context"
	"io"

	"github.com/spf13/pflag"

	"podium/pkg/client"
	"podium/pkg/daemon"
	"podium/pkg/scheme"
)

// Flags are those that every such daemon has.
type Flags struct {
	daemon.Worker
	accounts bool
}

// AddFlags declares the flags; c holds the defaults, port is the daemon's own.
func (f *Flags) AddFlags(fs *pflag.FlagSet, port int, c *Config) {
	f.Worker.AddFlags(fs, port)
	c.Election.AddFlags(fs)
	fs.BoolVar(&f.accounts, "use-service-account-credentials", true, "let each controller work under a service account of its own, with a role that holds what it uses")
	fs.StringSliceVar(&c.Controllers, "controllers", c.Controllers, "names of the controllers to run; * is all, -name is not this one")
}

// Serve is the daemon around run, which works with what Serve adds to c; name
// is whom the API takes it for in its logs.
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
