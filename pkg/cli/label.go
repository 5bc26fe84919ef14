package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"podium/pkg/cli/rest"
)

// labelOptions are the flags of label and of annotate.
type labelOptions struct {
	change
	Field     string // labels or annotations
	Done      string // labeled or annotated
	Set       map[string]string
	Remove    []string
	Overwrite bool
	List      bool
	Version   string // --resource-version
}

func newLabel(f *Factory, run func(context.Context, *labelOptions) error) *cobra.Command {
	cmd := labeler(f, run, "labels", "labeled")
	cmd.Use = "label TYPE NAME... KEY=VALUE... KEY-..."
	cmd.Short = "Update the labels on a resource"
	cmd.Example = "  podium label node worker-1 disk=ssd\n  podium label pods -l app=web tier-"
	return cmd
}

func newAnnotate(f *Factory, run func(context.Context, *labelOptions) error) *cobra.Command {
	cmd := labeler(f, run, "annotations", "annotated")
	cmd.Use = "annotate TYPE NAME... KEY=VALUE... KEY-..."
	cmd.Short = "Update the annotations on a resource"
	return cmd
}

func labeler(f *Factory, run func(context.Context, *labelOptions) error, field, done string) *cobra.Command {
	o := &labelOptions{change: change{Factory: f}, Field: field, Done: done}
	cmd := &cobra.Command{
		ValidArgsFunction: f.completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.split(args); err != nil {
				return err
			}
			return run(cmd.Context(), o)
		},
	}
	o.listFlags(cmd)
	o.writeFlags(cmd, "the objects")
	o.localFlag(cmd)
	cmd.Flags().BoolVar(&o.Overwrite, "overwrite", false, "allow existing values to be overwritten")
	cmd.Flags().StringVar(&o.Version, "resource-version", "", "update the object only if this is its resource version")
	cmd.Flags().BoolVar(&o.List, "list", false, "display the current values")
	return cmd
}

// split separates the arguments into objects and changes (KEY=VALUE and KEY-).
func (o *labelOptions) split(args []string) error {
	o.Set = map[string]string{}
	for _, arg := range args {
		key, value, sets := strings.Cut(arg, "=")
		switch {
		case sets && key != "":
			if errs := validation.IsQualifiedName(key); len(errs) > 0 {
				return fmt.Errorf("invalid key %q: %s", key, strings.Join(errs, "; "))
			}
			if errs := validation.IsValidLabelValue(value); len(errs) > 0 && o.Field == "labels" {
				return fmt.Errorf("invalid label value: %q: %s", arg, strings.Join(errs, "; "))
			}
			if _, twice := o.Set[key]; twice {
				return fmt.Errorf("%q is given twice", key)
			}
			o.Set[key] = value
		case strings.HasSuffix(arg, "-") && len(o.Args) > 0 || strings.HasSuffix(arg, "-") && o.given():
			o.Remove = append(o.Remove, strings.TrimSuffix(arg, "-"))
		case len(o.Set)+len(o.Remove) > 0:
			return fmt.Errorf("all resources must be specified before changes: %s", arg)
		default:
			o.Args = append(o.Args, arg)
		}
	}
	for _, key := range o.Remove {
		if _, both := o.Set[key]; both {
			return fmt.Errorf("can not both modify and remove %q in the same command", key)
		}
	}
	if len(o.Set)+len(o.Remove) == 0 && !o.List {
		return fmt.Errorf("at least one change is required: KEY=VALUE, or KEY- to remove (or --list)")
	}
	return nil
}

func runLabel(ctx context.Context, o *labelOptions) error {
	if err := o.localVersion(o.Version); err != nil {
		return err
	}
	return o.each(ctx, true, func(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
		if o.given() && !o.Local { // compare with the live object, not with the file
			var err error
			if t.Object, err = c.Get(ctx, t.Kind, t.Namespace, t.Name); err != nil {
				return nil, "", err
			}
		}
		if o.List {
			o.list(t)
			return nil, "", nil
		}
		return o.write(ctx, c, t)
	})
}

func (o *labelOptions) of(obj *rest.Object) map[string]string {
	if o.Field == "labels" {
		return obj.GetLabels()
	}
	return obj.GetAnnotations()
}

func (o *labelOptions) list(t target) {
	have := o.of(t.Object)
	for _, key := range slices.Sorted(maps.Keys(have)) {
		fmt.Fprintf(o.Out, "%s=%s\n", key, have[key])
	}
}

// write patches the labels or annotations of an object that was read. It
// returns an error if a key has another value and --overwrite is not set.
func (o *labelOptions) write(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
	have := o.of(t.Object)
	patch := map[string]any{}
	for key, value := range o.Set {
		now, there := have[key]
		switch {
		case there && now == value:
		case there && !o.Overwrite:
			return nil, "", fmt.Errorf("%s: '%s' already has a value (%s), and --overwrite is false", t, key, now)
		default:
			patch[key] = value
		}
	}
	for _, key := range o.Remove {
		if _, there := have[key]; !there {
			fmt.Fprintf(o.Err, "%s %q not found.\n", strings.TrimSuffix(o.Field, "s"), key)
			continue
		}
		patch[key] = nil
	}
	if len(patch) == 0 {
		return t.Object, "not " + o.Done, nil
	}
	done := o.Done
	if len(o.Set) == 0 && o.Field == "labels" {
		done = "unlabeled"
	}
	if o.Local || o.DryRun == "client" {
		o.set(t.Object, patch)
		return t.Object, done, nil
	}
	meta := map[string]any{o.Field: patch}
	if o.Version != "" {
		meta["resourceVersion"] = o.Version
	}
	body, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return nil, "", err
	}
	obj, err := c.Patch(ctx, t.Kind, t.Namespace, t.Name, types.MergePatchType, body, o.query())
	return obj, done, err
}

// set changes the labels or annotations of an object that is only shown: nil removes
// one.
func (o *labelOptions) set(obj *rest.Object, patch map[string]any) {
	have := maps.Clone(o.of(obj))
	if have == nil {
		have = map[string]string{}
	}
	for key, value := range patch {
		if text, ok := value.(string); ok {
			have[key] = text
		} else {
			delete(have, key)
		}
	}
	if o.Field == "labels" {
		obj.SetLabels(have)
	} else {
		obj.SetAnnotations(have)
	}
}
