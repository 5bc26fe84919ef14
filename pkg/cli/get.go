package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"podium/pkg/cli/jsonpath"
	"podium/pkg/cli/output"
	"podium/pkg/cli/rest"
)

// getOptions are the flags of get.
type getOptions struct {
	*Factory
	selection
	printing
	Watch          bool
	WatchOnly      bool
	WatchEvents    bool
	NoHeaders      bool
	ShowLabels     bool
	LabelColumns   []string
	ShowKind       bool
	SortBy         string
	IgnoreNotFound bool
	Raw            string
	Subresource    string
	ChunkSize      int64
	ServerPrint    bool
}

func newGet(f *Factory, run func(context.Context, *getOptions) error) *cobra.Command {
	o := &getOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "get TYPE[,TYPE...] [NAME...] | TYPE/NAME... | -f FILE",
		Short: "Display one or many resources",
		Example: `  podium get pods -o wide
  podium get deployment/web -o yaml
  podium get pods -l app=web -w
  podium get nodes -o custom-columns=NAME:.metadata.name,CPU:.status.capacity.cpu`,
		ValidArgsFunction: f.completeResources,
		RunE:              on(&o.selection, o, run),
	}
	fs := cmd.Flags()
	o.printingFlags(cmd, "wide, ", "")
	fs.BoolVarP(&o.Watch, "watch", "w", false, "after listing the requested objects, watch for changes")
	fs.BoolVar(&o.WatchOnly, "watch-only", false, "watch for changes to the requested objects, without listing first")
	fs.BoolVar(&o.WatchEvents, "output-watch-events", false, "output watch event objects when --watch or --watch-only is used")
	fs.BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false, "list the requested objects across all namespaces")
	fs.StringVar(&o.Fields, "field-selector", "", "selector (field query) to filter on (metadata.name=a,status.phase!=Running)")
	fs.BoolVar(&o.NoHeaders, "no-headers", false, "do not print headers")
	fs.BoolVar(&o.ShowLabels, "show-labels", false, "show all labels as the last column")
	fs.StringSliceVarP(&o.LabelColumns, "label-columns", "L", nil, "labels to present as columns")
	fs.BoolVar(&o.ShowKind, "show-kind", false, "list the resource type with each object")
	fs.StringVar(&o.SortBy, "sort-by", "", "sort by this field, a JSONPath expression (.metadata.creationTimestamp)")
	fs.BoolVar(&o.ServerPrint, "server-print", true, "print the columns that the server returns; if false, names and ages")
	fs.BoolVar(&o.IgnoreNotFound, "ignore-not-found", false, "treat \"resource not found\" as success")
	fs.StringVar(&o.Subresource, "subresource", "", "get this subresource of the named objects: status, scale, resize")
	chunkFlag(cmd, &o.ChunkSize)
	fs.StringVar(&o.Raw, "raw", "", "raw URI to request from the server")
	o.labelFlag(cmd)
	o.fileFlags(cmd, "the objects to show")
	f.completeFlag(cmd, "output", "wide", "json", "yaml", "kyaml", "name", "jsonpath=", "go-template=", "custom-columns=")
	return cmd
}

func runGet(ctx context.Context, o *getOptions) error {
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	if o.Raw != "" {
		return o.sendRaw(ctx, http.MethodGet, o.Raw, nil)
	}
	groups, namespace, unresolved := o.groups(ctx, c)
	if unresolved != nil && len(groups) == 0 {
		return unresolved
	}
	if (o.Watch || o.WatchOnly) && len(groups) != 1 {
		return errors.New("you may only specify a single resource type to watch")
	}
	if o.Subresource != "" && slices.ContainsFunc(groups, func(g named) bool { return len(g.Names) == 0 }) {
		return errors.New("subresources cannot be used when bulk resources are specified")
	}
	if format := o.format(); format == "" || format == "wide" {
		return errors.Join(unresolved, o.tables(ctx, c, groups, namespace))
	}
	opts := o.options()
	opts.NoHeaders = o.NoHeaders
	p, err := output.New(opts)
	if err != nil {
		return err
	}
	return errors.Join(unresolved, o.objects(ctx, c, groups, namespace, p))
}

// parts returns the subresource as the end of a path.
func (o *getOptions) parts() []string {
	if o.Subresource == "" {
		return nil
	}
	return []string{o.Subresource}
}

// chunkFlag declares --chunk-size.
func chunkFlag(cmd *cobra.Command, into *int64) {
	cmd.Flags().Int64Var(into, "chunk-size", 500, "return large lists in chunks rather than all at once; 0: all at once")
}

