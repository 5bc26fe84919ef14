package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/cli/rest"
)

// cordonOptions are the flags of cordon and uncordon.
type cordonOptions struct {
	change
	Cordon bool
}

func newCordon(f *Factory, run func(context.Context, *cordonOptions) error) *cobra.Command {
	cmd := cordoner(f, run, true)
	cmd.Use = "cordon NODE..."
	cmd.Short = "Mark nodes as unschedulable"
	return cmd
}

func newUncordon(f *Factory, run func(context.Context, *cordonOptions) error) *cobra.Command {
	cmd := cordoner(f, run, false)
	cmd.Use = "uncordon NODE..."
	cmd.Short = "Mark nodes as schedulable"
	return cmd
}

func cordoner(f *Factory, run func(context.Context, *cordonOptions) error, cordon bool) *cobra.Command {
	o := &cordonOptions{change: change{Factory: f}, Cordon: cordon}
	cmd := &cobra.Command{
		ValidArgsFunction: f.completeNames("nodes"),
		RunE:              onNodes(&o.change, o, run),
	}
	o.labelFlag(cmd)
	dryRunFlag(cmd, &o.DryRun)
	return cmd
}

// nodes sets the selection to nodes by name, with or without "node/".
func (w *change) nodes(args []string) error {
	if len(args) == 0 && w.Labels == "" {
		return errors.New("specify nodes by name or by -l SELECTOR")
	}
	w.Args = []string{"nodes"}
	for _, arg := range args {
		kind, name, ok := strings.Cut(arg, "/")
		if !ok {
			name = arg
		} else if kind != "node" && kind != "nodes" && kind != "no" {
			return errors.New(arg + " is not a node")
		}
		w.Args = append(w.Args, name)
	}
	return nil
}

func runCordon(ctx context.Context, o *cordonOptions) error {
	return o.each(ctx, true, func(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
		verb, err := o.cordon(ctx, c, t, o.Cordon)
		return t.Object, verb, err
	})
}

// cordon sets whether a node is unschedulable, and returns the verb to report.
// t must have been read.
func (w *change) cordon(ctx context.Context, c *rest.Cluster, t target, cordon bool) (verb string, err error) {
	verb, patch := "uncordoned", `{"spec":{"unschedulable":null}}`
	if cordon {
		verb, patch = "cordoned", `{"spec":{"unschedulable":true}}`
	}
	if now, _, _ := unstructured.NestedBool(t.Object.Object, "spec", "unschedulable"); now == cordon {
		return "already " + verb, nil
	}
	if w.DryRun == "client" {
		return verb, nil
	}
	_, err = c.Patch(ctx, t.Kind, "", t.Name, types.MergePatchType, []byte(patch), w.query())
	return verb, err
}
