package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"podium/pkg/cli/output"
	"podium/pkg/cli/rest"
)

// topOptions are the flags of both top commands.
type topOptions struct {
	*Factory
	Name      string // "": all that the selectors select
	Labels    string
	Fields    string
	SortBy    string
	NoHeaders bool
	Swap      bool

	Capacity bool // of nodes, instead of what is allocatable

	AllNamespaces bool
	Containers    bool
	Sum           bool
}

type runTop func(context.Context, *topOptions) error

func newTop(f *Factory, nodes, pods runTop) *cobra.Command {
	return group("top", "Display resource (CPU/memory) usage", newTopNode(f, nodes), newTopPod(f, pods))
}

// topCommand returns a command with the flags of both.
func topCommand(f *Factory, kind, short string, run runTop) (*cobra.Command, *topOptions) {
	o := &topOptions{Factory: f}
	cmd := &cobra.Command{
		Use: kind + " [NAME | -l label]", Aliases: []string{kind + "s", kind[:2]}, Short: short, Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.Name = args[0]
			}
			if err := o.validate(); err != nil {
				return err
			}
			return run(cmd.Context(), o)
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.Labels, "selector", "l", "", "selector (label query) to filter on (a=b,c!=d,e in (f,g))")
	fs.StringVar(&o.SortBy, "sort-by", "", "sort by the usage of this resource, the highest first: cpu or memory")
	fs.BoolVar(&o.NoHeaders, "no-headers", false, "do not print headers")
	fs.BoolVar(&o.Swap, "show-swap", false, "print the usage of swap memory, too")
	return cmd, o
}

func newTopNode(f *Factory, run runTop) *cobra.Command {
	cmd, o := topCommand(f, "node", "Display resource (CPU/memory) usage of nodes", run)
	cmd.Flags().BoolVar(&o.Capacity, "show-capacity", false, "compare the usage with the capacity of the nodes instead of what is allocatable")
	cmd.ValidArgsFunction = f.completeNames("nodes")
	return cmd
}

func newTopPod(f *Factory, run runTop) *cobra.Command {
	cmd, o := topCommand(f, "pod", "Display resource (CPU/memory) usage of pods", run)
	fs := cmd.Flags()
	fs.StringVar(&o.Fields, "field-selector", "", "selector (field query) to filter on: metadata.name, metadata.namespace")
	fs.BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false, "select resources across all namespaces")
	fs.BoolVar(&o.Containers, "containers", false, "print the usage of containers within a pod")
	fs.BoolVar(&o.Sum, "sum", false, "print the sum of the resource usage")
	cmd.ValidArgsFunction = f.completeNames("pods")
	return cmd
}

func (o *topOptions) validate() error {
	switch {
	case o.SortBy != "" && o.SortBy != "cpu" && o.SortBy != "memory":
		return errors.New("--sort-by accepts only cpu or memory")
	case o.Name != "" && (o.Labels != "" || o.Fields != ""):
		return errors.New("only one of NAME or selector can be provided")
	}
	return nil
}

// query returns the selectors as a URL query.
func (o *topOptions) query() url.Values {
	q := url.Values{}
	if o.Labels != "" {
		q.Set("labelSelector", o.Labels)
	}
	if o.Fields != "" {
		q.Set("fieldSelector", o.Fields)
	}
	return q
}

// read reads the named object of a resource, or else the selected ones.
func read[T any](ctx context.Context, o *topOptions, c *rest.Cluster, path string) (items []T, err error) {
	if o.Name != "" {
		items = make([]T, 1)
		return items, c.GetAs(ctx, path+"/"+url.PathEscape(o.Name), nil, "application/json", &items[0])
	}
	var list struct {
		Items []T `json:"items"`
	}
	err = c.GetAs(ctx, path, o.query(), "application/json", &list)
	return list.Items, err
}

