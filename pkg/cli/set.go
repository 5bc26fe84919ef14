package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	containers string // names that are changed; * for all
	// patch returns the changes of a pod spec, or of the object if it has none.
	patch func(names []string) (map[string]any, error)
	verb  string
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
	return group("set", "Set specific features on objects", newSetImage(f, run), newSetEnv(f, run), newSetResources(f, run),
		newSetSelector(f, runSetField), newSetServiceAccount(f, run), newSetSubject(f, runSetField))
}

// setter completes a subcommand. Arguments for which isValue returns true are values, the
// others select objects.
func setter(f *Factory, run runSetFunc, cmd *cobra.Command, isValue func(string) bool, patch func(values, names []string) (map[string]any, error)) (*cobra.Command, *setOptions) {
	what, _, _ := strings.Cut(cmd.Use, " ")
	o := &setOptions{change: change{Factory: f}, containers: "*", verb: updated(what)}
	cmd.ValidArgsFunction = f.completeResources
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var values []string
		for _, arg := range args {
			if isValue(arg) {
				values = append(values, arg)
			} else {
				o.Args = append(o.Args, arg)
			}
		}
		o.patch = func(names []string) (map[string]any, error) { return patch(values, names) }
		return run(cmd.Context(), o)
	}
	cmd.Flags().BoolVar(&o.All, "all", false, "select all resources in the namespace of the specified resource types")
	o.labelFlag(cmd)
	o.writeFlags(cmd, "the objects")
	return cmd, o
}

func assigns(arg string) bool { return strings.Contains(arg, "=") }

func newSetImage(f *Factory, run runSetFunc) *cobra.Command {
	cmd, _ := setter(f, run, &cobra.Command{
		Use: "image TYPE/NAME CONTAINER=IMAGE...", Short: "Update the image of a pod template",
		Example: "  podium set image deployment/web web=registry.example/web:2",
	}, assigns, func(values, names []string) (map[string]any, error) {
		if len(values) == 0 {
			return nil, errors.New("at least one CONTAINER=IMAGE is required")
		}
		images := map[string]string{}
		for _, v := range values {
			name, image, _ := strings.Cut(v, "=")
			if name != "*" && !slices.Contains(names, name) {
				return nil, fmt.Errorf("unable to find container named %q", name)
			}
			images[name] = image
		}
		return eachContainer(names, func(name string) map[string]any {
			image, ok := images[name]
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

func newSetEnv(f *Factory, run runSetFunc) *cobra.Command {
	cmd, o := setter(f, run, &cobra.Command{
		Use: "env TYPE/NAME KEY=VALUE... KEY-...", Short: "Update environment variables on a pod template",
		Example: "  podium set env deployment/web MODE=fast DEBUG-",
	}, func(arg string) bool { return assigns(arg) || strings.HasSuffix(arg, "-") }, func(values, names []string) (map[string]any, error) {
		if len(values) == 0 {
			return nil, errors.New("at least one KEY=VALUE or KEY- is required")
		}
		var env []any
		for _, v := range values {
			if key, value, ok := strings.Cut(v, "="); ok {
				env = append(env, map[string]any{"name": key, "value": value, "valueFrom": nil})
			} else {
				env = append(env, map[string]any{"name": strings.TrimSuffix(v, "-"), "$patch": "delete"})
			}
		}
		return eachContainer(names, func(string) map[string]any { return map[string]any{"env": env} }), nil
	})
	cmd.Flags().StringVarP(&o.containers, "containers", "c", "*", "names of the containers to change, separated by commas; *: all")
	return cmd
}

func newSetResources(f *Factory, run runSetFunc) *cobra.Command {
	var limits, requests []string
	cmd, o := setter(f, run, &cobra.Command{
		Use: "resources TYPE/NAME --requests=RESOURCE=AMOUNT,... --limits=...", Short: "Update resource requests and limits on a pod template",
	}, func(string) bool { return false }, func(_, names []string) (map[string]any, error) {
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
		return eachContainer(names, func(string) map[string]any { return map[string]any{"resources": changed} }), nil
	})
	cmd.Flags().StringVarP(&o.containers, "containers", "c", "*", "names of the containers to change, separated by commas; *: all")
	cmd.Flags().StringSliceVar(&limits, "limits", nil, "limits, as RESOURCE=AMOUNT pairs")
	cmd.Flags().StringSliceVar(&requests, "requests", nil, "requests, as RESOURCE=AMOUNT pairs")
	return cmd
}

func newSetServiceAccount(f *Factory, run runSetFunc) *cobra.Command {
	o := &setOptions{change: change{Factory: f}, containers: "*", verb: updated("serviceaccount")}
	cmd := &cobra.Command{
		Use: "serviceaccount TYPE/NAME ACCOUNT", Aliases: []string{"sa"}, Short: "Update the service account of a resource", Args: cobra.MinimumNArgs(2),
		ValidArgsFunction: f.completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			account := args[len(args)-1]
			o.Args = args[:len(args)-1]
			o.patch = func([]string) (map[string]any, error) { return map[string]any{"serviceAccountName": account}, nil }
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.All, "all", false, "select all resources in the namespace of the specified resource types")
	o.writeFlags(cmd, "the objects")
	return cmd
}

// eachContainer returns the patch of a pod spec with that of each container; nil leaves a
// container out.
func eachContainer(names []string, change func(name string) map[string]any) map[string]any {
	var containers []any
	for _, name := range names {
		if patch := change(name); patch != nil {
			patch["name"] = name
			containers = append(containers, patch)
		}
	}
	return map[string]any{"containers": containers}
}

func runSet(ctx context.Context, o *setOptions) error {
	return o.each(ctx, true, func(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
		path, err := podSpecPath(t)
		if err != nil {
			return nil, "", err
		}
		names, err := o.chosen(t, path)
		if err != nil {
			return nil, "", err
		}
		patch, err := o.patch(names)
		if err != nil || o.DryRun == "client" {
			return t.Object, o.verb, err
		}
		for i := len(path) - 1; i >= 0; i-- {
			patch = map[string]any{path[i]: patch}
		}
		body, err := json.Marshal(patch)
		if err != nil {
			return nil, "", err
		}
		obj, err := c.Patch(ctx, t.Kind, t.Namespace, t.Name, types.StrategicMergePatchType, body, o.query())
		return obj, o.verb, err
	})
}

// podSpecPath returns where the pod spec of an object is.
func podSpecPath(t target) ([]string, error) {
	for _, path := range [][]string{{"spec", "template", "spec"}, {"spec", "jobTemplate", "spec", "template", "spec"}, {"spec"}} {
		if _, ok, _ := unstructured.NestedSlice(t.Object.Object, append(path, "containers")...); ok {
			return path, nil
		}
	}
	return nil, fmt.Errorf("%s has no pod template", t)
}

// chosen returns the names of the containers to change.
func (o *setOptions) chosen(t target, path []string) ([]string, error) {
	list, _, _ := unstructured.NestedSlice(t.Object.Object, append(path, "containers")...)
	var all []string
	for _, c := range list {
		if m, ok := c.(map[string]any); ok {
			all = append(all, fmt.Sprint(m["name"]))
		}
	}
	if o.containers == "*" {
		return all, nil
	}
	wanted := strings.Split(o.containers, ",")
	for _, name := range wanted {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("%s has no container %q; it has %s", t, name, strings.Join(all, ", "))
		}
	}
	return wanted, nil
}
