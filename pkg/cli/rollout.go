package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"podium/pkg/cli/output"
	"podium/pkg/cli/rest"
)

// What the deployment controller writes on replica sets and deployments.
const (
	annotationRevision    = "deployment.kubernetes.io/revision"
	annotationChangeCause = "kubernetes.io/change-cause"
	annotationRestartedAt = "kubectl.kubernetes.io/restartedAt"
	labelTemplateHash     = "pod-template-hash"
	reasonDeadline        = "ProgressDeadlineExceeded"
)

// rolloutOptions are the flags of rollout's subcommands.
type rolloutOptions struct {
	*Factory
	selection
	Revision int64
	Watch    bool
	Timeout  time.Duration
	DryRun   string
}

func newRollout(f *Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rollout", Short: "Follow, undo, restart, pause and resume rollouts of deployments", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRolloutStatus(f, runRolloutStatus), newRolloutHistory(f, runRolloutHistory), newRolloutUndo(f, runRolloutUndo),
		newRolloutChange(f, "restart", "Replace all pods, a few at a time", runRolloutRestart),
		newRolloutChange(f, "pause", "Hold changes back until resume", runRolloutPause),
		newRolloutChange(f, "resume", "Go on after pause", runRolloutResume))
	return cmd
}

type runRollout = func(context.Context, *rolloutOptions) error

func rolloutCommand(f *Factory, use, short string, run runRollout) (*cobra.Command, *rolloutOptions) {
	o := &rolloutOptions{Factory: f}
	cmd := &cobra.Command{
		Use: use + " deployment/NAME", Short: short,
		ValidArgsFunction: f.completeNames("deployments", "deployment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Args = args
			return run(cmd.Context(), o)
		},
	}
	o.labelFlag(cmd)
	o.fileFlags(cmd, "the deployments")
	return cmd, o
}

func newRolloutStatus(f *Factory, run runRollout) *cobra.Command {
	cmd, o := rolloutCommand(f, "status", "Wait until a rollout is done", run)
	cmd.Flags().BoolVarP(&o.Watch, "watch", "w", true, "wait until it is done")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 0, "how long to wait; 0: as long as it takes")
	cmd.Flags().Int64Var(&o.Revision, "revision", 0, "fail when another revision takes over")
	return cmd
}

func newRolloutHistory(f *Factory, run runRollout) *cobra.Command {
	cmd, o := rolloutCommand(f, "history", "List the revisions", run)
	cmd.Flags().Int64Var(&o.Revision, "revision", 0, "show the pod template of this revision")
	return cmd
}

func newRolloutUndo(f *Factory, run runRollout) *cobra.Command {
	cmd, o := rolloutCommand(f, "undo", "Go back to the revision before, or to another", run)
	cmd.Flags().Int64Var(&o.Revision, "to-revision", 0, "go back to this one; 0: the one before")
	dryRunFlag(cmd, &o.DryRun)
	return cmd
}

func newRolloutChange(f *Factory, use, short string, run runRollout) *cobra.Command {
	cmd, _ := rolloutCommand(f, use, short, run)
	return cmd
}

// each runs do for every deployment that is meant.
func (o *rolloutOptions) each(ctx context.Context, do func(*rest.Cluster, target, *appsv1.Deployment) error) error {
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	targets, err := o.resolve(ctx, o.Factory, true)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range targets {
		if t.Kind.Group != "apps" || t.Kind.Kind != "Deployment" {
			errs = append(errs, fmt.Errorf("%s: rollouts are of deployments", t))
			continue
		}
		if len(o.Files) > 0 {
			if t.Object, err = c.Get(ctx, t.Kind, t.Namespace, t.Name); err != nil {
				return err
			}
		}
		d, err := toDeployment(t.Object)
		if err != nil {
			return err
		}
		errs = append(errs, do(c, t, d))
	}
	return errors.Join(errs...)
}

func toDeployment(obj *rest.Object) (*appsv1.Deployment, error) {
	d := &appsv1.Deployment{}
	return d, runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, d)
}