// metricsOf reads usage. The metrics API is optional.
func metricsOf[T any](ctx context.Context, o *topOptions, c *rest.Cluster, namespace, resource string) ([]T, error) {
	k, err := c.Find(ctx, resource+"."+metricsv1beta1.GroupName)
	var none *rest.ErrNoKind
	if errors.As(err, &none) {
		//lint:ignore ST1005 kubectl's text
		return nil, errors.New("Metrics API not available")
	}
	if err != nil {
		return nil, err
	}
	return read[T](ctx, o, c, k.Path(namespace, ""))
}

func runTopNode(ctx context.Context, o *topOptions) error {
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	used, err := metricsOf[metricsv1beta1.NodeMetrics](ctx, o, c, "", "nodes")
	if err != nil {
		return err
	}
	if len(used) == 0 {
		return errNoMetrics
	}
	nodes, err := read[corev1.Node](ctx, o, c, "/api/v1/nodes")
	if err != nil {
		return err
	}
	return o.write(nodeRows(o, used, nodes))
}

var errNoMetrics = errors.New("metrics not available yet")

// nodeRows returns the table of nodes: first those whose usage is known.
func nodeRows(o *topOptions, used []metricsv1beta1.NodeMetrics, nodes []corev1.Node) [][]string {
	rows := [][]string{{"NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"}}
	if o.Swap {
		rows[0] = append(rows[0], "SWAP(bytes)", "SWAP(%)")
	}
	unknown := slices.Repeat([]string{"<unknown>"}, len(rows[0])-1)
	byUsage(o, used, func(m *metricsv1beta1.NodeMetrics) corev1.ResourceList { return m.Usage },
		func(a, b *metricsv1beta1.NodeMetrics) int { return strings.Compare(a.Name, b.Name) })
	known := map[string]bool{}
	for i := range used {
		m := &used[i]
		known[m.Name] = true
		cpu, memory := "", ""
		swap := unknown[:len(rows[0])-5]
		if n := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == m.Name }); n >= 0 {
			has := nodes[n].Status.Allocatable
			if o.Capacity {
				has = nodes[n].Status.Capacity
			}
			cpu, memory = percent(m.Usage.Cpu(), has.Cpu()), percent(m.Usage.Memory(), has.Memory())
			if total := nodes[n].Status.NodeInfo.Swap; o.Swap && total != nil && total.Capacity != nil {
				used := m.Usage[swapResource]
				swap = []string{mebibytes(used), percent(&used, resource.NewQuantity(*total.Capacity, resource.BinarySI))}
			}
		}
		rows = append(rows, append([]string{m.Name, cores(m.Usage), cpu, mebibytes(m.Usage[corev1.ResourceMemory]), memory}, swap...))
	}
	for i := range nodes {
		if !known[nodes[i].Name] {
			rows = append(rows, append([]string{nodes[i].Name}, unknown...))
		}
	}
	return rows
}

func runTopPod(ctx context.Context, o *topOptions) error {
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	namespace, _, err := o.Namespace()
	if err != nil {
		return err
	}
	if o.AllNamespaces {
		namespace = ""
	}
	used, err := metricsOf[metricsv1beta1.PodMetrics](ctx, o, c, namespace, "pods")
	if err != nil {
		return err
	}
	if len(used) > 0 {
		return o.write(podRows(o, used))
	}
	if err := o.explainNone(ctx, c, namespace); err != nil {
		return err
	}
	if namespace == "" {
		fmt.Fprintln(o.Err, "No resources found")
	} else {
		fmt.Fprintf(o.Err, "No resources found in %s namespace.\n", namespace)
	}
	return nil
}

// metricsDelay is how long a pod may be without metrics.
const metricsDelay = 2 * time.Minute

// explainNone returns nil if there are no pods, and else an error that says whether
// their metrics should be available.
func (o *topOptions) explainNone(ctx context.Context, c *rest.Cluster, namespace string) error {
	k, err := c.Find(ctx, "pods")
	if err != nil {
		return err
	}
	pods, err := read[corev1.Pod](ctx, o, c, k.Path(namespace, ""))
	if err != nil || len(pods) == 0 {
		return err
	}
	for i := range pods {
		if age := time.Since(pods[i].CreationTimestamp.Time); age > metricsDelay {
			//lint:ignore ST1005 kubectl's text
			return fmt.Errorf("Metrics not available for pod %s/%s, age: %s", pods[i].Namespace, pods[i].Name, age)
		}
	}
	return errNoMetrics
}

