package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/cli/rest"
)

// deleteOptions are the flags of delete.
type deleteOptions struct {
	*Factory
	selection
	Cascade        string
	GracePeriod    int64
	Force          bool
	Now            bool
	Wait           bool
	Timeout        time.Duration
	IgnoreNotFound bool
	DryRun         string
	Format         string
	Interactive    bool
	Raw            string
}

func newDelete(f *Factory, run func(context.Context, *deleteOptions) error) *cobra.Command {
	o := &deleteOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "delete TYPE NAME... | TYPE/NAME... | TYPE -l SELECTOR | TYPE --all | -f FILE",
		Short: "Delete resources by file names, standard input, resources and names, or by resources and label selector",
		Example: `  podium delete pod web-1
  podium delete deployment/web service/web
  podium delete pods -l app=web
  podium delete -f app.yaml`,
		ValidArgsFunction: f.completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("ignore-not-found") { // what was listed may be gone already: it was asked for
				o.IgnoreNotFound = o.All || o.Labels != "" || o.Fields != ""
			}
			return on(&o.selection, o, run)(cmd, args)
		},
	}
	fs := cmd.Flags()
	o.fileFlags(cmd, "the objects to delete")
	o.listFlags(cmd)
	dryRunFlag(cmd, &o.DryRun)
	o.deletionFlags(cmd)
	o.waitFlag(cmd, true)
	fs.BoolVar(&o.Now, "now", false, "signal resources for immediate shutdown (same as --grace-period=1)")
	fs.BoolVar(&o.IgnoreNotFound, "ignore-not-found", false, "treat \"resource not found\" as success; the default with --all, -l and --field-selector")
	fs.StringVarP(&o.Format, "output", "o", "", "print names only: name")
	fs.BoolVarP(&o.Interactive, "interactive", "i", false, "delete resources only when the user confirms")
	fs.StringVar(&o.Raw, "raw", "", "raw URI to DELETE from the server")
	return cmd
}

// deletionFlags adds the flags that say how objects are deleted.
func (o *deleteOptions) deletionFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	cascadeFlags(cmd, &o.Cascade, &o.GracePeriod)
	fs.BoolVar(&o.Force, "force", false, "with --grace-period=0: delete immediately and bypass graceful deletion")
	fs.DurationVar(&o.Timeout, "timeout", 0, "length of time to wait for deleted resources before giving up; 0: no limit")
}

func cascadeFlags(cmd *cobra.Command, cascade *string, grace *int64) {
	fs := cmd.Flags()
	fs.StringVar(cascade, "cascade", "background", "deletion strategy for dependents: background, foreground, or orphan")
	fs.Lookup("cascade").NoOptDefVal = "background"
	fs.Int64Var(grace, "grace-period", -1, "period of time in seconds given to each pod to terminate gracefully; -1: the pod's own value")
}

func (o *deleteOptions) waitFlag(cmd *cobra.Command, byDefault bool) {
	cmd.Flags().BoolVar(&o.Wait, "wait", byDefault, "wait until the deleted resources are gone, finalizers included")
}

// options reports errors in the flags and returns the resulting DeleteOptions.
func (o *deleteOptions) options() (metav1.DeleteOptions, error) {
	var out metav1.DeleteOptions
	if o.Format != "" && o.Format != "name" {
		return out, fmt.Errorf("-o %q: only name is possible here", o.Format)
	}
	grace := o.GracePeriod
	switch {
	case o.Now && grace >= 0:
		return out, errors.New("--now and --grace-period cannot be specified together")
	case o.Now:
		grace = 1
	case o.Force && grace < 0:
		grace = 0
	case o.Force && grace > 0:
		return out, errors.New("--force and --grace-period greater than 0 cannot be specified together")
	case grace == 0 && !o.Force:
		grace = 1 // zero would not wait for the node; that takes --force
	}
	if grace >= 0 {
		out.GracePeriodSeconds = &grace
	}
	policy, err := propagation(o.Cascade)
	if err != nil {
		return out, err
	}
	out.PropagationPolicy = &policy
	if o.DryRun == "server" {
		out.DryRun = []string{metav1.DryRunAll}
	}
	return out, nil
}

func propagation(cascade string) (metav1.DeletionPropagation, error) {
	switch cascade {
	case "background", "true":
		return metav1.DeletePropagationBackground, nil
	case "foreground":
		return metav1.DeletePropagationForeground, nil
	case "orphan", "false":
		return metav1.DeletePropagationOrphan, nil
	}
	return "", fmt.Errorf("invalid cascade value (%s). Must be \"background\", \"foreground\", or \"orphan\"", cascade)
}

