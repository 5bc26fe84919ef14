package cli

import "github.com/spf13/cobra"

// newAuth groups the commands about who asks and what they may.
func newAuth(f *Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "auth",
		Short: "Ask the server who you are and what you may",
		Args:  unknownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newWhoAmI(f, runWhoAmI), newCanI(f, runCanI), newReconcile(f, runReconcile))
	return cmd
}
