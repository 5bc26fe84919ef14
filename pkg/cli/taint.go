package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"podium/pkg/cli/rest"
)

// taintOptions are the flags of taint.
type taintOptions struct {
	change
	Add       []corev1.Taint
	Remove    []corev1.Taint // an empty effect means all effects of the key
	Overwrite bool
}

func newTaint(f *Factory, run func(context.Context, *taintOptions) error) *cobra.Command {
	o := &taintOptions{change: change{Factory: f}}
	cmd := &cobra.Command{
		Use:   "taint NODE NAME... KEY[=VALUE]:EFFECT... KEY[:EFFECT]-...",
		Short: "Update the taints on one or more nodes",
		Example: `  podium taint nodes worker-1 dedicated=batch:NoSchedule
  podium taint nodes worker-1 dedicated:NoSchedule-
  podium taint nodes -l pool=gpu dedicated-`,
		ValidArgsFunction: f.completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.split(args); err != nil {
				return err
			}
			return run(cmd.Context(), o)
		},
	}
	o.labelFlag(cmd)
	dryRunFlag(cmd, &o.DryRun)
	o.formatFlag(cmd)
	o.managerFlag(cmd)
	o.validateFlag(cmd)
	cmd.Flags().BoolVar(&o.All, "all", false, "select all nodes in the cluster")
	cmd.Flags().BoolVar(&o.Overwrite, "overwrite", false, "allow existing taints to be overwritten")
	return cmd
}

// split separates the arguments into nodes and the taints that follow them.
func (o *taintOptions) split(args []string) error {
	first := slices.IndexFunc(args, func(a string) bool { return strings.ContainsAny(a, "=:") || strings.HasSuffix(a, "-") })
	if first < 0 {
		return errors.New("at least one taint update is required: KEY=VALUE:EFFECT, or KEY- to remove")
	}
	o.Args = args[:first]
	if len(o.Args) == 0 {
		return errors.New("one or more resources must be specified as <resource> <name>")
	}
	if kind, _, _ := strings.Cut(o.Args[0], "/"); kind != "node" && kind != "nodes" && kind != "no" {
		return fmt.Errorf("invalid resource type %s, only node types are supported", kind)
	}
	for _, arg := range args[first:] {
		text, removes := strings.CutSuffix(arg, "-")
		t, err := parseTaint(text, removes)
		if err != nil {
			return err
		}
		into := &o.Add
		if removes {
			into = &o.Remove
		}
		if slices.ContainsFunc(*into, func(other corev1.Taint) bool { return other.MatchTaint(&t) }) {
			return fmt.Errorf("duplicated taints with the same key and effect: %v", t.ToString())
		}
		*into = append(*into, t)
	}
	for _, t := range o.Add {
		if slices.ContainsFunc(o.Remove, covers(t)) {
			return fmt.Errorf("can not both modify and remove the following taint(s) in the same command: %s", t.ToString())
		}
	}
	return nil
}

// covers returns a function that reports whether a taint to remove matches t.
func covers(t corev1.Taint) func(corev1.Taint) bool {
	return func(r corev1.Taint) bool { return r.Key == t.Key && (r.Effect == "" || r.Effect == t.Effect) }
}

// parseTaint parses KEY[=VALUE]:EFFECT. With removes, the effect is optional
// and there is no value.
func parseTaint(text string, removes bool) (t corev1.Taint, err error) {
	pair, effect, hasEffect := strings.Cut(text, ":")
	key, value, _ := strings.Cut(pair, "=")
	t = corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
	if errs := validation.IsQualifiedName(key); len(errs) > 0 {
		return t, fmt.Errorf("invalid taint spec: %v, %s", text, strings.Join(errs, "; "))
	}
	if errs := validation.IsValidLabelValue(value); len(errs) > 0 {
		return t, fmt.Errorf("invalid taint spec: %v, %s", text, strings.Join(errs, "; "))
	}
	switch t.Effect {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		return t, nil
	case "":
		if removes && !hasEffect {
			return t, nil
		}
	}
	return t, fmt.Errorf("invalid taint effect: %v, unsupported taint effect", effect)
}

func runTaint(ctx context.Context, o *taintOptions) error {
	return o.each(ctx, true, o.taint)
}

// taint updates the taints of a node. t must have been read: the patch replaces
// the whole list and therefore carries the resource version.
func (o *taintOptions) taint(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
	var node corev1.Node
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(t.Object.Object, &node); err != nil {
		return nil, "", fmt.Errorf("read %s: %w", t, err)
	}
	taints, verb, err := o.apply(node.Name, node.Spec.Taints)
	if err != nil || o.DryRun == "client" {
		return t.Object, verb, err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion}, "spec": map[string]any{"taints": taints},
	})
	if err != nil {
		return nil, "", err
	}
	obj, err := c.Patch(ctx, t.Kind, "", t.Name, types.MergePatchType, patch, o.query())
	return obj, verb, err
}

// apply returns a node's taints after the update, and kubectl's verb for it.
func (o *taintOptions) apply(node string, have []corev1.Taint) (taints []corev1.Taint, verb string, err error) {
	var errs []error
	for _, r := range o.Remove {
		if !slices.ContainsFunc(have, func(t corev1.Taint) bool { return covers(t)(r) }) {
			errs = append(errs, fmt.Errorf("taint %q not found", r.ToString()))
		}
	}
	for _, t := range have {
		replaced := slices.ContainsFunc(o.Add, func(a corev1.Taint) bool { return a.MatchTaint(&t) })
		if replaced && !o.Overwrite {
			errs = append(errs, fmt.Errorf("node %s already has %v taint(s) with same effect(s) and --overwrite is false", node, t.Key))
		}
		if !replaced && !slices.ContainsFunc(o.Remove, covers(t)) {
			taints = append(taints, t)
		}
	}
	verb = "modified"
	switch {
	case len(o.Add) == 0:
		verb = "untainted"
	case len(o.Remove) == 0 && len(taints) == len(have):
		verb = "tainted"
	}
	return append(taints, o.Add...), verb, errors.Join(errs...)
}
