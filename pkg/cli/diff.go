package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"podium/pkg/cli/rest"
)

// diffOptions are the flags of diff.
type diffOptions struct {
	*Factory
	selection
	pruning
	Force         bool
	Manager       string // of --field-manager
	ManagedFields bool
	ShowSecrets   bool
	Concurrency   int // objects that are compared at once
}

func newDiff(f *Factory, run func(context.Context, *diffOptions) error) *cobra.Command {
	o := &diffOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "diff -f FILE",
		Short: "Diff the live version against a would-be applied version",
		Long: `Diff the live version against a would-be applied version. The exit code is 0 if
there are no differences, 1 if there are, and greater than 1 on an error.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !o.given() {
				return &exitError{2, "error: must specify one of -f and -k"}
			}
			err := run(cmd.Context(), o)
			var exit *exitError
			if err != nil && !errors.As(err, &exit) {
				return &exitError{2, Message(err)}
			}
			return err
		},
	}
	o.fileFlags(cmd, "the objects to compare")
	o.labelFlag(cmd)
	cmd.Flags().StringVar(&o.Manager, "field-manager", manager, "name of the manager that would apply")
	cmd.Flags().BoolVar(&o.ManagedFields, "show-managed-fields", false, "include managed fields in the diff")
	cmd.Flags().BoolVar(&o.ShowSecrets, "show-secrets", false, "show the values of Secrets, which are masked otherwise")
	cmd.Flags().IntVar(&o.Concurrency, "concurrency", 1, "number of objects to process in parallel")
	o.pruneFlags(cmd, "include resources that would be deleted by pruning; can be used with -l, and by default shows all resources that would be pruned")
	serverSideFlag(cmd)
	cmd.Flags().BoolVar(&o.Force, "force-conflicts", false, "diff as if fields of other managers were taken over")
	return cmd
}

func runDiff(ctx context.Context, o *diffOptions) error {
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	targets, err := o.resolve(ctx, o.Factory, false)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "podium-diff-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, side := range []string{"LIVE", "MERGED"} {
		if err := os.Mkdir(filepath.Join(dir, side), 0o700); err != nil {
			return err
		}
	}
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(max(o.Concurrency, 1))
	for _, t := range targets {
		group.Go(func() error { return inSource(t.Source, o.write(within, c, t, dir)) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if o.Prune {
		if err := o.writeStale(ctx, c, targets, dir); err != nil {
			return err
		}
	}
	return o.compare(ctx, dir)
}

// writeStale writes what apply --prune would delete to LIVE only.
func (o *diffOptions) writeStale(ctx context.Context, c *rest.Cluster, files []target, dir string) error {
	stale, err := o.stale(ctx, c, &o.selection, o.Manager, files)
	if err != nil {
		return err
	}
	for _, t := range stale {
		if err := o.writeSides(t, dir, t.Object, nil); err != nil {
			return err
		}
	}
	return nil
}

// write writes the live object and the result of an apply to the directories
// LIVE and MERGED.
func (o *diffOptions) write(ctx context.Context, c *rest.Cluster, t target, dir string) error {
	live, err := c.Get(ctx, t.Kind, t.Namespace, t.Name)
	if err != nil && !notFound(err) {
		return err
	}
	body, err := json.Marshal(t.Object.Object)
	if err != nil {
		return err
	}
	merged, err := applyOver(ctx, c, t, live, body, rest.WriteQuery(true, o.Manager), o.Force)
	if err != nil {
		return err
	}
	return o.writeSides(t, dir, live, merged)
}

// writeSides writes two versions of an object, of which either may be nil.
func (o *diffOptions) writeSides(t target, dir string, live, merged *rest.Object) (err error) {
	if !o.ShowSecrets && t.Kind.Group == "" && t.Kind.Kind == "Secret" {
		mask(live, merged)
	}
	name := strings.Join([]string{t.Kind.Group, t.Kind.Version, t.Kind.Kind, t.Namespace, t.Name}, ".")
	for side, obj := range map[string]*rest.Object{"LIVE": live, "MERGED": merged} {
		var text []byte
		if obj != nil {
			if !o.ManagedFields {
				obj.SetManagedFields(nil)
			}
			if text, err = yaml.Marshal(obj.Object); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(dir, side, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// mask hides the values of two versions of a Secret, of which either may be nil, but not
// which of them differ.
func mask(live, merged *rest.Object) {
	maskFields(fieldsAt(live, "data"), fieldsAt(merged, "data"), func(string) bool { return true })
	maskFields(fieldsAt(live, "metadata", "annotations"), fieldsAt(merged, "metadata", "annotations"),
		func(name string) bool { return name == corev1.LastAppliedConfigAnnotation })
}

// maskFields replaces the values of the fields that are secret.
func maskFields(before, after map[string]any, secret func(name string) bool) {
	for name, was := range before {
		now, kept := after[name]
		switch {
		case !secret(name):
		case kept && !reflect.DeepEqual(was, now):
			before[name], after[name] = "*** (before)", "*** (after)"
		default:
			before[name] = "***"
		}
	}
	for name := range after {
		if secret(name) && after[name] != "*** (after)" {
			after[name] = "***"
		}
	}
}

// fieldsAt returns a map in an object, nil if there is none.
func fieldsAt(obj *rest.Object, path ...string) map[string]any {
	if obj == nil {
		return nil
	}
	value, _, _ := unstructured.NestedFieldNoCopy(obj.Object, path...)
	fields, _ := value.(map[string]any)
	return fields
}

// compare runs $KUBECTL_EXTERNAL_DIFF or diff. Their exit code 1 becomes the
// exit code of the command.
func (o *diffOptions) compare(ctx context.Context, dir string) error {
	words := strings.Fields(os.Getenv("KUBECTL_EXTERNAL_DIFF"))
	if len(words) == 0 {
		words = []string{"diff", "-u", "-N"}
	}
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], "LIVE", "MERGED")...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = o.Out, o.IO.Err
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return &exitError{code: 1}
	}
	return err
}
