package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"podium/pkg/cli/output"
	"podium/pkg/cli/rest"
)

// Annotations that all kinds with rollouts have.
const (
	annotationChangeCause = "kubernetes.io/change-cause"
	annotationRestartedAt = "kubectl.kubernetes.io/restartedAt"
)

// rolloutOptions are the flags of rollout's subcommands.
type rolloutOptions struct {
	*Factory
	selection
	Revision int64
	Watch    bool
	Timeout  time.Duration
	DryRun   string
	Manager  string // of --field-manager
	printing
}

func newRollout(f *Factory) *cobra.Command {
	return group("rollout", "Manage the rollout of a resource",
		newRolloutStatus(f, runRolloutStatus), newRolloutHistory(f, runRolloutHistory), newRolloutUndo(f, runRolloutUndo),
		newRolloutChange(f, "restart", "Restart a resource", runRolloutRestart),
		newRolloutChange(f, "pause", "Mark the provided resource as paused", runRolloutPause),
		newRolloutChange(f, "resume", "Resume a paused resource", runRolloutResume))
}

type runRollout = func(context.Context, *rolloutOptions) error

func rolloutCommand(f *Factory, use, short string, run runRollout) (*cobra.Command, *rolloutOptions) {
	o := &rolloutOptions{Factory: f}
	cmd := &cobra.Command{
		Use: use + " TYPE/NAME", Short: short,
		Example:           "  podium rollout " + use + " deployment/web",
		ValidArgsFunction: f.completeNames("deployments", "deployment", "daemonset", "statefulset"),
		RunE:              on(&o.selection, o, run),
	}
	o.labelFlag(cmd)
	o.fileFlags(cmd, "the workloads")
	return cmd, o
}

func newRolloutStatus(f *Factory, run runRollout) *cobra.Command {
	cmd, o := rolloutCommand(f, "status", "Show the status of the rollout", run)
	cmd.Flags().BoolVarP(&o.Watch, "watch", "w", true, "watch the status of the rollout until it is done")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 0, "length of time to wait before giving up; 0: no limit")
	cmd.Flags().Int64Var(&o.Revision, "revision", 0, "pin to a specific revision and fail if another one takes over")
	return cmd
}

func newRolloutHistory(f *Factory, run runRollout) *cobra.Command {
	cmd, o := rolloutCommand(f, "history", "View rollout history", run)
	cmd.Flags().Int64Var(&o.Revision, "revision", 0, "show the details, including the pod template, of this revision")
	o.printingFlags(cmd, "print the objects that keep the revisions: ", "")
	return cmd
}

func newRolloutUndo(f *Factory, run runRollout) *cobra.Command {
	cmd, o := rolloutCommand(f, "undo", "Undo a previous rollout", run)
	cmd.Flags().Int64Var(&o.Revision, "to-revision", 0, "revision to roll back to; 0: the previous one")
	dryRunFlag(cmd, &o.DryRun)
	o.printingFlags(cmd, "print the workloads: ", "")
	return cmd
}

func newRolloutChange(f *Factory, use, short string, run runRollout) *cobra.Command {
	cmd, o := rolloutCommand(f, use, short, run)
	cmd.Flags().StringVar(&o.Manager, "field-manager", manager, "name of the manager used to track field ownership")
	o.printingFlags(cmd, "print the workloads: ", "")
	return cmd
}

// each calls do for every selected workload, also if there are errors about others. It
// continues after an error of do, and returns all errors joined.
func (o *rolloutOptions) each(ctx context.Context, do func(*rest.Cluster, target, *workload) error) error {
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	targets, err := o.resolve(ctx, o.Factory, true)
	if o.given() {
		targets, err = liveObjects(ctx, c, targets, err)
	}
	errs := []error{err}
	for _, t := range targets {
		w, err := workloadOf(t.Object)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t, err))
			continue
		}
		errs = append(errs, do(c, t, w))
	}
	return errors.Join(errs...)
}

