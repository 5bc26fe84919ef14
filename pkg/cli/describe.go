package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/cli/describe"
	"podium/pkg/cli/rest"
)

// describeOptions are the flags of describe.
type describeOptions struct {
	*Factory
	selection
	ShowEvents bool
	Now        func() time.Time
}

func newDescribe(f *Factory, run func(context.Context, *describeOptions) error) *cobra.Command {
	o := &describeOptions{Factory: f, Now: time.Now}
	cmd := &cobra.Command{
		Use:               "describe TYPE [NAME...] | TYPE/NAME... | -f FILE",
		Short:             "Show details of a specific resource or group of resources",
		Example:           "  podium describe pod web-1\n  podium describe nodes",
		ValidArgsFunction: f.completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Args = args
			o.All = len(args) == 1 && !strings.Contains(args[0], "/") && o.Labels == ""
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.ShowEvents, "show-events", true, "display events related to the described object")
	cmd.Flags().BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false, "select resources across all namespaces")
	o.labelFlag(cmd)
	o.fileFlags(cmd, "the objects")
	return cmd
}

func runDescribe(ctx context.Context, o *describeOptions) error {
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	targets, err := o.describable(ctx, c)
	if len(targets) == 0 {
		if err == nil {
			fmt.Fprintln(o.Err, "No resources found")
		}
		return err
	}
	errs := []error{err}
	for i, t := range targets {
		if i > 0 {
			fmt.Fprint(o.Out, "\n\n")
		}
		s, err := o.subject(ctx, c, t)
		if err == nil {
			err = describe.Write(o.Out, s)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// describable resolves the arguments. A name that does not exist may be a
// prefix of names that do, as with kubectl.
func (o *describeOptions) describable(ctx context.Context, c *rest.Cluster) ([]target, error) {
	targets, err := o.resolve(ctx, o.Factory, true)
	if o.given() {
		return liveObjects(ctx, c, targets, err)
	}
	if !notFound(err) || len(o.Args) != 2 {
		return targets, err
	}
	whole := o.selection
	whole.Args, whole.All = o.Args[:1], true
	all, listErr := whole.resolve(ctx, o.Factory, true)
	if listErr != nil {
		return targets, err
	}
	var found []target
	for _, t := range all {
		if strings.HasPrefix(t.Name, o.Args[1]) {
			found = append(found, t)
		}
	}
	if len(found) == 0 {
		return targets, err
	}
	return found, nil
}

// liveObjects reads the objects that the server has for targets. With an error
// about some of them, or err about others, it also returns the rest.
func liveObjects(ctx context.Context, c *rest.Cluster, targets []target, err error) ([]target, error) {
	errs := []error{err}
	var out []target
	for _, t := range targets {
		if t.Object, err = c.Get(ctx, t.Kind, t.Namespace, t.Name); err != nil {
			errs = append(errs, inSource(t.Source, err))
			continue
		}
		out = append(out, t)
	}
	return out, errors.Join(errs...)
}

// subject fetches the related objects that a description needs.
func (o *describeOptions) subject(ctx context.Context, c *rest.Cluster, t target) (describe.Subject, error) {
	s := describe.Subject{Object: t.Object, Now: o.Now()}
	if o.ShowEvents {
		s.Events, _ = eventsOf(ctx, c, t) // a description without them is better than none
	}
	var err error
	s.Related, err = relatedTo(ctx, c, t)
	return s, err
}

// relatedTo fetches the related objects that a description needs.
func relatedTo(ctx context.Context, c *rest.Cluster, t target) (r describe.Related, err error) {
	needs := describe.Wants(t.Kind.Group, t.Kind.Kind)
	if needs.Pods {
		r.Pods, err = related[corev1.Pod](ctx, c, "pods", t, podQuery(t))
		if t.Kind.Kind == "Node" && apierrors.IsForbidden(err) {
			err = nil // the description says that they are not known
		}
		if err != nil {
			return r, err
		}
	}
	if needs.Slices {
		q := url.Values{"labelSelector": {discoveryv1.LabelServiceName + "=" + t.Name}}
		if needs.Services {
			q = nil // the backends are several
		}
		if r.Slices, err = related[discoveryv1.EndpointSlice](ctx, c, "endpointslices.discovery.k8s.io", t, q); err != nil {
			return r, err
		}
	}
	if needs.Services {
		if r.Services, err = related[corev1.Service](ctx, c, "services", t, nil); err != nil {
			return r, err
		}
	}
	if needs.ReplicaSets {
		var d appsv1.Deployment
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(t.Object.Object, &d); err != nil {
			return r, err
		}
		r.ReplicaSets, err = replicaSets(ctx, c, &d)
	}
	return r, err
}

// podQuery selects the pods of a node or of a claim's namespace, or those that an
// object's selector selects.
func podQuery(t target) url.Values {
	switch t.Kind.Kind {
	case "Node":
		return url.Values{"fieldSelector": {"spec.nodeName=" + t.Name}}
	case "PersistentVolumeClaim":
		return nil
	}
	selector, err := selectorOf(t.Object)
	if err != nil {
		return url.Values{"fieldSelector": {"metadata.name="}}
	}
	return url.Values{"labelSelector": {selector}}
}

// related lists the objects of a kind in t's namespace that the query selects;
// never nil without an error.
func related[T any](ctx context.Context, c *rest.Cluster, word string, t target, q url.Values) ([]T, error) {
	k, err := c.Find(ctx, word)
	if err != nil {
		return nil, err
	}
	list, err := c.List(ctx, k, t.Namespace, q)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(list.Items))
	for i := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// eventsOf returns an object's events; never nil without an error, nil with one.
func eventsOf(ctx context.Context, c *rest.Cluster, t target) ([]corev1.Event, error) {
	k, err := c.Find(ctx, "events")
	if err != nil {
		return nil, err
	}
	terms := []fields.Selector{
		fields.OneTermEqualSelector("involvedObject.kind", t.Kind.Kind),
		fields.OneTermEqualSelector("involvedObject.name", t.Name),
	}
	uid := string(t.Object.GetUID())
	if static := t.Object.GetAnnotations()[corev1.MirrorPodAnnotationKey]; static != "" && t.Kind.Kind == "Pod" {
		uid = static // a kubelet's events are about the static pod
	}
	if uid != "" && t.Kind.Kind != "Node" { // kubelets use the node's name as the UID
		terms = append(terms, fields.OneTermEqualSelector("involvedObject.uid", uid))
	}
	list, err := c.List(ctx, k, t.Namespace, url.Values{"fieldSelector": {fields.AndSelectors(terms...).String()}})
	if err != nil {
		return nil, err
	}
	out, err := toEvents(list.Items)
	if out == nil && err == nil {
		out = []corev1.Event{}
	}
	return out, err
}
