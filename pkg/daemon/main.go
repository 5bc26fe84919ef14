package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"podium/pkg/version"
)

// Main runs a command and returns the exit code. SIGTERM and SIGINT cancel its context; a
// second signal ends the process at once. Main prints the command's error.
func Main(cmd *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal has its default effect
	return Execute(ctx, cmd, os.Stderr)
}

// errUsage is an error in the command line.
type errUsage struct{ error }

func (e errUsage) Unwrap() error { return e.error }

// Execute is Main without signal handling.
func Execute(ctx context.Context, cmd *cobra.Command, stderr io.Writer) int {
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	addVersion(cmd)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return errUsage{err} })
	called, err := cmd.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return 0 // the context was cancelled: a regular end
	}
	fmt.Fprintf(stderr, "Error: %v\n", err)
	var usage errUsage
	if errors.As(err, &usage) {
		fmt.Fprintf(stderr, "See '%s --help' for the flags.\n", called.CommandPath())
	}
	return 1
}

// addVersion adds the flag --version to cmd. Cobra's own takes a template, whose
// interpreter calls methods by name: with it, the linker keeps all methods.
func addVersion(cmd *cobra.Command) {
	asked, run := cmd.Flags().Bool("version", false, "print the version and exit"), cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *asked {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "Kubernetes", version.Podium)
			return err
		}
		return run(cmd, args)
	}
}
