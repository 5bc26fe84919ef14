package cli

import "github.com/spf13/cobra"

// newAuth groups the commands about authentication and authorization.
func newAuth(f *Factory) *cobra.Command {
	return group("auth", "Inspect authorization", newWhoAmI(f, runWhoAmI), newCanI(f, runCanI), newReconcile(f, runReconcile))
}