func runDelete(ctx context.Context, o *deleteOptions) error {
	if err := checkDryRun(o.DryRun); err != nil {
		return err
	}
	opts, err := o.options()
	if err != nil {
		return err
	}
	if o.Raw != "" {
		return o.sendRaw(ctx, http.MethodDelete, o.Raw, nil)
	}
	targets, unresolved := o.resolve(ctx, o.Factory, false)
	if len(targets) == 0 {
		if unresolved == nil {
			fmt.Fprintln(o.Err, "No resources found")
		}
		return unresolved
	}
	if o.Interactive && o.DryRun == "none" && !o.confirm(targets) {
		fmt.Fprintln(o.Out, "deletion is cancelled")
		return nil
	}
	if o.Force && opts.GracePeriodSeconds != nil && *opts.GracePeriodSeconds == 0 {
		fmt.Fprintln(o.Err, "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. The resource may continue to run on the cluster indefinitely.")
	}
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	errs := []error{unresolved}
	var pending []ending
	for _, t := range targets {
		uid, err := o.delete(ctx, c, t, opts)
		if err != nil {
			if !(o.IgnoreNotFound && notFound(err)) {
				errs = append(errs, inSource(t.Source, err))
			}
			continue
		}
		pending = append(pending, ending{t, uid})
	}
	if o.Wait && o.DryRun == "none" {
		errs = append(errs, o.await(ctx, c, pending))
	}
	return errors.Join(errs...)
}

// confirm asks the user whether to delete the objects.
func (o *deleteOptions) confirm(targets []target) bool {
	fmt.Fprintln(o.Out, "You are about to delete the following", len(targets), "resource(s):")
	for _, t := range targets {
		fmt.Fprintln(o.Out, t)
	}
	fmt.Fprint(o.Out, "Do you want to continue? (y/N): ")
	answer, _ := bufio.NewReader(o.In).ReadString('\n')
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
}

// ending is an object whose deletion was requested. uid distinguishes it from a
// later object of the same name; it is "" if the object is gone already.
type ending struct {
	target
	uid string
}

// delete requests the deletion of one object and reports it. uid is "" with
// --dry-run=client.
func (o *deleteOptions) delete(ctx context.Context, c *rest.Cluster, t target, opts metav1.DeleteOptions) (uid string, err error) {
	verb := "deleted"
	if o.Force {
		verb = "force deleted"
	}
	if o.DryRun != "client" {
		answer, err := c.Delete(ctx, t.Kind, t.Namespace, t.Name, opts)
		if err != nil {
			return "", err
		}
		uid = uidIn(answer)
	}
	if o.Format == "name" {
		_, err = fmt.Fprintln(o.Out, t)
		return uid, err
	}
	_, err = fmt.Fprintf(o.Out, "%s \"%s\" %s%s%s\n", t.Kind, t.Name, verb, from(t), dryRunNote(o.DryRun))
	return uid, err
}

func from(t target) string {
	if t.Namespace == "" {
		return ""
	}
	return " from " + t.Namespace + " namespace"
}

// uidIn returns the UID in the response to a delete request: the object, or a
// Status about it.
func uidIn(answer *rest.Object) string {
	if answer.GetKind() != "Status" {
		return string(answer.GetUID())
	}
	details, _ := answer.Object["details"].(map[string]any)
	uid, _ := details["uid"].(string)
	return uid
}

// await waits until the objects are gone or replaced by others of the same
// name. It does not wait for objects that the user may not watch, or that have no watch.
func (o *deleteOptions) await(ctx context.Context, c *rest.Cluster, pending []ending) error {
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	var errs []error
	for _, e := range pending {
		err := e.await(ctx, c)
		if apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) {
			continue
		}
		if apierrors.IsNotFound(err) {
			continue // its kind is gone, and with it the object
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// await waits until one object is gone.
func (e *ending) await(ctx context.Context, c *rest.Cluster) error {
	var last *rest.Object
	err := c.Follow(ctx, e.Kind, e.Namespace, e.Name, func(obj *rest.Object) error {
		if obj == nil || (e.uid != "" && string(obj.GetUID()) != e.uid) {
			return rest.ErrStop
		}
		last = obj
		return nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("timed out waiting for %s to be deleted%s", e, holding(last))
	}
	return err
}

// holding describes the finalizers that block an object's deletion; "" if there
// are none.
func holding(obj *rest.Object) string {
	if obj == nil || len(obj.GetFinalizers()) == 0 {
		return ""
	}
	return fmt.Sprintf(": it has the finalizers %q, each of which its controller must remove", obj.GetFinalizers())
}
