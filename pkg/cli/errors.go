package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// exitError sets the exit code of the process; with an empty text nothing is
// printed.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

// ExitCode returns the exit code for an error of a command: 0 for nil, the code
// that the command sets (that of the process for exec, 1 for differences in
// diff), or else 1.
func ExitCode(err error) int {
	var exit *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	}
	return 1
}

// Message returns the text to print for an error, or "" to print nothing.
func Message(err error) string {
	var exit *exitError
	if err == nil {
		return ""
	}
	if errors.As(err, &exit) {
		return exit.text
	}
	if all := joined(err); all != nil {
		var lines []string
		for _, e := range all {
			if m := Message(e); m != "" {
				lines = append(lines, m)
			}
		}
		return strings.Join(lines, "\n")
	}
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		return statusMessage(err, status)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "error: timed out: " + err.Error()
	}
	if hint := unreachable(err); hint != "" {
		return "error: " + err.Error() + "\n" + hint
	}
	return "error: " + err.Error()
}

// joined returns the parts of an error of errors.Join; nil if the error has any
// further text.
func joined(err error) []error {
	many, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var texts []string
	for _, e := range many.Unwrap() {
		texts = append(texts, e.Error())
	}
	if strings.Join(texts, "\n") != err.Error() {
		return nil
	}
	return many.Unwrap()
}

func statusMessage(err error, status *apierrors.StatusError) string {
	reason := string(apierrors.ReasonForError(err))
	switch {
	case apierrors.IsUnauthorized(err):
		return "error: You must be logged in to the server (" + status.ErrStatus.Message + "): look at the user of this context with: podium config view"
	case reason == "" || reason == "Unknown":
		return "Error from server: " + err.Error()
	}
	return fmt.Sprintf("Error from server (%s): %s", reason, err.Error())
}

// unreachable returns advice for connection and certificate errors, or "".
func unreachable(err error) string {
	var op *net.OpError
	var dns *net.DNSError
	var request *url.Error
	if errors.As(err, &op) || errors.As(err, &dns) {
		return "The server cannot be reached: is the cluster running, and is this its address? (podium config view)"
	}
	if errors.As(err, &request) && strings.Contains(err.Error(), "certificate") {
		return "The server's certificate does not match the CA in the kubeconfig: does the file belong to this cluster? (podium config view)"
	}
	return ""
}

// Main runs podium with these arguments, prints its error and returns the exit
// code: 130 if ctx was cancelled.
func Main(ctx context.Context, streams IO, args []string) int {
	err := newFactory(streams).execute(ctx, args)
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return 130 // the user pressed Ctrl-C
	}
	if m := Message(err); m != "" {
		fmt.Fprintln(streams.Err, m)
	}
	return ExitCode(err)
}

// execute runs a command of podium or, if it has none for these arguments, a plugin.
// The user's kuberc may change the arguments, and default values of flags.
func (f *Factory) execute(ctx context.Context, args []string) error {
	cmd := newCommand(f)
	args, err := f.prefer(cmd, args)
	if err != nil {
		return err
	}
	if p := findPlugin(cmd, args, exec.LookPath); p != nil {
		return p.exec()
	}
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(ctx)
	if err := errors.Join(err, f.profiler.stop()); err != nil {
		return err
	}
	if n := f.warnings.Load(); n > 0 && f.conn.strict {
		return fmt.Errorf("%d warning(s) received", n)
	}
	return nil
}

func readAll(r io.Reader) ([]byte, error) {
	if r == nil {
		return nil, os.ErrInvalid
	}
	return io.ReadAll(r)
}
