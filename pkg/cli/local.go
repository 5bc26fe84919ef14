package cli

import (
	"context"
	"errors"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"podium/pkg/cli/rest"
	"podium/pkg/scheme"
)

// localFlag adds --local, with which a command changes the objects of files without
// a server and prints them.
func (w *change) localFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.Local, "local", false, "change the objects of -f or -k without contacting the API server")
}

// localVersion refuses --resource-version together with --local.
func (w *change) localVersion(version string) error {
	if w.Local && version != "" {
		return errors.New("--resource-version is of the server: it cannot be used with --local")
	}
	return nil
}

// local returns the objects in files. Their kinds are those of this program; any
// other kind is named as the object names it.
func (s *selection) local(ctx context.Context, f *Factory) ([]target, error) {
	if !s.given() || len(s.Args) > 0 {
		return nil, errors.New("--local works on files: specify -f or -k, and no other resources")
	}
	docs, err := s.read(ctx, f)
	if err != nil {
		return nil, err
	}
	known := scheme.New()
	var out []target
	for _, d := range docs {
		k := &rest.Kind{GroupVersionKind: d.Object.GroupVersionKind()}
		if served := known.ByKind(k.GroupVersionKind); served != nil {
			k.Resource, k.Singular, k.Namespaced = served.Resource, served.Singular, served.Namespaced
		}
		if s.Labels == "" || matchesLabels(s.Labels, d.Object.GetLabels()) {
			out = append(out, target{Kind: k, Namespace: d.Object.GetNamespace(), Name: d.Object.GetName(), Object: d.Object, Source: d.Source})
		}
	}
	return out, nil
}

// patchedLocally returns what a patch makes of an object, without a server. It leaves
// the target's object as it is.
func patchedLocally(t target, pt types.PatchType, patch []byte) (*rest.Object, error) {
	before, err := t.Object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var after []byte
	switch pt {
	case types.StrategicMergePatchType:
		kind := scheme.New().ByKind(t.Kind.GroupVersionKind)
		if kind == nil {
			return nil, fmt.Errorf("%s: strategic merge patches are only for built-in kinds", t)
		}
		after, err = strategicpatch.StrategicMergePatch(before, patch, kind.New())
	case types.MergePatchType:
		after, err = jsonpatch.MergePatch(before, patch)
	default:
		var operations jsonpatch.Patch
		if operations, err = jsonpatch.DecodePatch(patch); err == nil {
			after, err = operations.Apply(before)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("patch %s: %w", t, err)
	}
	obj := &rest.Object{}
	return obj, obj.UnmarshalJSON(after)
}
