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

// cordonOptions say which nodes take new pods, or take none.
type cordonOptions struct {
	change
	Cordon bool
}

func newCordon(f *Factory, run func(context.Context, *cordonOptions) error) *cobra.Command {
	cmd := cordoner(f, run, true)
	cmd.Use = "cordon NODE..."
	cmd.Short = "Have nodes take no new pods"
	return cmd
}

func newUncordon(f *Factory, run func(context.Context, *cordonOptions) error) *cobra.Command {
	cmd := cordoner(f, run, false)
	cmd.Use = "uncordon NODE..."
	cmd.Short = "Have nodes take pods again"
	return cmd
}

func cordoner(f *Factory, run func(context.Context, *cordonOptions) error, cordon bool) *cobra.Command {
	o := &cordonOptions{change: change{Factory: f}, Cordon: cordon}
	cmd := &cobra.Command{
		ValidArgsFunction: f.completeNames("nodes"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.nodes(args); err != nil {
				return err
			}
			return run(cmd.Context(), o)
		},
	}
	o.labelFlag(cmd)
	dryRunFlag(cmd, &o.DryRun)
	return cmd
}

// nodes takes the names of nodes, with or without "node/".
func (w *change) nodes(args []string) error {
	if len(args) == 0 && w.Labels == "" {
		return errors.New("say which nodes, by name or by -l SELECTOR")
	}
	w.Args = []string{"nodes"}
	for _, arg := range args {
		kind, name, ok := strings.Cut(arg, "/")
		if !ok {
			name = arg
		} else if kind != "node" && kind != "nodes" && kind != "no" {
			return errors.New(arg + " is no node")
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

// cordon has a node that was read take no new pods, or take them again, and
// says what it has done.
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
