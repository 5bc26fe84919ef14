package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/cli/output"
	"podium/pkg/cli/rest"
)

// eventsOptions are the flags of events.
type eventsOptions struct {
	*Factory
	For           string
	Types         []string
	AllNamespaces bool
	Watch         bool
	NoHeaders     bool
	printing
	ChunkSize int64
}

func newEvents(f *Factory, run func(context.Context, *eventsOptions) error) *cobra.Command {
	o := &eventsOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "events [--for TYPE/NAME]",
		Short: "List events",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.For, "for", "", "filter events to only those pertaining to the specified resource (pod/web-1)")
	fs.StringSliceVar(&o.Types, "types", nil, "output only events of the given types: Normal, Warning")
	fs.BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false, "select resources across all namespaces")
	fs.BoolVarP(&o.Watch, "watch", "w", false, "stream new entries as they arrive")
	fs.BoolVar(&o.NoHeaders, "no-headers", false, "do not print headers")
	chunkFlag(cmd, &o.ChunkSize)
	o.printingFlags(cmd, "", "")
	return cmd
}

func runEvents(ctx context.Context, o *eventsOptions) error {
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	k, err := c.Find(ctx, "events")
	if err != nil {
		return err
	}
	namespace, _, err := o.Namespace()
	if err != nil {
		return err
	}
	query := url.Values{}
	if o.For != "" {
		selector, err := o.about(ctx, c)
		if err != nil {
			return err
		}
		query.Set("fieldSelector", selector)
	}
	if o.AllNamespaces {
		namespace = ""
	}
	query.Set("limit", strconv.FormatInt(o.ChunkSize, 10))
	list, err := c.List(ctx, k, namespace, query)
	if err != nil {
		return err
	}
	list.Items = slices.DeleteFunc(list.Items, func(e rest.Object) bool { return !o.wants(&e) })
	found, err := toEvents(list.Items)
	if err != nil {
		return err
	}
	query.Del("limit")
	query.Set("resourceVersion", list.GetResourceVersion())
	if o.format() != "" {
		if !o.Watch {
			return o.printObjects(list.Items)
		}
		return o.watchObjects(ctx, c, k.Path(namespace, ""), query, list.Items)
	}
	view := &eventView{o: o}
	if len(found) == 0 && !o.Watch {
		if namespace == "" {
			fmt.Fprintln(o.Err, "No events found.")
		} else {
			fmt.Fprintf(o.Err, "No events found in %s namespace.\n", namespace)
		}
		return nil
	}
	if err := view.print(found, !o.NoHeaders); err != nil || !o.Watch {
		return err
	}
	return o.watch(ctx, c, k.Path(namespace, ""), query, func(obj *rest.Object) error {
		more, err := toEvents([]rest.Object{*obj})
		if err != nil {
			return err
		}
		return view.print(more, false)
	})
}

// watch calls show with every wanted event that is created or changes after the query's
// revision. The server deletes events when they are old, which is no news.
func (o *eventsOptions) watch(ctx context.Context, c *rest.Cluster, path string, query url.Values, show func(*rest.Object) error) error {
	return c.Watch(ctx, path, query, "", func(e rest.Event) error {
		obj := &rest.Object{}
		if err := obj.UnmarshalJSON(e.Object); err != nil || e.Type == "DELETED" || !o.wants(obj) {
			return err
		}
		return show(obj)
	})
}

// watchObjects prints items, then later events, each as an object of its own in the format
// of -o.
func (o *eventsOptions) watchObjects(ctx context.Context, c *rest.Cluster, path string, query url.Values, items []rest.Object) error {
	p, err := o.printer()
	if err != nil {
		return err
	}
	for i := range items {
		if err := p.Print(o.Out, &items[i]); err != nil {
			return err
		}
	}
	return o.watch(ctx, c, path, query, func(obj *rest.Object) error { return p.Print(o.Out, obj) })
}

// printer returns the printer for the format of -o.
func (o *eventsOptions) printer() (output.Printer, error) {
	format := o.options()
	format.NoHeaders = o.NoHeaders
	return output.New(format)
}

// about returns the field selector for the events of the object in --for.
func (o *eventsOptions) about(ctx context.Context, c *rest.Cluster) (string, error) {
	word, name, ok := strings.Cut(o.For, "/")
	if !ok || name == "" {
		return "", fmt.Errorf("--for must be in resource/name form, not %q", o.For)
	}
	k, err := c.Find(ctx, word)
	if err != nil {
		return "", err
	}
	return fields.AndSelectors(
		fields.OneTermEqualSelector("involvedObject.kind", k.Kind),
		fields.OneTermEqualSelector("involvedObject.name", name),
	).String(), nil
}

func (o *eventsOptions) wants(e *rest.Object) bool {
	have, _ := e.Object["type"].(string)
	return len(o.Types) == 0 || slices.ContainsFunc(o.Types, func(t string) bool { return strings.EqualFold(t, have) })
}

func (o *eventsOptions) printObjects(items []rest.Object) error {
	p, err := o.printer()
	if err != nil {
		return err
	}
	all := make([]*rest.Object, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return p.Print(o.Out, listOf(all))
}

// toEvents decodes events and sorts them by the time of their last occurrence,
// in seconds: some times have no higher precision. Events within a second are
// sorted by name, which ends in the time if they are about the same object.
func toEvents(items []rest.Object) ([]corev1.Event, error) {
	var out []corev1.Event
	for i := range items {
		var e corev1.Event
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(items[i].Object, &e); err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b corev1.Event) int {
		return cmp.Or(lastSeen(&a).Truncate(time.Second).Compare(lastSeen(&b).Truncate(time.Second)), strings.Compare(a.Name, b.Name))
	})
	return out, nil
}

// lastSeen returns the time of an event's last occurrence.
func lastSeen(e *corev1.Event) metav1.Time {
	switch {
	case e.Series != nil:
		return metav1.Time{Time: e.Series.LastObservedTime.Time}
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp
	case !e.EventTime.IsZero():
		return metav1.Time{Time: e.EventTime.Time}
	}
	return e.CreationTimestamp
}

// howOften formats an event's age, count and the age of the first occurrence.
func howOften(e *corev1.Event, now time.Time) string {
	last := age(lastSeen(e), now)
	first := e.FirstTimestamp
	if first.IsZero() {
		first = metav1.Time{Time: e.EventTime.Time}
	}
	count := e.Count
	if e.Series != nil {
		count = e.Series.Count
	}
	if count > 1 {
		return fmt.Sprintf("%s (x%d over %s)", last, count, age(first, now))
	}
	return last
}

// eventView prints events with the column widths of the earlier ones.
type eventView struct {
	o       *eventsOptions
	columns output.Columns
}

func (v *eventView) print(found []corev1.Event, headers bool) error {
	var rows [][]string
	add := func(namespace string, row ...string) {
		if v.o.AllNamespaces {
			row = append([]string{namespace}, row...)
		}
		rows = append(rows, row)
	}
	if headers {
		add("NAMESPACE", "LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")
	}
	now := time.Now()
	for i := range found {
		e := &found[i]
		add(cellText(e.Namespace), howOften(e, now), cellText(e.Type), cellText(e.Reason),
			cellText(e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name), cellText(strings.TrimSpace(e.Message)))
	}
	return v.columns.Write(v.o.Out, rows)
}