// listQuery returns the query of a list, in pages of --chunk-size.
func (o *getOptions) listQuery() url.Values {
	q := o.query()
	q.Set("limit", strconv.FormatInt(o.ChunkSize, 10))
	return q
}

// groups returns the selected types and names, from arguments or files, and the
// namespace. With an error about some objects of files it also returns the others.
func (o *getOptions) groups(ctx context.Context, c *rest.Cluster) ([]named, string, error) {
	namespace, explicit, err := o.Namespace()
	if err != nil {
		return nil, "", err
	}
	if o.given() {
		targets, err := o.fromFiles(ctx, o.Factory, c, namespace, explicit)
		var out []named
		for _, t := range targets {
			if t.Kind.Namespaced {
				namespace = t.Namespace
			}
			out = append(out, named{t.Kind, []string{t.Name}})
		}
		return out, namespace, err
	}
	if o.AllNamespaces {
		namespace = ""
	}
	groups, err := o.parse(ctx, c)
	for _, g := range groups {
		if len(g.Names) > 0 && (o.Labels != "" || o.Fields != "") {
			return nil, "", errors.New("name cannot be provided when a selector is specified")
		}
		if len(g.Names) > 0 && o.AllNamespaces && g.Kind.Namespaced {
			return nil, "", errors.New("a resource cannot be retrieved by name across all namespaces")
		}
	}
	return groups, namespace, err
}

// objects prints whole objects: one as it is, several as a List. It prints what it
// can read, and returns the errors about the rest.
func (o *getOptions) objects(ctx context.Context, c *rest.Cluster, groups []named, namespace string, p output.Printer) error {
	var items []*rest.Object
	var errs []error
	single := len(groups) == 1 && len(groups[0].Names) == 1
	revision := ""
	for _, g := range groups {
		where := scope(g.Kind, namespace)
		if len(g.Names) == 0 {
			list, err := c.List(ctx, g.Kind, where, o.listQuery())
			if err != nil {
				errs = append(errs, err)
				continue
			}
			revision = list.GetResourceVersion()
			for i := range list.Items {
				items = append(items, &list.Items[i])
			}
			continue
		}
		for _, name := range g.Names {
			obj, err := c.Get(ctx, g.Kind, where, name, o.parts()...)
			if err != nil {
				if !(o.IgnoreNotFound && notFound(err)) {
					errs = append(errs, err)
				}
				continue
			}
			revision = obj.GetResourceVersion()
			items = append(items, obj)
		}
	}
	if err := sortObjects(items, o.SortBy); err != nil {
		return err
	}
	if o.Watch || o.WatchOnly {
		if err := errors.Join(errs...); err != nil {
			return err
		}
		return o.watchObjects(ctx, c, groups[0], namespace, revision, items, p)
	}
	switch {
	case single && len(items) == 1:
		errs = append(errs, p.Print(o.Out, items[0]))
	case !single:
		errs = append(errs, p.Print(o.Out, listOf(items)))
	}
	return errors.Join(errs...)
}

func listOf(items []*rest.Object) *unstructured.Unstructured {
	list := make([]any, len(items))
	for i, item := range items {
		list[i] = item.Object
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": list,
	}}
}

// watchObjects prints items, then every change after revision, as whole
// objects.
func (o *getOptions) watchObjects(ctx context.Context, c *rest.Cluster, g named, namespace, revision string, items []*rest.Object, p output.Printer) error {
	if !o.WatchOnly {
		for _, item := range items {
			if err := o.printEvent(p, "ADDED", item); err != nil {
				return err
			}
		}
	}
	q, err := o.watchQuery(g, revision)
	if err != nil {
		return err
	}
	return c.Watch(ctx, g.Kind.Path(scope(g.Kind, namespace), ""), q, "", func(e rest.Event) error {
		obj := &rest.Object{}
		if err := obj.UnmarshalJSON(e.Object); err != nil {
			return err
		}
		return o.printEvent(p, e.Type, obj)
	})
}

func (o *getOptions) printEvent(p output.Printer, kind string, obj *rest.Object) error {
	if !o.WatchEvents {
		return p.Print(o.Out, obj)
	}
	return p.Print(o.Out, &unstructured.Unstructured{Object: map[string]any{"type": kind, "object": obj.Object}})
}

// sortObjects sorts by the value at a path; objects without it come first.
func sortObjects(items []*rest.Object, path string) error {
	if path == "" {
		return nil
	}
	t, err := jsonpath.ParsePath(path)
	if err != nil {
		return fmt.Errorf("--sort-by: %w", err)
	}
	return sortBy(items, func(o *rest.Object) (any, error) { return firstOf(t, o.Object) })
}

func firstOf(t *jsonpath.Template, value any) (any, error) {
	found, err := t.Find(value, true)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}
