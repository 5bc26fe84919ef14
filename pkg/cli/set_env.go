package cli

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"podium/pkg/cli/rest"
)

// envOptions are the flags of set env.
type envOptions struct {
	*setOptions
	Changes   []string // KEY=VALUE, KEY-, and - for standard input
	From      string   // TYPE/NAME of a ConfigMap or Secret
	Keys      []string // of From
	Prefix    string
	List      bool
	Resolve   bool
	Overwrite bool

	set    []corev1.EnvVar
	remove []string
}

func newSetEnv(f *Factory, run func(context.Context, *envOptions) error) *cobra.Command {
	o := &envOptions{setOptions: &setOptions{change: change{Factory: f}, verb: updated("env")}}
	var env []string
	cmd := &cobra.Command{
		Use: "env TYPE/NAME KEY=VALUE... KEY-...", Short: "Update environment variables on a pod template",
		Example: `  podium set env deployment/web MODE=fast DEBUG-
  podium set env deployment/web --from=secret/database --prefix=DB_
  podium set env deployment/web --list
  env | grep RAILS_ | podium set env -e - deployment/web`,
		ValidArgsFunction: f.completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Changes = append(env, o.split(args, func(arg string) bool { return assigns(arg) || strings.HasSuffix(arg, "-") })...)
			return run(cmd.Context(), o)
		},
	}
	o.labelFlag(cmd)
	o.flags(cmd)
	o.containersFlag(cmd)
	fs := cmd.Flags()
	fs.StringArrayVarP(&env, "env", "e", nil, "environment variable to set, as KEY=VALUE; -: read them from standard input, a line each")
	fs.StringVar(&o.From, "from", "", "configmap/NAME or secret/NAME: set a variable for each of its keys")
	fs.StringSliceVar(&o.Keys, "keys", nil, "the keys of --from to import (default: all)")
	fs.StringVar(&o.Prefix, "prefix", "", "prefix of the names of the variables to set")
	fs.BoolVar(&o.List, "list", false, "print the environment with the changes; nothing is written")
	fs.BoolVar(&o.Resolve, "resolve", false, "with --list: print the values that configmaps, secrets and fields have")
	fs.BoolVar(&o.Overwrite, "overwrite", true, "allow variables to be overwritten; false: refuse")
	return cmd
}

// checkEnv reports flags that do not go together.
func (o *envOptions) checkEnv() error {
	switch {
	case len(o.Keys) > 0 && o.From == "":
		return errors.New("--keys selects keys of --from: specify a configmap or secret with --from")
	case o.Resolve && !o.List:
		return errors.New("--resolve is only for --list")
	case o.List && o.options().Format != "":
		return errors.New("--list and --output may not be specified together")
	case o.Local && (o.From != "" || o.Resolve):
		return errors.New("--from and --resolve read from the API server: they cannot be used with --local")
	case !o.List && o.From == "" && len(o.Changes) == 0:
		return errors.New("at least one KEY=VALUE or KEY- is required, or --from, or --list")
	}
	return nil
}

func runSetEnv(ctx context.Context, o *envOptions) error {
	if err := o.checkEnv(); err != nil {
		return err
	}
	if err := o.parse(); err != nil {
		return err
	}
	if err := o.importKeys(ctx); err != nil {
		return err
	}
	for i := range o.set {
		o.set[i].Name = o.Prefix + o.set[i].Name
	}
	o.patch = o.envPatch
	if !o.List {
		return runSet(ctx, o.setOptions)
	}
	return o.each(ctx, true, func(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
		return nil, "", o.list(ctx, c, t)
	})
}

// parse reads the changes in the arguments and in standard input.
func (o *envOptions) parse() error {
	for _, arg := range o.Changes {
		lines := []string{arg}
		if arg == "-" {
			text, err := readAll(o.In)
			if err != nil {
				return err
			}
			lines = nil
			for scan := bufio.NewScanner(strings.NewReader(string(text))); scan.Scan(); {
				lines = append(lines, scan.Text())
			}
		}
		for _, line := range lines {
			if err := o.parseOne(line); err != nil {
				return err
			}
		}
	}
	for _, v := range o.set {
		if slices.Contains(o.remove, v.Name) {
			return fmt.Errorf("can not both modify and remove the environment variable %s in the same command", v.Name)
		}
	}
	return nil
}

