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
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/cli/rest"
)

// applyOptions are the flags of apply.
type applyOptions struct {
	change
	pruning
	Force       bool
	Cascade     string // how --prune deletes
	GracePeriod int64
	Subresource string
	ApplySet    string // [RESOURCE[.GROUP]/]NAME of its parent
	Recreate    bool   // of --force; refused

	set *applySet // of --applyset; nil without
}

// always is the value of a flag that cannot be false; why is the error.
type always struct{ why string }

func (always) String() string { return "true" }
func (always) Type() string   { return "bool" }

func (a always) Set(text string) error {
	if on, err := strconv.ParseBool(text); err != nil || on {
		return err
	}
	return errors.New(a.why)
}

// serverSideFlag declares --server-side for scripts that are written for kubectl.
func serverSideFlag(cmd *cobra.Command) {
	cmd.Flags().Var(always{"client-side apply is not available"}, "server-side", "apply runs on the server; client-side apply is not available")
	cmd.Flags().Lookup("server-side").NoOptDefVal = "true"
	_ = cmd.Flags().MarkHidden("server-side")
}

// clientSideFlags declares the flags that only client-side apply reads, for scripts that
// are written for kubectl.
func clientSideFlags(cmd *cobra.Command) {
	const usage = "of client-side apply: no effect"
	fs := cmd.Flags()
	fs.Bool("overwrite", true, usage)
	fs.Bool("openapi-patch", true, usage)
	fs.Bool("wait", false, usage)
	fs.Duration("timeout", 0, usage)
	for _, name := range []string{"overwrite", "openapi-patch", "wait", "timeout"} {
		_ = fs.MarkHidden(name)
	}
}

func newApply(f *Factory, run func(context.Context, *applyOptions) error) *cobra.Command {
	o := &applyOptions{change: change{Factory: f}}
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Apply a configuration from files or standard input",
		Long: `Apply a configuration from files or standard input, by server-side apply. An
object that does not exist is created. In one that exists, the fields of the
files are set, and fields that an earlier apply has set and the files no longer
have are removed. A field that another field manager owns is a conflict.`,
		Example: `  podium apply -f app.yaml
  podium apply -R -f manifests/
  podium apply --prune -f app.yaml -l app=web
  podium apply --prune --applyset=web -f manifests/
  cat app.yaml | podium apply -f -`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkApply(); err != nil {
				return err
			}
			return run(cmd.Context(), o)
		},
	}
	fs := cmd.Flags()
	o.writeFlags(cmd, "the objects to apply")
	o.labelFlag(cmd)
	o.validateFlag(cmd)
	fs.BoolVar(&o.Force, "force-conflicts", false, "take over fields that other managers own")
	fs.StringVar(&o.Subresource, "subresource", "", "subresource to apply to: status, scale or resize")
	serverSideFlag(cmd)
	clientSideFlags(cmd)
	o.pruneFlags(cmd, "automatically delete resource objects that do not appear in the files and were applied before; use it with either -l or --all")
	fs.BoolVar(&o.All, "all", false, "with --prune, select all resources of the allowlist in the namespaces of the files")
	cascadeFlags(cmd, &o.Cascade, &o.GracePeriod)
	fs.StringVar(&o.ApplySet, "applyset", "", "with --prune, the ApplySet of the objects: [RESOURCE[.GROUP]/]NAME of its parent, which records where they are; a Secret (the default), a ConfigMap, or a custom resource. Its members that are not in the files are deleted")
	fs.BoolVar(&o.Recreate, "force", false, "not available")
	_ = fs.MarkHidden("force")
	return cmd
}

// checkApply reports flags that do not go together.
func (o *applyOptions) checkApply() error {
	switch o.Subresource {
	case "", "status", "scale", "resize":
	default:
		return fmt.Errorf("--subresource=%q: use status, scale or resize", o.Subresource)
	}
	switch {
	case o.Recreate:
		return errors.New("--force cannot be used with server-side apply: use podium replace --force")
	case o.ApplySet != "":
		return o.checkApplySet()
	case o.All && o.Labels != "":
		return errors.New("cannot set --all and --selector at the same time")
	case o.Prune && !o.All && o.Labels == "":
		return errors.New("all resources selected for prune without explicitly passing --all. To prune all resources, pass the --all flag. If you did not mean to prune all resources, specify a label selector")
	}
	return nil
}

