package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
)

// group returns a command that only has subcommands; without one it prints its
// help.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(commands...)
	return cmd
}

// on returns the RunE of a command whose arguments select objects.
func on[O any](s *selection, o O, run func(context.Context, O) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s.Args = args
		return run(cmd.Context(), o)
	}
}

// onFiles returns the RunE of a command that requires -f and takes no
// arguments.
func onFiles[O any](s *selection, o O, run func(context.Context, O) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if !s.given() {
			return errors.New("must specify one of -f and -k")
		}
		return run(cmd.Context(), o)
	}
}

// onNodes returns the RunE of a command whose arguments are names of nodes.
func onNodes[O any](w *change, o O, run func(context.Context, O) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := w.nodes(args); err != nil {
			return err
		}
		return run(cmd.Context(), o)
	}
}

// listFlags adds the flags that select several objects of a type.
func (s *selection) listFlags(cmd *cobra.Command) {
	s.labelFlag(cmd)
	fs := cmd.Flags()
	fs.StringVar(&s.Fields, "field-selector", "", "selector (field query) to filter on")
	fs.BoolVar(&s.All, "all", false, "select all resources in the namespace of the specified resource types")
	fs.BoolVarP(&s.AllNamespaces, "all-namespaces", "A", false, "select resources across all namespaces")
}

// writeFlags adds the flags of commands that write objects. what describes the
// objects of -f.
func (w *change) writeFlags(cmd *cobra.Command, what string) {
	w.fileFlags(cmd, what)
	dryRunFlag(cmd, &w.DryRun)
	w.formatFlag(cmd)
	w.managerFlag(cmd)
}
