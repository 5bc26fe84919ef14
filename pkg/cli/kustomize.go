package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"podium/pkg/cli/kustomize"
)

// kustomizeOptions are the argument and flags of kustomize.
type kustomizeOptions struct {
	*Factory
	Dir      string
	Output   string
	Restrict string
	Reorder  string
}

func newKustomize(f *Factory, run func(context.Context, *kustomizeOptions) error) *cobra.Command {
	o := &kustomizeOptions{Factory: f, Dir: "."}
	cmd := &cobra.Command{
		Use: "kustomize [DIR]", Short: "Build a kustomization target from a directory", Args: cobra.MaximumNArgs(1),
		Long:    "Print the objects of the kustomization in a directory. Remote entries, Helm charts, and plugins are refused.",
		Example: "  podium kustomize overlays/test\n  podium apply -k overlays/test",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.Dir = args[0]
			}
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVarP(&o.Output, "output", "o", "", "write output to this file path")
	cmd.Flags().StringVar(&o.Restrict, "load-restrictor", "LoadRestrictionsRootOnly", "LoadRestrictionsNone: local kustomizations may load files from outside their root; LoadRestrictionsRootOnly: they may not")
	cmd.Flags().StringVar(&o.Reorder, "reorder", "", "none: keep the order of the kustomization; legacy: namespaces, definitions and other objects that are needed first")
	f.completeFlag(cmd, "load-restrictor", "LoadRestrictionsNone", "LoadRestrictionsRootOnly")
	f.completeFlag(cmd, "reorder", "none", "legacy")
	return cmd
}

func runKustomize(_ context.Context, o *kustomizeOptions) error {
	opts := kustomize.Options{}
	switch o.Restrict {
	case "LoadRestrictionsNone":
		opts.AnyFile = true
	case "LoadRestrictionsRootOnly":
	default:
		return fmt.Errorf("illegal flag value --load-restrictor %s; legal values: LoadRestrictionsRootOnly, LoadRestrictionsNone", o.Restrict)
	}
	switch o.Reorder {
	case "legacy":
		opts.Legacy = true
	case "", "none":
	default:
		return fmt.Errorf("illegal flag value --reorder %s; legal values: legacy, none", o.Reorder)
	}
	data, err := kustomize.Build(o.Dir, opts)
	if err != nil {
		return err
	}
	if o.Output != "" {
		return os.WriteFile(o.Output, data, 0o644)
	}
	_, err = o.Out.Write(data)
	return err
}