// podRows returns the table of pods or, with --containers, of their containers.
func podRows(o *topOptions, used []metricsv1beta1.PodMetrics) [][]string {
	var head []string
	if o.AllNamespaces {
		head = append(head, "NAMESPACE")
	}
	if o.Containers {
		head = append(head, "POD")
	}
	columns := []string{"CPU(cores)", "MEMORY(bytes)"}
	if o.Swap {
		columns = append(columns, "SWAP(bytes)")
	}
	rows := [][]string{slices.Concat(head, []string{"NAME"}, columns)}
	byUsage(o, used, total, func(a, b *metricsv1beta1.PodMetrics) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	sum := corev1.ResourceList{}
	for i := range used {
		m := &used[i]
		all := total(m)
		add(sum, all)
		var where []string
		if o.AllNamespaces {
			where = append(where, m.Namespace)
		}
		if !o.Containers {
			rows = append(rows, slices.Concat(where, []string{m.Name}, o.usage(all)))
			continue
		}
		byUsage(o, m.Containers, func(c *metricsv1beta1.ContainerMetrics) corev1.ResourceList { return c.Usage },
			func(a, b *metricsv1beta1.ContainerMetrics) int { return strings.Compare(a.Name, b.Name) })
		for _, c := range m.Containers {
			rows = append(rows, slices.Concat(where, []string{m.Name, c.Name}, o.usage(c.Usage)))
		}
	}
	if o.Sum {
		blank := make([]string, len(rows[0])-len(columns))
		rows = append(rows, slices.Concat(blank, slices.Repeat([]string{"________"}, len(columns))), slices.Concat(blank, o.usage(sum)))
	}
	return rows
}

// write prints the table, whose first row is the header.
func (o *topOptions) write(rows [][]string) error {
	if o.NoHeaders {
		rows = rows[1:]
	}
	return (&output.Columns{}).Write(o.Out, rows)
}

// byUsage sorts by the usage of --sort-by, the highest first, or else by name.
func byUsage[T any](o *topOptions, items []T, usage func(*T) corev1.ResourceList, name func(a, b *T) int) {
	slices.SortStableFunc(items, func(a, b T) int {
		used, other := usage(&a), usage(&b)
		switch o.SortBy {
		case "cpu":
			return cmp.Or(other.Cpu().Cmp(*used.Cpu()), name(&a, &b))
		case "memory":
			return cmp.Or(other.Memory().Cmp(*used.Memory()), name(&a, &b))
		}
		return name(&a, &b)
	})
}

// total returns what all containers of a pod use.
func total(m *metricsv1beta1.PodMetrics) corev1.ResourceList {
	sum := corev1.ResourceList{}
	for _, c := range m.Containers {
		add(sum, c.Usage)
	}
	return sum
}

func add(sum, more corev1.ResourceList) {
	for name, q := range more {
		q.Add(sum[name])
		sum[name] = q
	}
}

func cores(used corev1.ResourceList) string { return fmt.Sprintf("%dm", used.Cpu().MilliValue()) }

// swapResource is swap memory in the metrics API.
const swapResource corev1.ResourceName = "swap"

// usage returns the columns of a pod's or container's usage.
func (o *topOptions) usage(used corev1.ResourceList) []string {
	out := []string{cores(used), mebibytes(used[corev1.ResourceMemory])}
	if o.Swap {
		out = append(out, mebibytes(used[swapResource]))
	}
	return out
}

func mebibytes(q resource.Quantity) string { return fmt.Sprintf("%dMi", q.Value()>>20) }

func percent(used, available *resource.Quantity) string {
	if available.IsZero() {
		return "0%"
	}
	return fmt.Sprintf("%d%%", int64(100*used.AsApproximateFloat64()/available.AsApproximateFloat64()))
}
