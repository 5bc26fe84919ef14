package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/cli/rest"
)

// setOptions are the flags of the subcommands of set. Objects are patched, so that
// fields that others change meanwhile stay as they are.
type setOptions struct {
	change
	containers string // patterns of the names that are changed; * for all
	// patch returns the changes of a pod spec with the chosen containers.
	patch func([]container) (map[string]any, error)
	verb  string
}

// container is a container or an init container of a pod spec.
type container struct {
	Name string
	Init bool
	Spec map[string]any
}

// updated returns what is reported of an object, as kubectl does: "image updated".
func updated(what string) string {
	if what == "resources" {
		what = "resource requirements"
	}
	return what + " updated"
}

type runSetFunc = func(context.Context, *setOptions) error

func newSet(f *Factory, run runSetFunc) *cobra.Command {
	return group("set", "Set specific features on objects", newSetImage(f, run), newSetEnv(f, runSetEnv), newSetResources(f, run),
		newSetSelector(f, runSetField), newSetServiceAccount(f, run), newSetSubject(f, runSetField))
}

// setter completes a subcommand. Arguments for which isValue returns true are values, the
// others select objects.
func setter(f *Factory, run runSetFunc, cmd *cobra.Command, isValue func(string) bool, patch func(values []string, chosen []container) (map[string]any, error)) (*cobra.Command, *setOptions) {
	what, _, _ := strings.Cut(cmd.Use, " ")
	o := &setOptions{change: change{Factory: f}, containers: "*", verb: updated(what)}
	cmd.ValidArgsFunction = f.completeResources
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		values := o.split(args, isValue)
		o.patch = func(chosen []container) (map[string]any, error) { return patch(values, chosen) }
		return run(cmd.Context(), o)
	}
	o.labelFlag(cmd)
	o.flags(cmd)
	return cmd, o
}

// flags adds the flags that all subcommands about pod specs have.
func (o *setOptions) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.All, "all", false, "select all resources in the namespace of the specified resource types")
	o.writeFlags(cmd, "the objects")
	o.localFlag(cmd)
}

// split returns the arguments that are values; the others select objects.
func (o *setOptions) split(args []string, isValue func(string) bool) (values []string) {
	for _, arg := range args {
		if isValue(arg) {
			values = append(values, arg)
		} else {
			o.Args = append(o.Args, arg)
		}
	}
	return values
}

func (o *setOptions) containersFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.containers, "containers", "c", "*", "names of the containers to change, separated by commas; may use wildcards")
}

func assigns(arg string) bool { return strings.Contains(arg, "=") }

func newSetImage(f *Factory, run runSetFunc) *cobra.Command {
	cmd, _ := setter(f, run, &cobra.Command{
		Use: "image TYPE/NAME CONTAINER=IMAGE...", Short: "Update the image of a pod template",
		Example: "  podium set image deployment/web web=registry.example/web:2",
	}, assigns, func(values []string, chosen []container) (map[string]any, error) {
		if len(values) == 0 {
			return nil, errors.New("at least one CONTAINER=IMAGE is required")
		}
		images := map[string]string{}
		for _, v := range values {
			name, image, _ := strings.Cut(v, "=")
			if name != "*" && !slices.ContainsFunc(chosen, func(c container) bool { return c.Name == name }) {
				return nil, fmt.Errorf("unable to find container named %q", name)
			}
			images[name] = image
		}
		return eachContainer(chosen, func(c container) map[string]any {
			image, ok := images[c.Name]
			if !ok {
				image, ok = images["*"]
			}
			if !ok {
				return nil
			}
			return map[string]any{"image": image}
		}), nil
	})
	return cmd
}

func newSetResources(f *Factory, run runSetFunc) *cobra.Command {
	var limits, requests []string
	cmd, o := setter(f, run, &cobra.Command{
		Use: "resources TYPE/NAME --requests=RESOURCE=AMOUNT,... --limits=...", Short: "Update resource requests and limits on a pod template",
	}, func(string) bool { return false }, func(_ []string, chosen []container) (map[string]any, error) {
		changed := map[string]any{}
		for field, pairs := range map[string][]string{"limits": limits, "requests": requests} {
			list, err := amounts("--"+field, pairs)
			if err != nil {
				return nil, err
			}
			if len(list) > 0 {
				changed[field] = list
			}
		}
		if len(changed) == 0 {
			return nil, errors.New("you must specify an update to requests or limits (in the form of --requests/--limits)")
		}
		return eachContainer(chosen, func(container) map[string]any { return map[string]any{"resources": changed} }), nil
	})
	o.containersFlag(cmd)
	cmd.Flags().StringSliceVar(&limits, "limits", nil, "limits, as RESOURCE=AMOUNT pairs")
	cmd.Flags().StringSliceVar(&requests, "requests", nil, "requests, as RESOURCE=AMOUNT pairs")
	return cmd
}

