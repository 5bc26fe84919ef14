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
	UseHelm  bool
	Helm     kustomize.Helm // of UseHelm
}

func newKustomize(f *Factory, run func(context.Context, *kustomizeOptions) error) *cobra.Command {
	o := &kustomizeOptions{Factory: f, Dir: "."}
	cmd := &cobra.Command{
		Use: "kustomize [DIR]", Short: "Build a kustomization target from a directory", Args: cobra.MaximumNArgs(1),
		Long:    "Print the objects of the kustomization in a directory. Remote entries and plugins are refused, and Helm charts without --enable-helm.",
		Example: "  podium kustomize overlays/test\n  podium apply -k overlays/test",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.Dir = args[0]
			}
			return run(cmd.Context(), o)
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.Output, "output", "o", "", "write output to this file path")
	fs.StringVar(&o.Restrict, "load-restrictor", "LoadRestrictionsRootOnly", "LoadRestrictionsNone: local kustomizations may load files from outside their root; LoadRestrictionsRootOnly: they may not")
	fs.StringVar(&o.Reorder, "reorder", "", "none: keep the order of the kustomization; legacy: namespaces, definitions and other objects that are needed first")
	fs.BoolVar(&o.UseHelm, "enable-helm", false, "render Helm charts by the helm program, which fetches those that the kustomization does not hold")
	fs.StringVar(&o.Helm.Command, "helm-command", "helm", "helm command (path to executable)")
	fs.StringVar(&o.Helm.KubeVersion, "helm-kube-version", "", "Kubernetes version that charts see as Capabilities.KubeVersion")
	fs.StringArrayVar(&o.Helm.APIVersions, "helm-api-versions", nil, "API version that charts see in Capabilities.APIVersions; may be repeated")
	fs.BoolVar(&o.Helm.Debug, "helm-debug", false, "enable debug output of helm")
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
	if o.UseHelm {
		opts.Helm = &o.Helm
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