func runRolloutStatus(ctx context.Context, o *rolloutOptions) error {
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	return o.each(ctx, func(c *rest.Cluster, t target, _ *workload) error {
		err := o.follow(ctx, c, t)
		if errors.Is(err, context.DeadlineExceeded) {
			return errors.New("timed out waiting for the condition")
		}
		return err
	})
}

// follow prints the state of a rollout, and each further one until the rollout is done.
func (o *rolloutOptions) follow(ctx context.Context, c *rest.Cluster, t target) error {
	last := ""
	return c.Follow(ctx, t.Kind, t.Namespace, t.Name, func(obj *rest.Object) error {
		if obj == nil {
			return fmt.Errorf("object has been deleted")
		}
		w, err := workloadOf(obj)
		if err != nil {
			return err
		}
		text, done, err := w.State(o.Revision)
		if err != nil {
			return err
		}
		if text != last {
			fmt.Fprintln(o.Out, text)
			last = text
		}
		if done || !o.Watch {
			return rest.ErrStop
		}
		return nil
	})
}

func runRolloutHistory(ctx context.Context, o *rolloutOptions) error {
	return o.each(ctx, func(c *rest.Cluster, t target, w *workload) error {
		all, err := w.History(ctx, c)
		if err != nil {
			return err
		}
		if o.format() != "" {
			return o.printRevisions(t, all)
		}
		if o.Revision > 0 {
			return o.showRevision(t, all)
		}
		fmt.Fprintln(o.Out, t)
		rows := [][]string{{"REVISION", "CHANGE-CAUSE"}}
		for _, r := range all {
			rows = append(rows, []string{strconv.FormatInt(r.Number, 10), cmp.Or(r.Cause, "<none>")})
		}
		return (&output.Columns{}).Write(o.Out, rows)
	})
}

// revision returns the revision of --revision.
func (o *rolloutOptions) revision(t target, all []revision) (*revision, error) {
	r := numbered(all, o.Revision)
	if r == nil {
		return nil, fmt.Errorf("unable to find the specified revision %d (see: podium rollout history %s)", o.Revision, t)
	}
	return r, nil
}

// printRevisions prints the objects of the selected revisions in the format of -o.
func (o *rolloutOptions) printRevisions(t target, all []revision) error {
	p, err := output.New(o.options())
	if err != nil {
		return err
	}
	if o.Revision > 0 {
		r, err := o.revision(t, all)
		if err != nil {
			return err
		}
		all = []revision{*r}
	}
	for _, r := range all {
		obj, err := toObject(r.Object, r.Kind)
		if err != nil {
			return err
		}
		if err := p.Print(o.Out, obj); err != nil {
			return err
		}
	}
	return nil
}

func (o *rolloutOptions) showRevision(t target, all []revision) error {
	r, err := o.revision(t, all)
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(r.Template)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "%s with revision #%d\nPod Template:\n", t, o.Revision)
	for line := range strings.Lines(string(text)) {
		fmt.Fprint(o.Out, "  ", line)
	}
	return nil
}

func runRolloutUndo(ctx context.Context, o *rolloutOptions) error {
	if err := checkDryRun(o.DryRun); err != nil {
		return err
	}
	report, err := newReport(o.Factory, o.options(), o.DryRun)
	if err != nil {
		return err
	}
	return o.each(ctx, func(c *rest.Cluster, t target, w *workload) error {
		if w.Paused != nil && *w.Paused {
			return fmt.Errorf("you cannot rollback a paused deployment; resume it first with 'podium rollout resume %s' and try again", t)
		}
		all, err := w.History(ctx, c)
		if err != nil {
			return err
		}
		to, err := rollbackTo(t, all, o.Revision)
		if err != nil {
			return err
		}
		if sameTemplate(&to.Template, w.Template) {
			return report.object(t.Object, fmt.Sprintf("skipped rollback (current template already matches revision %d)", to.Number))
		}
		patch, err := to.restore(t)
		if err != nil {
			return err
		}
		var after *rest.Object
		if o.DryRun == "client" {
			after, err = patchedLocally(t, types.JSONPatchType, patch)
		} else {
			after, err = c.Patch(ctx, t.Kind, t.Namespace, t.Name, types.JSONPatchType, patch, rest.WriteQuery(o.DryRun == "server", manager))
		}
		if err != nil {
			return err
		}
		return report.object(after, "rolled back")
	})
}

