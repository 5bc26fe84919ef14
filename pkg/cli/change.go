package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/cli/output"
	"podium/pkg/cli/rest"
)

// change holds what commands that write objects have in common: the selection
// of objects, the write options and the output format.
type change struct {
	*Factory
	selection
	printing        // without a format: a line for each object
	DryRun   string // none, client or server
	Validate string // of --validate; empty: the command does not have it
	Manager  string // of --field-manager; empty: the command does not have it

	SaveConfig bool // keep what is sent in an annotation, for a client-side apply

	report *report // of all objects; nil until the first
}

func (w *change) formatFlag(cmd *cobra.Command) {
	w.printingFlags(cmd, "print the objects: ", "")
}

func (w *change) managerFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.Manager, "field-manager", manager, "name of the manager used to track field ownership")
}

func (w *change) validateFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.Validate, "validate", "strict", "what to do about unknown and duplicate fields: strict (fail), warn, or ignore")
}

func (w *change) saveConfigFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.SaveConfig, "save-config", false, "save the configuration of the object in its annotation, for a later client-side apply by kubectl")
}

// saveConfig does what --save-config says.
func (w *change) saveConfig(obj *rest.Object) error {
	if !w.SaveConfig {
		return nil
	}
	return annotateConfig(obj)
}

// annotateConfig writes the object without the annotation into the annotation, from
// which a client-side apply learns which fields it had set.
func annotateConfig(obj *rest.Object) error {
	annotations := obj.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	obj.SetAnnotations(annotations)
	body, err := obj.MarshalJSON()
	if err != nil {
		return err
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[corev1.LastAppliedConfigAnnotation] = string(body)
	obj.SetAnnotations(annotations)
	return nil
}

// check reports errors in the flags before anything is sent.
func (w *change) check() error {
	if err := checkDryRun(w.DryRun); err != nil {
		return err
	}
	if w.Local && w.DryRun == "server" {
		return errors.New("cannot specify --local and --dry-run=server: did you mean --dry-run=client?")
	}
	if w.Validate == "" {
		return nil
	}
	var err error
	w.Validate, err = fieldValidation(w.Validate)
	return err
}

// query returns the query parameters of a write. Call check first.
func (w *change) query() url.Values {
	q := rest.WriteQuery(w.DryRun == "server", cmp.Or(w.Manager, manager))
	if w.Validate != "" {
		q.Set("fieldValidation", w.Validate)
	}
	return q
}

// doer changes one object. It returns the object after the change (nil: report
// the target's name only) and the verb to report ("": report nothing). With --local the
// cluster is nil.
type doer func(context.Context, *rest.Cluster, target) (*rest.Object, string, error)

// each calls do for every selected object and reports the results. With read,
// it reads objects that do not come from files first.
func (w *change) each(ctx context.Context, read bool, do doer) error {
	return w.eachOf(ctx, func(ctx context.Context) ([]target, error) { return w.resolve(ctx, w.Factory, read) }, do)
}

// eachOf calls do for every object that find returns, also if find returns an
// error about others. It continues after an error of one object, and returns all
// errors joined.
func (w *change) eachOf(ctx context.Context, find func(context.Context) ([]target, error), do doer) error {
	if err := w.check(); err != nil {
		return err
	}
	var err error
	if w.report == nil {
		if w.report, err = newReport(w.Factory, w.options(), w.DryRun); err != nil {
			return err
		}
	}
	var c *rest.Cluster
	if !w.Local {
		if c, err = w.Cluster(); err != nil {
			return err
		}
	}
	targets, err := find(ctx)
	errs := []error{err}
	for _, t := range targets {
		obj, verb, err := do(ctx, c, t)
		if err != nil {
			errs = append(errs, inSource(t.Source, err))
			continue
		}
		if err := w.report.tell(t, obj, verb); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// inSource adds the file of an object to its error. A nil error stays nil.
func inSource(source string, err error) error {
	if source == "" || err == nil {
		return err
	}
	return fmt.Errorf("%s: %w", source, err)
}

// dryRunFlag declares --dry-run with the values of kubectl.
func dryRunFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVar(into, "dry-run", "none", "none, client (only print what would be sent), or server (submit the request without persisting it)")
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

// fieldValidation returns the query parameter for a value of --validate.
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

// report prints the results of changes: a line for each object, or the objects
// in the format of -o.
type report struct {
	f       *Factory
	printer output.Printer
	note    string
}

// newReport returns a report that prints objects if o has a format.
func newReport(f *Factory, o output.Options, dryRun string) (*report, error) {
	r := &report{f: f, note: dryRunNote(dryRun)}
	if o.Format == "" {
		return r, nil
	}
	var err error
	r.printer, err = output.New(o)
	return r, err
}

// tell reports the result for a target; see doer.
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