func runRolloutStatus(ctx context.Context, o *rolloutOptions) error {
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	return o.each(ctx, func(c *rest.Cluster, t target, _ *appsv1.Deployment) error {
		last := ""
		err := c.Follow(ctx, t.Kind, t.Namespace, t.Name, func(obj *rest.Object) error {
			if obj == nil {
				return fmt.Errorf("object has been deleted")
			}
			d, err := toDeployment(obj)
			if err != nil {
				return err
			}
			text, done, err := rolloutState(d, o.Revision)
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
		if errors.Is(err, context.DeadlineExceeded) {
			return errors.New("timed out waiting for the condition")
		}
		return err
	})
}

// rolloutState says how far a deployment is. An error means that it will not go on.
func rolloutState(d *appsv1.Deployment, revision int64) (text string, done bool, err error) {
	if revision > 0 {
		if have := revisionOf(&d.ObjectMeta); have != revision {
			return "", false, fmt.Errorf("desired revision (%d) is different from the running revision (%d)", revision, have)
		}
	}
	if d.Generation > d.Status.ObservedGeneration {
		return "Waiting for deployment spec update to be observed...", false, nil
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Reason == reasonDeadline {
			return "", false, fmt.Errorf("deployment %q exceeded its progress deadline", d.Name)
		}
	}
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	s := d.Status
	switch {
	case s.UpdatedReplicas < wanted:
		return fmt.Sprintf("Waiting for deployment %q rollout to finish: %d out of %d new replicas have been updated...", d.Name, s.UpdatedReplicas, wanted), false, nil
	case s.Replicas > s.UpdatedReplicas:
		return fmt.Sprintf("Waiting for deployment %q rollout to finish: %d old replicas are pending termination...", d.Name, s.Replicas-s.UpdatedReplicas), false, nil
	case s.AvailableReplicas < s.UpdatedReplicas:
		return fmt.Sprintf("Waiting for deployment %q rollout to finish: %d of %d updated replicas are available...", d.Name, s.AvailableReplicas, s.UpdatedReplicas), false, nil
	}
	return fmt.Sprintf("deployment %q successfully rolled out", d.Name), true, nil
}

func revisionOf(m *metav1.ObjectMeta) int64 {
	n, err := strconv.ParseInt(m.Annotations[annotationRevision], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// revisions are the replica sets of a deployment, the oldest revision first.
func revisions(ctx context.Context, c *rest.Cluster, d *appsv1.Deployment) ([]appsv1.ReplicaSet, error) {
	k, err := c.Find(ctx, "replicasets.apps")
	if err != nil {
		return nil, err
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil, err
	}
	list, err := c.List(ctx, k, d.Namespace, map[string][]string{"labelSelector": {selector.String()}})
	if err != nil {
		return nil, err
	}
	var out []appsv1.ReplicaSet
	for i := range list.Items {
		var rs appsv1.ReplicaSet
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &rs); err != nil {
			return nil, err
		}
		if metav1.IsControlledBy(&rs, d) {
			out = append(out, rs)
		}
	}
	slices.SortFunc(out, func(a, b appsv1.ReplicaSet) int {
		return cmp.Compare(revisionOf(&a.ObjectMeta), revisionOf(&b.ObjectMeta))
	})
	return out, nil
}

func runRolloutHistory(ctx context.Context, o *rolloutOptions) error {
	return o.each(ctx, func(c *rest.Cluster, t target, d *appsv1.Deployment) error {
		all, err := revisions(ctx, c, d)
		if err != nil {
			return err
		}
		if o.Revision > 0 {
			return o.showRevision(t, all)
		}
		fmt.Fprintln(o.Out, t)
		rows := [][]string{{"REVISION", "CHANGE-CAUSE"}}
		for _, rs := range all {
			cause := rs.Annotations[annotationChangeCause]
			if cause == "" {
				cause = "<none>"
			}
			rows = append(rows, []string{rs.Annotations[annotationRevision], cause})
		}
		return (&output.Columns{}).Write(o.Out, rows)
	})
}

func (o *rolloutOptions) showRevision(t target, all []appsv1.ReplicaSet) error {
	for i := range all {
		if revisionOf(&all[i].ObjectMeta) == o.Revision {
			text, err := yaml.Marshal(all[i].Spec.Template)
			if err != nil {
				return err
			}
			fmt.Fprintf(o.Out, "%s with revision #%d\nPod Template:\n", t, o.Revision)
			for line := range strings.Lines(string(text)) {
				fmt.Fprint(o.Out, "  ", line)
			}
			return nil
		}
	}
	return fmt.Errorf("unable to find the specified revision %d (see: podium rollout history %s)", o.Revision, t)
}

func runRolloutUndo(ctx context.Context, o *rolloutOptions) error {
	if err := checkDryRun(o.DryRun); err != nil {
		return err
	}
	return o.each(ctx, func(c *rest.Cluster, t target, d *appsv1.Deployment) error {
		if d.Spec.Paused {
			return fmt.Errorf("you cannot rollback a paused deployment; resume it first with 'podium rollout resume %s' and try again", t)
		}
		all, err := revisions(ctx, c, d)
		if err != nil {
			return err
		}
		to, err := rollbackTo(t, d, all, o.Revision)
		if err != nil {
			return err
		}
		template := to.Spec.Template.DeepCopy()
		delete(template.Labels, labelTemplateHash)
		if sameTemplate(template, &d.Spec.Template) {
			fmt.Fprintf(o.Out, "%s skipped rollback (current template already matches revision %d)\n", t, revisionOf(&to.ObjectMeta))
			return nil
		}
		if o.DryRun != "client" {
			patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/template", "value": template}})
			if err != nil {
				return err
			}
			if _, err := c.Patch(ctx, t.Kind, t.Namespace, t.Name, types.JSONPatchType, patch, rest.WriteQuery(o.DryRun == "server", manager)); err != nil {
				return err
			}
		}
		_, err = fmt.Fprintf(o.Out, "%s rolled back%s\n", t, dryRunNote(o.DryRun))
		return err
	})
}

// rollbackTo finds the replica set of a revision, or of the one before the present.
func rollbackTo(t target, d *appsv1.Deployment, all []appsv1.ReplicaSet, revision int64) (*appsv1.ReplicaSet, error) {
	if revision == 0 {
		present := revisionOf(&d.ObjectMeta)
		for i := len(all) - 1; i >= 0; i-- {
			if revisionOf(&all[i].ObjectMeta) != present {
				return &all[i], nil
			}
		}
		return nil, fmt.Errorf("no rollout history found for %s", t)
	}
	for i := range all {
		if revisionOf(&all[i].ObjectMeta) == revision {
			return &all[i], nil
		}
	}
	return nil, fmt.Errorf("unable to find specified revision %d in history (see: podium rollout history %s)", revision, t)
}

func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

func (o *rolloutOptions) patch(ctx context.Context, verb, patch string, skip func(*appsv1.Deployment) error) error {
	return o.each(ctx, func(c *rest.Cluster, t target, d *appsv1.Deployment) error {
		if err := skip(d); err != nil {
			return fmt.Errorf("%s %w", t, err)
		}
		if _, err := c.Patch(ctx, t.Kind, t.Namespace, t.Name, types.StrategicMergePatchType, []byte(patch), rest.WriteQuery(false, manager)); err != nil {
			return err
		}
		_, err := fmt.Fprintf(o.Out, "%s %s\n", t, verb)
		return err
	})
}

func runRolloutRestart(ctx context.Context, o *rolloutOptions) error {
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`, annotationRestartedAt, time.Now().Format(time.RFC3339))
	return o.patch(ctx, "restarted", patch, func(d *appsv1.Deployment) error {
		if d.Spec.Paused {
			return errors.New("can't be restarted while it is paused (run rollout resume first)")
		}
		return nil
	})
}

func runRolloutPause(ctx context.Context, o *rolloutOptions) error {
	return o.patch(ctx, "paused", `{"spec":{"paused":true}}`, func(d *appsv1.Deployment) error {
		if d.Spec.Paused {
			return errors.New("is already paused")
		}
		return nil
	})
}

func runRolloutResume(ctx context.Context, o *rolloutOptions) error {
	return o.patch(ctx, "resumed", `{"spec":{"paused":null}}`, func(d *appsv1.Deployment) error {
		if !d.Spec.Paused {
			return errors.New("is not paused")
		}
		return nil
	})
}
