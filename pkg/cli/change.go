package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"podium/pkg/cli/output"
	"podium/pkg/cli/rest"
)

// change is what commands that write objects have in common: which objects, how
// they are written, and how it is told.
type change struct {
	*Factory
	selection
	DryRun   string // none, client or server
	Format   string // of -o; empty: a line an object
	Validate string // of --validate; empty: the command does not have it
}

func (w *change) formatFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&w.Format, "output", "o", "", "print the objects: "+output.Formats)
}

func (w *change) validateFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.Validate, "validate", "strict", "unknown and duplicate fields: strict (an error), warn, or ignore")
}

// check reports mistakes in the flags, before anything is sent.
func (w *change) check() error {
	if err := checkDryRun(w.DryRun); err != nil {
		return err
	}
	if w.Validate == "" {
		return nil
	}
	var err error
	w.Validate, err = fieldValidation(w.Validate)
	return err
}

// query is that of a write; call it after check.
func (w *change) query() url.Values {
	q := rest.WriteQuery(w.DryRun == "server", manager)
	if w.Validate != "" {
		q.Set("fieldValidation", w.Validate)
	}
	return q
}

// doer does something to one object. It returns what became of the object: the
// object as it is then (nil: the target's name tells enough) and a verb (none:
// there is nothing to tell).
type doer func(context.Context, *rest.Cluster, target) (*rest.Object, string, error)

// each does it to every object that is meant and tells what became of them. With
// read, objects that do not come from files are read first.
func (w *change) each(ctx context.Context, read bool, do doer) error {
	return w.eachOf(ctx, func(ctx context.Context) ([]target, error) { return w.resolve(ctx, w.Factory, read) }, do)
}

// eachOf does it to every object that find finds. One object's mistake does not
// keep the others out.
func (w *change) eachOf(ctx context.Context, find func(context.Context) ([]target, error), do doer) error {
	if err := w.check(); err != nil {
		return err
	}
	report, err := newReport(w.Factory, w.Format, w.DryRun)
	if err != nil {
		return err
	}
	c, err := w.Cluster()
	if err != nil {
		return err
	}
	targets, err := find(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range targets {
		obj, verb, err := do(ctx, c, t)
		if err != nil {
			errs = append(errs, inSource(t.Source, err))
			continue
		}
		if err := report.tell(t, obj, verb); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// inSource says from which file an object with an error came.
func inSource(source string, err error) error {
	if source == "" {
		return err
	}
	return fmt.Errorf("%s: %w", source, err)
}

// dryRunFlag declares --dry-run with the values of kubectl.
func dryRunFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVar(into, "dry-run", "none", "none, client (say what would be sent), or server (have the server do all but store it)")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = "client"
}

func checkDryRun(value string) error {
	switch value {
	case "none", "client", "server":
		return nil
	}
	return fmt.Errorf("--dry-run=%q: use none, client or server", value)
}

func dryRunNote(value string) string {
	switch value {
	case "client":
		return " (dry run)"
	case "server":
		return " (server dry run)"
	}
	return ""
}

// fieldValidation is the query's word for --validate.
func fieldValidation(flag string) (string, error) {
	switch strings.ToLower(flag) {
	case "strict", "true":
		return "Strict", nil
	case "warn":
		return "Warn", nil
	case "ignore", "false":
		return "Ignore", nil
	}
	return "", fmt.Errorf("--validate=%q: use strict, warn or ignore", flag)
}

// report prints what became of objects: a line each, or the objects with -o.
type report struct {
	f       *Factory
	printer output.Printer
	note    string
}

func newReport(f *Factory, format, dryRun string) (*report, error) {
	r := &report{f: f, note: dryRunNote(dryRun)}
	if format == "" {
		return r, nil
	}
	var err error
	r.printer, err = output.New(output.Options{Format: format})
	return r, err
}

// tell says what became of a target; see doer.
func (r *report) tell(t target, obj *rest.Object, verb string) error {
	switch {
	case verb == "":
		return nil
	case obj == nil:
		return r.target(t, verb)
	}
	return r.object(obj, verb)
}

func (r *report) object(obj *rest.Object, verb string) error {
	if r.printer != nil {
		return r.printer.Print(r.f.Out, obj)
	}
	_, err := fmt.Fprintf(r.f.Out, "%s %s%s\n", output.Name(obj), verb, r.note)
	return err
}

func (r *report) target(t target, verb string) error {
	_, err := fmt.Fprintf(r.f.Out, "%s %s%s\n", t, verb, r.note)
	return err
}
