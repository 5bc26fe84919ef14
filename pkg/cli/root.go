package cli

import (
	"io"

	"github.com/spf13/cobra"
)

// IO is where a command reads and writes.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
}

// NewCommand is podium with all its subcommands.
func NewCommand(streams IO) *cobra.Command {
	root := &cobra.Command{
		Use:           "podium",
		Short:         "Drive a cluster, and bring clusters up and down",
		SilenceUsage:  true,
		SilenceErrors: true, // the caller prints the error, once
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	root.AddCommand(newCluster(streams))
	return root
}