// keptAnnotations are those that stay with a deployment when an earlier revision is
// restored; the others are of the revision, such as the cause of its change.
var keptAnnotations = []string{
	corev1.LastAppliedConfigAnnotation, annotationRevision, annotationRevision + "-history",
	"deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas", appsv1.DeprecatedRollbackTo,
}

// restore returns the JSON patch that gives a workload the revision's template and, if
// it is a deployment, its annotations.
func (r *revision) restore(t target) ([]byte, error) {
	changes := []map[string]any{{"op": "replace", "path": "/spec/template", "value": r.Template}}
	if set, ok := r.Object.(*appsv1.ReplicaSet); ok {
		annotations := maps.Clone(set.Annotations)
		if annotations == nil {
			annotations = map[string]string{}
		}
		have := t.Object.GetAnnotations()
		for _, name := range keptAnnotations {
			delete(annotations, name)
			if value, ok := have[name]; ok {
				annotations[name] = value
			}
		}
		changes = append(changes, map[string]any{"op": "add", "path": "/metadata/annotations", "value": annotations})
	}
	return json.Marshal(changes)
}

// rollbackTo returns the revision with a number; 0 means the one before the present.
func rollbackTo(t target, all []revision, number int64) (*revision, error) {
	switch {
	case number != 0:
		if r := numbered(all, number); r != nil {
			return r, nil
		}
		return nil, fmt.Errorf("unable to find specified revision %d in history (see: podium rollout history %s)", number, t)
	case len(all) == 0:
		return nil, fmt.Errorf("no rollout history found for %s", t)
	case len(all) == 1:
		return nil, errors.New("no last revision to roll back to")
	}
	return &all[len(all)-2], nil
}

func numbered(all []revision, number int64) *revision {
	for i := range all {
		if all[i].Number == number {
			return &all[i]
		}
	}
	return nil
}

func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

// patch patches every selected workload, unless refuse returns an error.
func (o *rolloutOptions) patch(ctx context.Context, verb, patch string, refuse func(*workload) error) error {
	report, err := newReport(o.Factory, o.options(), "none")
	if err != nil {
		return err
	}
	return o.each(ctx, func(c *rest.Cluster, t target, w *workload) error {
		if err := refuse(w); err != nil {
			return fmt.Errorf("%s %q %w", t.Kind.Plural(), t.Name, err)
		}
		after, err := c.Patch(ctx, t.Kind, t.Namespace, t.Name, types.StrategicMergePatchType, []byte(patch), rest.WriteQuery(false, o.Manager))
		if err != nil {
			return err
		}
		return report.object(after, verb)
	})
}

func runRolloutRestart(ctx context.Context, o *rolloutOptions) error {
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`, annotationRestartedAt, time.Now().Format(time.RFC3339))
	return o.patch(ctx, "restarted", patch, func(w *workload) error {
		if w.Paused != nil && *w.Paused {
			return errors.New("can't be restarted while it is paused (run rollout resume first)")
		}
		return nil
	})
}

func runRolloutPause(ctx context.Context, o *rolloutOptions) error {
	return o.patch(ctx, "paused", `{"spec":{"paused":true}}`, func(w *workload) error {
		switch {
		case w.Paused == nil:
			return errors.New("pausing is not supported")
		case *w.Paused:
			return errors.New("is already paused")
		}
		return nil
	})
}

func runRolloutResume(ctx context.Context, o *rolloutOptions) error {
	return o.patch(ctx, "resumed", `{"spec":{"paused":null}}`, func(w *workload) error {
		switch {
		case w.Paused == nil:
			return errors.New("resuming is not supported")
		case !*w.Paused:
			return errors.New("is not paused")
		}
		return nil
	})
}
