package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"podium/pkg/cli/plan"
	"podium/pkg/cli/rest"
)

// planOptions are the flags of plan.
type planOptions struct {
	*Factory
	selection
	Format string // of -o: json, yaml, or "" for text
	Force  bool
}

func newPlan(f *Factory, run, drain func(context.Context, *planOptions) error) *cobra.Command {
	o := &planOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Show what an apply would change, and where the pods would land",
		Long: `Show what an apply would change, and where the pods would land, without changing
anything: the server checks each object in a dry run (validation, admission,
quota, policies), and the scheduler's own code places the new pods on a copy of
the cluster's state. Pods of the scheduler's default profile are placed, without
its extenders; among nodes of equal score the scheduler chooses at random, and
plan takes the first.

The exit code is 1 if the server would refuse an object or its pods.`,
		Example: `  podium plan -f app.yaml
  podium plan -R -f manifests/
  podium plan drain worker-1`,
		Args: noArgs,
		RunE: onFiles(&o.selection, o, run),
	}
	o.fileFlags(cmd, "the objects to plan")
	o.labelFlag(cmd)
	cmd.Flags().BoolVar(&o.Force, "force-conflicts", false, "plan as if fields of other managers were taken over")
	cmd.PersistentFlags().StringVarP(&o.Format, "output", "o", "", "print the plan in this format: json or yaml")
	cmd.AddCommand(&cobra.Command{
		Use:   "drain NODE",
		Short: "Show which pods a drain would evict, what blocks it, and where they would land",
		Long: `Show which pods the drain of a node would evict, which PodDisruptionBudgets
block it, which pods no controller replaces, and where the others would land.
Nothing is changed. The exit code is 1 if a budget blocks the drain.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completeNames("nodes"),
		RunE:              on(&o.selection, o, drain),
	})
	return cmd
}

// planned is what would become of an object.
type planned struct {
	Object      string           `json:"object"`
	Namespace   string           `json:"namespace,omitempty"`
	Change      string           `json:"change"` // created, configured, unchanged, refused
	Error       string           `json:"error,omitempty"`
	Fields      []string         `json:"fields,omitempty"`
	Warnings    []string         `json:"warnings,omitempty"`
	Notes       []string         `json:"notes,omitempty"`
	Pods        []plan.Placement `json:"pods,omitempty"`
	PodsRefused string           `json:"podsRefused,omitempty"`

	target        target
	before, after *rest.Object
}

func runPlan(ctx context.Context, o *planOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	targets, err := o.resolve(ctx, o.Factory, false)
	if err != nil {
		return err
	}
	p := &planner{o: o, created: map[string]bool{}}
	p.c = c.WithWarnings(func(text string) { p.warnings = append(p.warnings, text) })
	var all []*planned
	for _, t := range targets {
		r, err := p.apply(ctx, t)
		if err != nil {
			return inSource(t.Source, err)
		}
		all = append(all, r)
	}
	if err := p.place(ctx, all); err != nil {
		return err
	}
	if err := o.print(all, func(b *strings.Builder) { planText(b, all) }); err != nil {
		return err
	}
	for _, r := range all {
		if r.Change == "refused" || r.PodsRefused != "" {
			return &exitError{code: 1}
		}
	}
	return nil
}

func (o *planOptions) check() error {
	if o.Format != "" && o.Format != "json" && o.Format != "yaml" {
		return fmt.Errorf("-o %q is unknown: use json or yaml", o.Format)
	}
	return nil
}

// print prints a value in the format of -o, or the text.
func (o *planOptions) print(value any, text func(*strings.Builder)) error {
	if o.Format == "" {
		var b strings.Builder
		text(&b)
		_, err := fmt.Fprint(o.Out, b.String())
		return err
	}
	out, err := json.MarshalIndent(value, "", "    ")
	if err == nil && o.Format == "yaml" {
		out, err = yaml.JSONToYAML(out)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(o.Out, strings.TrimSuffix(string(out), "\n"))
	return err
}

// planner makes the requests of a plan, all of which are reads or dry runs.
type planner struct {
	o        *planOptions
	c        *rest.Cluster
	warnings []string        // of the last request
	created  map[string]bool // namespaces in the same files
}

// apply applies an object in a dry run. The error is one that the plan cannot go
// on after: the server does not answer.
func (p *planner) apply(ctx context.Context, t target) (*planned, error) {
	r := &planned{Object: t.String(), Namespace: t.Namespace, target: t}
	if t.Name == "" {
		return nil, errors.New("metadata.name is missing: an object that is applied needs one")
	}
	t.Object.SetManagedFields(nil)
	before, err := p.c.Get(ctx, t.Kind, t.Namespace, t.Name)
	if err != nil && !notFound(err) {
		return nil, err
	}
	body, err := json.Marshal(t.Object.Object)
	if err != nil {
		return nil, err
	}
	p.warnings = nil
	q := rest.WriteQuery(true, manager)
	q.Set("fieldValidation", "Strict")
	after, err := serverSideApply(ctx, p.c, t, body, q, p.o.Force)
	r.before, r.after, r.Warnings = before, after, p.warnings
	var status apierrors.APIStatus
	switch {
	case notFound(err) && p.created[t.Namespace]:
		r.after, r.Change = t.Object, "created"
		r.Notes = append(r.Notes, "not checked by the server: the same files create its namespace")
	case err != nil && !errors.As(err, &status):
		return nil, err
	case err != nil:
		r.Change, r.Error = "refused", err.Error()
	case before == nil:
		r.Change = "created"
		p.created[t.Name] = p.created[t.Name] || t.Kind.Kind == "Namespace"
	default:
		r.Fields, r.Change = plan.Changes(before, after), "configured"
		if len(r.Fields) == 0 {
			r.Change = "unchanged"
		}
	}
	return r, nil
}

func planText(b *strings.Builder, all []*planned) {
	for _, r := range all {
		fmt.Fprintf(b, "%s %s", r.Object, r.Change)
		if r.Error != "" {
			fmt.Fprintf(b, ": %s", r.Error)
		}
		b.WriteByte('\n')
		lines := func(prefix string, texts []string) {
			for _, text := range texts {
				fmt.Fprintf(b, "    %s%s\n", prefix, text)
			}
		}
		lines("", r.Fields)
		lines("Warning: ", r.Warnings)
		lines("note: ", r.Notes)
		if r.PodsRefused != "" {
			fmt.Fprintf(b, "    pods refused: %s\n", r.PodsRefused)
		}
		for _, pod := range r.Pods {
			placementText(b, pod)
		}
	}
}

func placementText(b *strings.Builder, p plan.Placement) {
	node := p.Node
	if node == "" {
		node = "pending"
	}
	fmt.Fprintf(b, "    pod %s → %s: %s\n", p.Pod, node, p.Why())
	for _, victim := range p.Preempts {
		fmt.Fprintf(b, "        preempts pod %s\n", victim)
	}
}

func runPlanDrain(ctx context.Context, o *planOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	cluster, unread, devices, err := readCluster(ctx, c)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(cluster.Pods, plan.MayUseDevices) {
		unread = append(unread, devices...)
	}
	if len(unread) > 0 {
		return fmt.Errorf("a drain cannot be planned without reading %s", strings.Join(unread, ", "))
	}
	evictions, err := plan.Drain(cluster, strings.TrimPrefix(o.Args[0], "node/"))
	if err != nil {
		return err
	}
	if err := o.print(evictions, func(b *strings.Builder) { drainText(b, evictions) }); err != nil {
		return err
	}
	for _, e := range evictions {
		if e.Blocked != "" {
			return &exitError{code: 1}
		}
	}
	return nil
}

func drainText(b *strings.Builder, all []plan.Eviction) {
	if len(all) == 0 {
		b.WriteString("the node runs no pods\n")
	}
	for _, e := range all {
		switch {
		case e.Stays != "":
			fmt.Fprintf(b, "pod %s stays: %s\n", e.Pod, e.Stays)
			continue
		case e.Blocked != "":
			fmt.Fprintf(b, "pod %s blocks the drain: %s\n", e.Pod, e.Blocked)
		case e.Waits != "":
			fmt.Fprintf(b, "pod %s is evicted later: it waits for %s\n", e.Pod, e.Waits)
		default:
			fmt.Fprintf(b, "pod %s is evicted\n", e.Pod)
		}
		if e.Lost {
			b.WriteString("    nothing replaces it: it has no controller (--force)\n")
		}
		if e.LocalData {
			b.WriteString("    its emptyDir volumes are deleted (--delete-emptydir-data)\n")
		}
		if e.Lands != nil {
			placementText(b, *e.Lands)
		}
	}
}

// refusedByRBAC reports whether err is a lack of rights of the user, and not a
// refusal by admission.
func refusedByRBAC(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot create resource")
}
