package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"podium/pkg/cli/output"
	"podium/pkg/cli/rest"
	"podium/pkg/scheme"
)

// patchOptions are the flags of patch.
type patchOptions struct {
	*Factory
	selection
	Type, Patch, PatchFile string
	Subresource            string
	DryRun, Format         string
}

func newPatch(f *Factory, run func(context.Context, *patchOptions) error) *cobra.Command {
	o := &patchOptions{Factory: f}
	cmd := &cobra.Command{
		Use:               "patch TYPE NAME -p PATCH",
		Short:             "Change fields of an object",
		Example:           `  podium patch deployment web -p '{"spec":{"replicas":3}}'`,
		ValidArgsFunction: f.completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Args = args
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVarP(&o.Patch, "patch", "p", "", "the patch, JSON or YAML")
	cmd.Flags().StringVar(&o.PatchFile, "patch-file", "", "file with the patch")
	cmd.Flags().StringVar(&o.Type, "type", "strategic", "strategic, merge or json")
	cmd.Flags().StringVar(&o.Subresource, "subresource", "", "change this subresource: status or scale")
	cmd.Flags().StringVarP(&o.Format, "output", "o", "", "print the object: "+output.Formats)
	o.fileFlags(cmd, "the objects")
	dryRunFlag(cmd, &o.DryRun)
	return cmd
}

func runPatch(ctx context.Context, o *patchOptions) error {
	if err := checkDryRun(o.DryRun); err != nil {
		return err
	}
	body, err := o.body()
	if err != nil {
		return err
	}
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	report, err := newReport(o.Factory, o.Format, o.DryRun)
	if err != nil {
		return err
	}
	targets, err := o.resolve(ctx, o.Factory, true)
	if err != nil {
		return err
	}
	builtIn := scheme.New()
	var errs []error
	for _, t := range targets {
		pt, err := o.patchType(builtIn.ByKind(t.Kind.GroupVersionKind) != nil)
		if err != nil {
			return err
		}
		if o.DryRun == "client" {
			errs = append(errs, report.target(t, "patched"))
			continue
		}
		var parts []string
		if o.Subresource != "" {
			parts = []string{o.Subresource}
		}
		after, err := c.Patch(ctx, t.Kind, t.Namespace, t.Name, pt, body, rest.WriteQuery(o.DryRun == "server", manager), parts...)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		verb := "patched"
		if len(o.Files) == 0 && after.GetResourceVersion() == t.Object.GetResourceVersion() {
			verb = "patched (no change)"
		}
		errs = append(errs, report.object(after, verb))
	}
	return errors.Join(errs...)
}

func (o *patchOptions) body() ([]byte, error) {
	text := []byte(o.Patch)
	if (o.Patch == "") == (o.PatchFile == "") {
		return nil, errors.New("must specify --patch or --patch-file containing the contents of the patch")
	}
	if o.PatchFile != "" {
		var err error
		if text, err = o.openFile(o.PatchFile); err != nil {
			return nil, err
		}
	}
	body, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("unable to parse %q: %w", text, err)
	}
	return body, nil
}

// patchType is the wire's name. Strategic patches need types the server knows
// the structure of; for others the flag's default means a merge patch.
func (o *patchOptions) patchType(builtIn bool) (types.PatchType, error) {
	switch o.Type {
	case "strategic":
		if !builtIn {
			return types.MergePatchType, nil
		}
		return types.StrategicMergePatchType, nil
	case "merge":
		return types.MergePatchType, nil
	case "json":
		return types.JSONPatchType, nil
	}
	return "", fmt.Errorf("--type must be one of [json merge strategic], not %q", o.Type)
}
