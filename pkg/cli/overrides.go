package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"podium/pkg/cli/rest"
	"podium/pkg/scheme"
)

// overrides are the flags that change the object that a command generates.
type overrides struct {
	Override     string // JSON or YAML
	OverrideType string
}

func (o *overrides) overrideFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.Override, "overrides", "", "inline JSON that changes the generated object")
	cmd.Flags().StringVar(&o.OverrideType, "override-type", "merge", "method of --overrides: json, merge or strategic")
}

// checkOverrides refuses --override-type without what it is the type of.
func (o *overrides) checkOverrides(cmd *cobra.Command) error {
	if cmd.Flags().Changed("override-type") && o.Override == "" {
		return errors.New("--override-type requires --overrides")
	}
	return nil
}

// override returns the generated object with the changes of --overrides. They may not
// make another kind of it.
func (o *overrides) override(obj *rest.Object) (*rest.Object, error) {
	if o.Override == "" {
		return obj, nil
	}
	pt, ok := map[string]types.PatchType{
		"json": types.JSONPatchType, "merge": types.MergePatchType, "strategic": types.StrategicMergePatchType,
	}[o.OverrideType]
	if !ok {
		return nil, fmt.Errorf("invalid override type %q: use json, merge or strategic", o.OverrideType)
	}
	patch, err := yaml.YAMLToJSON([]byte(o.Override))
	if err != nil {
		return nil, fmt.Errorf("--overrides: %w", err)
	}
	gvk := obj.GroupVersionKind()
	t := target{Kind: &rest.Kind{GroupVersionKind: gvk}, Name: obj.GetName(), Object: obj}
	after, err := patchedLocally(t, pt, patch)
	if err != nil {
		return nil, fmt.Errorf("--overrides: %w", err)
	}
	if after.GroupVersionKind() != gvk {
		return nil, fmt.Errorf("--overrides: the object must stay a %s of %s", gvk.Kind, gvk.GroupVersion())
	}
	body, err := after.MarshalJSON()
	if err != nil {
		return nil, err
	}
	if err := scheme.DecodeFile(body, gvk, scheme.New().ByKind(gvk).New()); err != nil {
		return nil, fmt.Errorf("--overrides: %w", err)
	}
	return after, nil
}
