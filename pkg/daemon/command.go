package daemon

import "github.com/spf13/cobra"

// Command is a daemon's command line, to which the daemon adds its flags. It
// takes no arguments; run is called once the config file has been read, whose
// keys beside the flags into takes (see LoadConfig).
func (o *Options) Command(name, short string, into any, run func(cmd *cobra.Command) error) *cobra.Command {
	return &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := LoadConfig(cmd, o.ConfigFile, into); err != nil {
				return err
			}
			return run(cmd)
		},
	}
}