func (o *envOptions) parseOne(text string) error {
	name, value, sets := strings.Cut(text, "=")
	if !sets {
		key, removes := strings.CutSuffix(text, "-")
		if !removes {
			return fmt.Errorf("%q: want KEY=VALUE, or KEY- to remove", text)
		}
		o.remove = append(o.remove, key)
		return nil
	}
	if errs := validation.IsEnvVarName(name); len(errs) > 0 {
		return fmt.Errorf("%q is not a valid key name: %s", name, strings.Join(errs, "; "))
	}
	o.add(corev1.EnvVar{Name: name, Value: value})
	return nil
}

// add sets a variable, instead of one of the same name that was added before.
func (o *envOptions) add(v corev1.EnvVar) {
	o.set = append(slices.DeleteFunc(o.set, func(have corev1.EnvVar) bool { return have.Name == v.Name }), v)
}

var notInNames = regexp.MustCompile(`[^a-zA-Z0-9_]`)

// importKeys adds a variable for each key of --from.
func (o *envOptions) importKeys(ctx context.Context) error {
	if o.From == "" {
		return nil
	}
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	namespace, _, err := o.Namespace()
	if err != nil {
		return err
	}
	from := selection{Args: []string{o.From}}
	found, err := from.parse(ctx, c)
	if err != nil {
		return err
	}
	k := found[0].Kind
	if k.Group != "" || k.Kind != "ConfigMap" && k.Kind != "Secret" || len(found[0].Names) != 1 {
		return fmt.Errorf("--from=%s: want configmap/NAME or secret/NAME", o.From)
	}
	name := found[0].Names[0]
	obj, err := c.Get(ctx, k, namespace, name)
	if err != nil {
		return err
	}
	data, _, _ := unstructured.NestedMap(obj.Object, "data")
	for _, key := range o.Keys {
		if _, ok := data[key]; !ok {
			return fmt.Errorf("%s has no key %q", o.From, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if len(o.Keys) == 0 || slices.Contains(o.Keys, key) {
			o.add(corev1.EnvVar{Name: strings.ToUpper(notInNames.ReplaceAllString(key, "_")), ValueFrom: keyOf(k.Kind, name, key)})
		}
	}
	return nil
}

// keyOf refers to a key of a ConfigMap or Secret.
func keyOf(kind, name, key string) *corev1.EnvVarSource {
	ref := corev1.LocalObjectReference{Name: name}
	if kind == "Secret" {
		return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref, Key: key}}
	}
	return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref, Key: key}}
}

// envPatch returns the changes of a pod spec.
func (o *envOptions) envPatch(chosen []container) (map[string]any, error) {
	patches := map[string]map[string]any{}
	for _, c := range chosen {
		patch, err := o.containerPatch(c)
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", c.Name, err)
		}
		patches[c.Name] = patch
	}
	return eachContainer(chosen, func(c container) map[string]any { return patches[c.Name] }), nil
}

// containerPatch returns the changes of a container. New variables are the last ones,
// since they may refer to those before them.
func (o *envOptions) containerPatch(c container) (map[string]any, error) {
	have, err := envOf(c)
	if err != nil {
		return nil, err
	}
	var env, order []any
	for _, v := range have {
		if !slices.Contains(o.remove, v.Name) {
			order = append(order, map[string]any{"name": v.Name})
		}
	}
	for _, v := range o.set {
		var before *corev1.EnvVar
		if i := slices.IndexFunc(have, func(h corev1.EnvVar) bool { return h.Name == v.Name }); i >= 0 {
			before = &have[i]
		}
		if before == nil {
			order = append(order, map[string]any{"name": v.Name})
		} else if !o.Overwrite {
			return nil, fmt.Errorf("'%s' already has a value (%s), and --overwrite is false", v.Name, before.Value)
		}
		patch, err := variablePatch(before, v)
		if err != nil {
			return nil, err
		}
		env = append(env, patch)
	}
	for _, v := range have {
		if slices.Contains(o.remove, v.Name) {
			env = append(env, map[string]any{"name": v.Name, "$patch": "delete"})
		}
	}
	if len(env) == 0 {
		return nil, nil
	}
	return map[string]any{"env": env, "$setElementOrder/env": order}, nil
}

// variablePatch returns the patch that sets a variable; before is nil for a new one. A
// merge alone would keep the value or the source that the variable has.
func variablePatch(before *corev1.EnvVar, v corev1.EnvVar) (map[string]any, error) {
	patch, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v)
	if err != nil || before == nil {
		return patch, err
	}
	from, _ := patch["valueFrom"].(map[string]any)
	switch {
	case from != nil && before.ValueFrom != nil:
		from["$patch"] = "replace"
	case from != nil:
		patch["value"] = nil
	default:
		patch["value"] = v.Value // also if it is empty
		if before.ValueFrom != nil {
			patch["valueFrom"] = nil
		}
	}
	return patch, nil
}

