package cli

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"podium/pkg/cli/rest"
	"podium/pkg/scheme"
)

// patchOptions are the flags of patch.
type patchOptions struct {
	change
	Type, Patch, PatchFile string
	Subresource            string
}

func newPatch(f *Factory, run func(context.Context, *patchOptions) error) *cobra.Command {
	o := &patchOptions{change: change{Factory: f}}
	cmd := &cobra.Command{
		Use:               "patch TYPE NAME -p PATCH",
		Short:             "Update fields of a resource",
		Example:           `  podium patch deployment web -p '{"spec":{"replicas":3}}'`,
		ValidArgsFunction: f.completeResources,
		RunE:              on(&o.selection, o, run),
	}
	cmd.Flags().StringVarP(&o.Patch, "patch", "p", "", "patch to apply, in JSON or YAML")
	cmd.Flags().StringVar(&o.PatchFile, "patch-file", "", "file containing the patch")
	cmd.Flags().StringVar(&o.Type, "type", "strategic", "type of patch: strategic, merge or json")
	cmd.Flags().StringVar(&o.Subresource, "subresource", "", "subresource to patch: status or scale")
	o.writeFlags(cmd, "the objects")
	o.localFlag(cmd)
	return cmd
}

func runPatch(ctx context.Context, o *patchOptions) error {
	body, err := o.body()
	if err != nil {
		return err
	}
	if o.Local && o.Subresource != "" {
		return errors.New("--subresource is of the server: it cannot be used with --local")
	}
	return o.each(ctx, true, func(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
		return o.patch(ctx, c, t, body)
	})
}

func (o *patchOptions) patch(ctx context.Context, c *rest.Cluster, t target, body []byte) (*rest.Object, string, error) {
	pt, err := o.patchType(scheme.New().ByKind(t.Kind.GroupVersionKind) != nil)
	if err != nil {
		return nil, "", err
	}
	if o.Local || o.DryRun == "client" {
		after, err := patchedLocally(t, pt, body)
		if err == nil && reflect.DeepEqual(after.Object, t.Object.Object) {
			return after, "patched (no change)", nil
		}
		return after, "patched", err
	}
	var parts []string
	if o.Subresource != "" {
		parts = []string{o.Subresource}
	}
	after, err := c.Patch(ctx, t.Kind, t.Namespace, t.Name, pt, body, o.query(), parts...)
	if err != nil {
		return nil, "", err
	}
	if !o.given() && after.GetResourceVersion() == t.Object.GetResourceVersion() {
		return after, "patched (no change)", nil
	}
	return after, "patched", nil
}

// body returns the patch as JSON.
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

// patchType returns the wire name of --type. Strategic merge patches need types
// whose structure the server knows; for others, strategic (the default) means a
// merge patch.
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
