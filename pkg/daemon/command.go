package daemon

import (
	"github.com/spf13/cobra"

	"podium/pkg/daemon/memory"
)

// Command is a daemon's command line, to which the daemon adds its flags. It
// takes no arguments; once the config file has been read, whose keys beside the
// flags into takes (see LoadConfig), the process's soft memory limit is set and
// run is called.
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
