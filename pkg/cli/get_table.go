package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"podium/pkg/cli/jsonpath"
	"podium/pkg/cli/output"
	"podium/pkg/cli/rest"
)

// acceptTable requests a Table; a server that has none for a kind returns the
// objects.
const acceptTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// tables prints one table for each type, with the server's columns. It prints what it
// can read, and returns the errors about the rest.
func (o *getOptions) tables(ctx context.Context, c *rest.Cluster, groups []named, namespace string) error {
	several := len(groups) > 1
	printed := 0
	var errs []error
	var last *metav1.Table
	view := &tableView{getOptions: o}
	for _, g := range merge(groups) {
		view = &tableView{getOptions: o, kind: g.Kind, showKind: o.ShowKind || several, showNamespace: o.AllNamespaces && g.Kind.Namespaced}
		table, err := o.table(ctx, c, g, namespace)
		errs = append(errs, err)
		last = table
		if o.WatchOnly || len(table.Rows) == 0 {
			continue
		}
		if err := o.sortRows(table); err != nil {
			return err
		}
		if printed > 0 {
			fmt.Fprintln(o.Out)
		}
		printed++
		if err := view.print(table, !o.NoHeaders, "ADDED"); err != nil {
			return err
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if o.Watch || o.WatchOnly {
		return o.watchTable(ctx, c, groups[0], namespace, last, view, printed > 0)
	}
	if printed == 0 && !o.IgnoreNotFound {
		if namespace == "" || !slices.ContainsFunc(groups, func(g named) bool { return g.Kind.Namespaced }) {
			fmt.Fprintln(o.Err, "No resources found")
		} else {
			fmt.Fprintf(o.Err, "No resources found in %s namespace.\n", namespace)
		}
	}
	return nil
}

// merge combines names of one type: "pod/a pod/b" is one table.
func merge(groups []named) []named {
	var out []named
	for _, g := range groups {
		i := slices.IndexFunc(out, func(have named) bool { return have.Kind == g.Kind && len(have.Names) > 0 && len(g.Names) > 0 })
		if i >= 0 {
			out[i].Names = append(out[i].Names, g.Names...)
			continue
		}
		out = append(out, g)
	}
	return out
}

// table reads all rows of a group. It returns the rows that it can read together
// with the errors about the others.
func (o *getOptions) table(ctx context.Context, c *rest.Cluster, g named, namespace string) (*metav1.Table, error) {
	where := scope(g.Kind, namespace)
	if len(g.Names) == 0 {
		return o.listTable(ctx, c, g.Kind, where)
	}
	out := &metav1.Table{}
	var errs []error
	for _, name := range g.Names {
		t, err := o.readTable(ctx, c, g.Kind, g.Kind.Path(where, name, o.parts()...), o.tableQuery(url.Values{}))
		switch {
		case notFound(err) && o.IgnoreNotFound:
		case err != nil:
			errs = append(errs, err)
		default:
			out.ColumnDefinitions, out.ResourceVersion = t.ColumnDefinitions, t.ResourceVersion
			out.Rows = append(out.Rows, t.Rows...)
		}
	}
	return out, errors.Join(errs...)
}

// listTable reads all rows of a kind, in pages unless a watch follows.
func (o *getOptions) listTable(ctx context.Context, c *rest.Cluster, k *rest.Kind, namespace string) (*metav1.Table, error) {
	q := o.tableQuery(o.query())
	if !o.Watch && !o.WatchOnly { // a watch starts at the revision of an unpaged list
		q.Set("limit", strconv.FormatInt(o.ChunkSize, 10))
	}
	var out *metav1.Table
	for {
		page, err := o.readTable(ctx, c, k, k.Path(namespace, ""), q)
		if err != nil {
			return &metav1.Table{}, err
		}
		if out == nil {
			out = page
		} else {
			out.Rows = append(out.Rows, page.Rows...)
		}
		if page.Continue == "" {
			return out, nil
		}
		q.Set("continue", page.Continue)
	}
}

func (o *getOptions) tableQuery(q url.Values) url.Values {
	if o.SortBy != "" {
		q.Set("includeObject", string(metav1.IncludeObject))
	}
	return q
}

// accept returns the media types of tables: objects only, without --server-print.
func (o *getOptions) accept() string {
	if !o.ServerPrint {
		return "application/json"
	}
	return acceptTable
}

func (o *getOptions) readTable(ctx context.Context, c *rest.Cluster, k *rest.Kind, path string, q url.Values) (*metav1.Table, error) {
	var raw json.RawMessage
	if err := c.GetAs(ctx, path, q, o.accept(), &raw); err != nil {
		return nil, err
	}
	return toTable(raw, k)
}

// toTable decodes a Table, or makes one with name and age from an object or a
// list.
func toTable(raw []byte, k *rest.Kind) (*metav1.Table, error) {
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil {
		return nil, fmt.Errorf("read the server's table: %w", err)
	}
	if table.Kind == "Table" {
		return &table, nil
	}
	obj := &rest.Object{}
	if err := obj.UnmarshalJSON(raw); err != nil {
		return nil, err
	}
	table = metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{{Name: "Name", Type: "string"}, {Name: "Age", Type: "string"}}}
	items := []rest.Object{*obj}
	if obj.IsList() {
		list, err := obj.ToList()
		if err != nil {
			return nil, err
		}
		items, table.Continue = list.Items, list.GetContinue()
	}
	table.ResourceVersion = obj.GetResourceVersion()
	for i := range items {
		items[i].SetGroupVersionKind(k.GroupVersionKind)
		data, err := items[i].MarshalJSON()
		if err != nil {
			return nil, err
		}
		row := metav1.TableRow{Cells: []any{items[i].GetName(), age(items[i].GetCreationTimestamp(), time.Now())}}
		row.Object.Raw = data
		table.Rows = append(table.Rows, row)
	}
	return &table, nil
}

// tableView prints tables of one kind, with the columns that flags add.
type tableView struct {
	*getOptions
	kind          *rest.Kind
	showKind      bool
	showNamespace bool
	defs          []metav1.TableColumnDefinition
	columns       output.Columns
}

// print prints a table's rows; event is the type of a watch event, or "".
func (v *tableView) print(t *metav1.Table, headers bool, event string) error {
	if len(t.ColumnDefinitions) > 0 {
		v.defs = t.ColumnDefinitions
	}
	var rows [][]string
	if headers {
		rows = append(rows, v.header())
	}
	for i := range t.Rows {
		row, err := v.row(&t.Rows[i])
		if err != nil {
			return err
		}
		if v.WatchEvents {
			row = append([]string{event}, row...)
		}
		rows = append(rows, row)
	}
	return v.columns.Write(v.Out, rows)
}

func (v *tableView) shown(d metav1.TableColumnDefinition) bool {
	return d.Priority == 0 || v.Format == "wide"
}

func (v *tableView) header() []string {
	var out []string
	if v.WatchEvents {
		out = append(out, "EVENT")
	}
	if v.showNamespace {
		out = append(out, "NAMESPACE")
	}
	for _, d := range v.defs {
		if v.shown(d) {
			out = append(out, strings.ToUpper(d.Name))
		}
	}
	for _, l := range v.LabelColumns {
		_, short, found := strings.Cut(l, "/")
		if !found {
			short = l
		}
		out = append(out, strings.ToUpper(short))
	}
	if v.ShowLabels {
		out = append(out, "LABELS")
	}
	return out
}

func (v *tableView) row(r *metav1.TableRow) ([]string, error) {
	var meta metav1.PartialObjectMetadata
	if len(r.Object.Raw) > 0 {
		if err := json.Unmarshal(r.Object.Raw, &meta); err != nil {
			return nil, fmt.Errorf("read the server's table: %w", err)
		}
	}
	var out []string
	if v.showNamespace {
		out = append(out, meta.Namespace)
	}
	for i, d := range v.defs {
		if !v.shown(d) || i >= len(r.Cells) {
			continue
		}
		cell := cellText(r.Cells[i])
		if d.Name == "Name" && v.showKind {
			cell = v.kind.String() + "/" + cell
		}
		out = append(out, cell)
	}
	for _, l := range v.LabelColumns {
		value, ok := meta.Labels[l]
		if !ok {
			value = "<none>"
		}
		out = append(out, value)
	}
	if v.ShowLabels {
		out = append(out, labelText(meta.Labels))
	}
	return out, nil
}

func labelText(m map[string]string) string {
	if len(m) == 0 {
		return "<none>"
	}
	return labels.FormatLabels(m)
}

// cellText formats a cell as one line. It escapes control characters, which
// could control the terminal.
func cellText(v any) string {
	text := jsonpath.Text(v)
	if v == nil {
		text = "<none>"
	}
	if strings.IndexFunc(text, unicode.IsControl) < 0 {
		return text
	}
	if first, _, more := strings.Cut(text, "\n"); more {
		text = first + "..."
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

// sortRows sorts rows by the value at the path in --sort-by.
func (o *getOptions) sortRows(t *metav1.Table) error {
	if o.SortBy == "" {
		return nil
	}
	path, err := jsonpath.ParsePath(o.SortBy)
	if err != nil {
		return fmt.Errorf("--sort-by: %w", err)
	}
	return sortBy(t.Rows, func(r metav1.TableRow) (any, error) {
		obj := &rest.Object{}
		if err := obj.UnmarshalJSON(r.Object.Raw); err != nil {
			return nil, err
		}
		return firstOf(path, obj.Object)
	})
}

// sortBy sorts by keys, stably: numbers and quantities by value, others as
// text.
func sortBy[T any](items []T, key func(T) (any, error)) error {
	type keyed struct {
		item T
		key  any
	}
	all := make([]keyed, len(items))
	for i, item := range items {
		k, err := key(item)
		if err != nil {
			return err
		}
		all[i] = keyed{item, k}
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return compareKeys(a.key, b.key) })
	for i := range all {
		items[i] = all[i].item
	}
	return nil
}

func compareKeys(a, b any) int {
	x, xOK := toFloat(a)
	y, yOK := toFloat(b)
	if xOK && yOK {
		return cmp.Compare(x, y)
	}
	return strings.Compare(jsonpath.Text(a), jsonpath.Text(b))
}

func toFloat(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	case string:
		if q, err := resource.ParseQuantity(v); err == nil {
			return q.AsApproximateFloat64(), true
		}
	}
	return 0, false
}

// watchQuery returns the query of a watch for the objects of the preceding
// list.
func (o *getOptions) watchQuery(g named, revision string) (url.Values, error) {
	q := o.query()
	switch len(g.Names) {
	case 0:
	case 1:
		q.Set("fieldSelector", "metadata.name="+g.Names[0])
	default:
		return nil, errors.New("watch is only supported on individual resources and resource collections")
	}
	q.Set("resourceVersion", revision)
	return q, nil
}

// watchTable prints the changes after a table, until ctx or the watch ends.
func (o *getOptions) watchTable(ctx context.Context, c *rest.Cluster, g named, namespace string, after *metav1.Table, view *tableView, headersDone bool) error {
	q, err := o.watchQuery(g, after.ResourceVersion)
	if err != nil {
		return err
	}
	headers := !headersDone && !o.NoHeaders
	return c.Watch(ctx, g.Kind.Path(scope(g.Kind, namespace), ""), q, o.accept(), func(e rest.Event) error {
		table, err := toTable(e.Object, g.Kind)
		if err != nil {
			return err
		}
		if e.Type == "BOOKMARK" {
			return nil
		}
		if view.defs == nil && len(table.ColumnDefinitions) == 0 {
			table.ColumnDefinitions = after.ColumnDefinitions
		}
		err = view.print(table, headers, e.Type)
		headers = false
		return err
	})
}