func newSetServiceAccount(f *Factory, run runSetFunc) *cobra.Command {
	o := &setOptions{change: change{Factory: f}, containers: "*", verb: updated("serviceaccount")}
	cmd := &cobra.Command{
		Use: "serviceaccount TYPE/NAME ACCOUNT", Aliases: []string{"sa"}, Short: "Update the service account of a resource", Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: f.completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			account := args[len(args)-1]
			o.Args = args[:len(args)-1]
			o.patch = func([]container) (map[string]any, error) { return map[string]any{"serviceAccountName": account}, nil }
			return run(cmd.Context(), o)
		},
	}
	o.flags(cmd)
	return cmd
}

// eachContainer returns the patch of a pod spec with that of each container; nil leaves a
// container out.
func eachContainer(chosen []container, change func(container) map[string]any) map[string]any {
	patch := map[string]any{}
	for _, c := range chosen {
		changed := change(c)
		if changed == nil {
			continue
		}
		changed["name"] = c.Name
		list, _ := patch[c.field()].([]any)
		patch[c.field()] = append(list, changed)
	}
	return patch
}

// field returns the field of a pod spec that lists the container.
func (c container) field() string {
	if c.Init {
		return "initContainers"
	}
	return "containers"
}

func runSet(ctx context.Context, o *setOptions) error {
	return o.each(ctx, true, func(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
		body, err := o.patchOf(t)
		if err != nil {
			return nil, "", err
		}
		if o.Local || o.DryRun == "client" {
			obj, err := patchedLocally(t, types.StrategicMergePatchType, body)
			return obj, o.verb, err
		}
		obj, err := c.Patch(ctx, t.Kind, t.Namespace, t.Name, types.StrategicMergePatchType, body, o.query())
		return obj, o.verb, err
	})
}

// patchOf returns the strategic merge patch for an object.
func (o *setOptions) patchOf(t target) ([]byte, error) {
	path, err := podSpecPath(t)
	if err != nil {
		return nil, err
	}
	chosen, err := o.chosen(t, path)
	if err != nil {
		return nil, err
	}
	patch, err := o.patch(chosen)
	if err != nil {
		return nil, err
	}
	for _, field := range slices.Backward(path) {
		patch = map[string]any{field: patch}
	}
	return json.Marshal(patch)
}

// podSpecPath returns where the pod spec of an object is.
func podSpecPath(t target) ([]string, error) {
	for _, path := range [][]string{{"spec", "template", "spec"}, {"spec", "jobTemplate", "spec", "template", "spec"}, {"template", "spec"}, {"spec"}} {
		if _, ok, _ := unstructured.NestedSlice(t.Object.Object, append(path, "containers")...); ok {
			return path, nil
		}
	}
	return nil, fmt.Errorf("%s has no pod template", t)
}

// allContainers returns the containers of the pod spec at path, then the init
// containers.
func allContainers(obj *rest.Object, path []string) (all []container) {
	for _, kind := range []container{{}, {Init: true}} {
		list, _, _ := unstructured.NestedSlice(obj.Object, slices.Concat(path, []string{kind.field()})...)
		for _, c := range list {
			if spec, ok := c.(map[string]any); ok {
				all = append(all, container{Name: fmt.Sprint(spec["name"]), Init: kind.Init, Spec: spec})
			}
		}
	}
	return all
}

// chosen returns the containers to change.
func (o *setOptions) chosen(t target, at []string) (chosen []container, err error) {
	all := allContainers(t.Object, at)
	for pattern := range strings.SplitSeq(o.containers, ",") {
		found := false
		for _, c := range all {
			match, err := path.Match(pattern, c.Name)
			if err != nil {
				return nil, fmt.Errorf("--containers %q: %w", pattern, err)
			}
			found = found || match
			if match && !slices.ContainsFunc(chosen, func(have container) bool { return have.Name == c.Name }) {
				chosen = append(chosen, c)
			}
		}
		if !found {
			return nil, fmt.Errorf("%s has no container %q; it has %s", t, pattern, containerNames(all))
		}
	}
	return chosen, nil
}

func containerNames(all []container) string {
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}