// checkApplySet reports flags that do not go with --applyset, which selects the objects by itself.
func (o *applyOptions) checkApplySet() error {
	switch {
	case !o.Prune:
		return errors.New("--applyset requires --prune")
	case o.Labels != "":
		return errors.New("--selector is incompatible with --applyset")
	case o.All:
		return errors.New("--all is incompatible with --applyset")
	case len(o.Allowlist) > 0:
		return errors.New("--prune-allowlist is incompatible with --applyset")
	case o.Subresource != "":
		return errors.New("--subresource is incompatible with --applyset")
	}
	return nil
}

func runApply(ctx context.Context, o *applyOptions) error {
	if !o.given() {
		return errors.New("must specify one of -f and -k: which files, folders or URLs to apply")
	}
	if o.ApplySet != "" {
		return o.applyTogether(ctx)
	}
	var files []target
	err := o.applyEach(ctx, func(ctx context.Context) (_ []target, err error) {
		files, err = o.resolve(ctx, o.Factory, false)
		return files, err
	})
	if err != nil || !o.Prune {
		return err
	}
	return o.prune(ctx, func(ctx context.Context, c *rest.Cluster) ([]target, error) {
		return o.stale(ctx, c, &o.selection, o.Manager, files)
	})
}

// applyEach applies the objects that find returns.
func (o *applyOptions) applyEach(ctx context.Context, find func(context.Context) ([]target, error)) error {
	return o.eachOf(ctx, find, func(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
		obj, verb, err := o.apply(ctx, c, t)
		return obj, verb, conflictHint(err)
	})
}

// apply applies one object and returns it with the verb to print.
func (o *applyOptions) apply(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
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
	if before != nil && o.set != nil && !o.Force {
		if err := o.set.mayTake(before); err != nil {
			return nil, "", fmt.Errorf("%s: %w", t, err)
		}
	}
	body, err := json.Marshal(t.Object.Object)
	if err != nil {
		return nil, "", err
	}
	q := o.query()
	q.Set("fieldManager", o.Manager)
	var after *rest.Object
	if o.Subresource == "" {
		after, err = applyOver(ctx, c, t, before, body, q, o.Force)
	} else {
		after, err = serverSideApply(ctx, c, t, body, q, o.Force, o.Subresource)
	}
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

// changedNothing reports whether an apply changed neither the applied fields
// nor our ownership of them. Other clients may have changed the rest of the
// object meanwhile, its status above all.
func (o *applyOptions) changedNothing(applied, before, after *rest.Object) bool {
	ours := func(obj *rest.Object) []byte {
		if fields := appliedBy(obj, o.Manager); fields != nil {
			return fields.Raw
		}
		return nil
	}
	return bytes.Equal(ours(before), ours(after)) && sameWhere(applied.Object, before.Object, after.Object)
}

// sameWhere reports whether a and b are equal in every field that shape has.
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

// serverSideApply applies an object, or the subresource in parts. If the only conflicts
// are with the same manager, that is with other podium commands (scale, patch, edit), it
// applies again with force: the file is the same user's newer intent.
func serverSideApply(ctx context.Context, c *rest.Cluster, t target, body []byte, q url.Values, force bool, parts ...string) (*rest.Object, error) {
	if force {
		q.Set("force", "true")
	}
	after, err := c.Patch(ctx, t.Kind, t.Namespace, t.Name, types.ApplyPatchType, body, q, parts...)
	if !force && onlyOurOwn(err, q.Get("fieldManager")) {
		return serverSideApply(ctx, c, t, body, q, true, parts...)
	}
	return after, err
}

// onlyOurOwn reports whether err is a conflict with manager only.
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

// conflictHint adds advice to a conflict of field ownership. It returns other
// errors unchanged.
func conflictHint(err error) error {
	var status *apierrors.StatusError
	if !errors.As(err, &status) || !apierrors.IsConflict(err) || status.ErrStatus.Details == nil {
		return err
	}
	return fmt.Errorf("%w\nAnother manager owns these fields. Take them over with --force-conflicts, or remove them from the file", err)
}
