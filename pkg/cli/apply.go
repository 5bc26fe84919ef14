package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/cli/output"
	"podium/pkg/cli/rest"
)

// applyOptions are the flags of apply.
type applyOptions struct {
	*Factory
	selection
	DryRun   string
	Format   string
	Manager  string
	Force    bool
	Validate string
	Prune    bool
	Server   bool
}

func newApply(f *Factory, run func(context.Context, *applyOptions) error) *cobra.Command {
	o := &applyOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Make the cluster have the objects of files",
		Long: `Make the cluster have the objects of files: what does not exist is created, what
exists gets the fields that the files name, and fields that the files named last
time and do not any more are taken away. The server keeps book of who owns which
field (server-side apply); a field that somebody else owns is a conflict.`,
		Example: `  podium apply -f app.yaml
  podium apply -R -f manifests/
  cat app.yaml | podium apply -f -`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Prune {
				return errors.New("--prune is not available: delete what is no longer wanted with podium delete")
			}
			return run(cmd.Context(), o)
		},
	}
	fs := cmd.Flags()
	o.fileFlags(cmd, "the objects to apply")
	o.labelFlag(cmd)
	dryRunFlag(cmd, &o.DryRun)
	fs.StringVarP(&o.Format, "output", "o", "", "print the applied objects: "+output.Formats)
	fs.StringVar(&o.Manager, "field-manager", manager, "name under which the fields are owned")
	fs.BoolVar(&o.Force, "force-conflicts", false, "take fields from their owners")
	fs.StringVar(&o.Validate, "validate", "strict", "unknown and duplicate fields: strict (an error), warn, or ignore")
	fs.BoolVar(&o.Server, "server-side", true, "apply on the server; there is no other way")
	fs.BoolVar(&o.Prune, "prune", false, "not available")
	_ = fs.MarkHidden("prune")
	_ = fs.MarkHidden("server-side")
	return cmd
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
	case "strict", "true", "":
		return "Strict", nil
	case "warn":
		return "Warn", nil
	case "ignore", "false":
		return "Ignore", nil
	}
	return "", fmt.Errorf("--validate=%q: use strict, warn or ignore", flag)
}

func runApply(ctx context.Context, o *applyOptions) error {
	if len(o.Files) == 0 {
		return errors.New("must specify one of -f: which files, folders or URLs to apply")
	}
	if err := checkDryRun(o.DryRun); err != nil {
		return err
	}
	validation, err := fieldValidation(o.Validate)
	if err != nil {
		return err
	}
	report, err := newReport(o.Factory, o.Format, o.DryRun)
	if err != nil {
		return err
	}
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	targets, err := o.resolve(ctx, o.Factory, false)
	if err != nil {
		return err
	}
	var errs []error // one object's mistake does not keep the others out
	for _, t := range targets {
		obj, verb, err := o.apply(ctx, c, t, validation)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.Source, conflictHint(err)))
			continue
		}
		if err := report.object(obj, verb); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// apply sends one object and says what became of it.
func (o *applyOptions) apply(ctx context.Context, c *rest.Cluster, t target, validation string) (*rest.Object, string, error) {
	if t.Name == "" {
		return nil, "", errors.New("metadata.name is missing: an object that is applied needs one (generateName works with podium create)")
	}
	t.Object.SetManagedFields(nil)
	if o.DryRun == "client" {
		return t.Object, "applied", nil
	}
	before, err := c.Get(ctx, t.Kind, t.Namespace, t.Name)
	if err != nil && !notFound(err) {
		return nil, "", err
	}
	body, err := json.Marshal(t.Object.Object)
	if err != nil {
		return nil, "", err
	}
	q := rest.WriteQuery(o.DryRun == "server", o.Manager)
	q.Set("fieldValidation", validation)
	after, err := serverSideApply(ctx, c, t, body, q, o.Force)
	switch {
	case err != nil:
		return nil, "", err
	case before == nil:
		return after, "created", nil
	case o.DryRun == "none" && (before.GetResourceVersion() == after.GetResourceVersion() || o.changedNothing(t.Object, before, after)):
		return after, "unchanged", nil
	}
	return after, "configured", nil
}

// changedNothing says that what we apply was there already, as ours. The rest
// of the object, its status above all, others may have changed meanwhile.
func (o *applyOptions) changedNothing(applied, before, after *rest.Object) bool {
	ours := func(obj *rest.Object) []byte {
		for _, entry := range obj.GetManagedFields() {
			if entry.Manager == o.Manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" && entry.FieldsV1 != nil {
				return entry.FieldsV1.Raw
			}
		}
		return nil
	}
	return bytes.Equal(ours(before), ours(after)) && sameWhere(applied.Object, before.Object, after.Object)
}

// sameWhere says that two values are equal wherever the shape has a value.
func sameWhere(shape, a, b any) bool {
	fields, ok := shape.(map[string]any)
	if !ok {
		return reflect.DeepEqual(a, b)
	}
	fieldsA, _ := a.(map[string]any)
	fieldsB, _ := b.(map[string]any)
	for name, value := range fields {
		if !sameWhere(value, fieldsA[name], fieldsB[name]) {
			return false
		}
	}
	return true
}

// serverSideApply sends an object. Fields that podium itself set by other
// commands (scale, patch, edit) are taken back without asking: the file is what
// the same person says now.
func serverSideApply(ctx context.Context, c *rest.Cluster, t target, body []byte, q url.Values, force bool) (*rest.Object, error) {
	if force {
		q.Set("force", "true")
	}
	after, err := c.Patch(ctx, t.Kind, t.Namespace, t.Name, types.ApplyPatchType, body, q)
	if !force && onlyOurOwn(err, q.Get("fieldManager")) {
		return serverSideApply(ctx, c, t, body, q, true)
	}
	return after, err
}

// onlyOurOwn says whether an error is a conflict with nobody but the manager.
func onlyOurOwn(err error, manager string) bool {
	var status *apierrors.StatusError
	if !errors.As(err, &status) || !apierrors.IsConflict(err) || status.ErrStatus.Details == nil {
		return false
	}
	causes := status.ErrStatus.Details.Causes
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(cause metav1.StatusCause) bool {
		own := fmt.Sprintf("conflict with %q", manager)
		return cause.Type != metav1.CauseTypeFieldManagerConflict || !strings.HasPrefix(cause.Message, own)
	})
}

// conflictHint adds to a conflict of owners what can be done about it.
func conflictHint(err error) error {
	var status *apierrors.StatusError
	if !errors.As(err, &status) || !apierrors.IsConflict(err) || status.ErrStatus.Details == nil {
		return err
	}
	return fmt.Errorf("%w\nThese fields belong to somebody else. Take them with --force-conflicts, or leave them out of the file", err)
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