func envOf(c container) ([]corev1.EnvVar, error) {
	raw, err := json.Marshal(c.Spec["env"])
	if err != nil {
		return nil, err
	}
	var env []corev1.EnvVar
	if err := json.Unmarshal(raw, &env); err != nil {
		return nil, fmt.Errorf("environment of container %s: %w", c.Name, err)
	}
	return env, nil
}

// list prints the environment that each container has after the changes.
func (o *envOptions) list(ctx context.Context, c *rest.Cluster, t target) error {
	body, err := o.patchOf(t)
	if err != nil {
		return err
	}
	after, err := patchedLocally(t, types.StrategicMergePatchType, body)
	if err != nil {
		return err
	}
	t.Object = after
	at, err := podSpecPath(t)
	if err != nil {
		return err
	}
	chosen, err := o.chosen(t, at)
	if err != nil {
		return err
	}
	var errs []error
	for _, one := range chosen {
		env, err := envOf(one)
		if err != nil {
			return err
		}
		fmt.Fprintf(o.Out, "# %s %s, container %s\n", t.Kind.Kind, t.Name, one.Name)
		for _, v := range env {
			errs = append(errs, o.show(ctx, c, t, v))
		}
	}
	return errors.Join(errs...)
}

// show prints one variable: its value, or where it is from.
func (o *envOptions) show(ctx context.Context, c *rest.Cluster, t target, v corev1.EnvVar) (err error) {
	value := v.Value
	if v.ValueFrom != nil {
		if o.Resolve {
			value, err = resolveEnv(ctx, c, t, v.ValueFrom)
		}
		if !o.Resolve || err != nil {
			fmt.Fprintf(o.Out, "# %s from %s\n", v.Name, sourceText(v.ValueFrom))
			return err
		}
	}
	fmt.Fprintf(o.Out, "%s=%s\n", v.Name, value)
	return nil
}

// sourceText names the source of a variable as kubectl does.
func sourceText(from *corev1.EnvVarSource) string {
	switch {
	case from.ConfigMapKeyRef != nil:
		return fmt.Sprintf("configmap %s, key %s", from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key)
	case from.SecretKeyRef != nil:
		return fmt.Sprintf("secret %s, key %s", from.SecretKeyRef.Name, from.SecretKeyRef.Key)
	case from.FieldRef != nil:
		return "field path " + from.FieldRef.FieldPath
	case from.ResourceFieldRef != nil && from.ResourceFieldRef.ContainerName != "":
		return "resource field " + from.ResourceFieldRef.ContainerName + "/" + from.ResourceFieldRef.Resource
	case from.ResourceFieldRef != nil:
		return "resource field " + from.ResourceFieldRef.Resource
	case from.FileKeyRef != nil:
		return fmt.Sprintf("file %s of volume %s, key %s", from.FileKeyRef.Path, from.FileKeyRef.VolumeName, from.FileKeyRef.Key)
	}
	return "an unknown source"
}

// resolveEnv returns the value that a source has now. What only a running container
// knows is an error.
func resolveEnv(ctx context.Context, c *rest.Cluster, t target, from *corev1.EnvVarSource) (string, error) {
	switch {
	case from.ConfigMapKeyRef != nil:
		return keyValue(ctx, c, t, "configmaps", from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key)
	case from.SecretKeyRef != nil:
		return keyValue(ctx, c, t, "secrets", from.SecretKeyRef.Name, from.SecretKeyRef.Key)
	case from.FieldRef != nil:
		value, found, err := unstructured.NestedString(t.Object.Object, strings.Split(from.FieldRef.FieldPath, ".")...)
		if found && err == nil {
			return value, nil
		}
	}
	return "", fmt.Errorf("%s: only a running container knows the value of %s", t, sourceText(from))
}

// keyValue reads a key of a ConfigMap or Secret.
func keyValue(ctx context.Context, c *rest.Cluster, t target, resource, name, key string) (string, error) {
	k, err := c.Find(ctx, resource)
	if err != nil {
		return "", err
	}
	obj, err := c.Get(ctx, k, t.Namespace, name)
	if err != nil {
		return "", err
	}
	value, ok, err := unstructured.NestedString(obj.Object, "data", key)
	if err != nil {
		return "", err
	}
	if k.Kind == "Secret" {
		plain, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return "", fmt.Errorf("%s/%s, key %s: %w", k, name, key, err)
		}
		value = string(plain)
	}
	if !ok {
		return "", fmt.Errorf("%s/%s has no key %s", k, name, key)
	}
	return value, nil
}
