package daemon

import (
	"github.com/spf13/cobra"

	"podium/pkg/daemon/memory"
)

// Command returns a daemon's command, to which the daemon adds its flags. It takes no
// arguments. Before run is called, it loads the config file (see LoadConfig for into)
// and sets the process's soft memory limit.
func (o *Options) Command(name, short string, into any, run func(cmd *cobra.Command) error) *cobra.Command {
	return &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := LoadConfig(cmd, o.ConfigFile, into); err != nil {
				return err
			}
			memory.SetLimit(o.Logger(cmd.ErrOrStderr()))
			return run(cmd)
		},
	}
}
