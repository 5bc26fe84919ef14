package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/cli/rest"
)

// fieldOptions are the flags of set selector and set subject, which replace a field
// of the object itself.
type fieldOptions struct {
	change
	ResourceVersion string
	verb            string
	// edit changes the object. It returns the merge patch that does the same, nil
	// without changes.
	edit func(t target) (map[string]any, error)
}

type runFieldFunc = func(context.Context, *fieldOptions) error

func newSetSelector(f *Factory, run runFieldFunc) *cobra.Command {
	o := &fieldOptions{change: change{Factory: f}, verb: "selector updated"}
	cmd := &cobra.Command{
		Use: "selector TYPE NAME SELECTOR", Short: "Set the selector on a resource",
		Example:           "  podium set selector service web app=web,version=2",
		ValidArgsFunction: f.completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("one selector is required")
			}
			selector, err := metav1.ParseToLabelSelector(args[len(args)-1])
			if err != nil {
				return err
			}
			o.Args = args[:len(args)-1]
			o.edit = func(t target) (map[string]any, error) { return setSelector(t, selector) }
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.All, "all", false, "select all resources in the namespace of the specified resource types")
	cmd.Flags().StringVar(&o.ResourceVersion, "resource-version", "", "update the selector only if this is the resource version of the object")
	o.writeFlags(cmd, "the objects")
	o.localFlag(cmd)
	return cmd
}

// setSelector replaces the selector of a Service.
func setSelector(t target, selector *metav1.LabelSelector) (map[string]any, error) {
	if t.Kind.Group != "" || t.Kind.Kind != "Service" {
		return nil, errors.New("setting a selector is only supported for Services")
	}
	if len(selector.MatchExpressions) > 0 {
		return nil, fmt.Errorf("match expression %v not supported on this object", selector.MatchExpressions)
	}
	patch := map[string]any{}
	before, _, _ := unstructured.NestedStringMap(t.Object.Object, "spec", "selector")
	for key := range before {
		patch[key] = nil
	}
	for key, value := range selector.MatchLabels {
		patch[key] = value
	}
	err := unstructured.SetNestedStringMap(t.Object.Object, selector.MatchLabels, "spec", "selector")
	return map[string]any{"spec": map[string]any{"selector": patch}}, err
}

// subjects are the flags of set subject.
type subjects struct{ users, groups, accounts []string }

func newSetSubject(f *Factory, run runFieldFunc) *cobra.Command {
	o := &fieldOptions{change: change{Factory: f}, verb: "subjects updated"}
	var s subjects
	cmd := &cobra.Command{
		Use: "subject TYPE NAME", Short: "Update the user, group, or service account in a role binding or cluster role binding",
		Example:           "  podium set subject rolebinding admins --user=ann --group=operators --serviceaccount=team:deployer",
		ValidArgsFunction: f.completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.check(); err != nil {
				return err
			}
			if o.All && o.Labels != "" {
				return errors.New("cannot set --all and --selector at the same time")
			}
			namespace, _, err := f.Namespace()
			if err != nil {
				return err
			}
			o.Args = args
			o.edit = func(t target) (map[string]any, error) { return addSubjects(t, s, namespace) }
			return run(cmd.Context(), o)
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.All, "all", false, "select all resources in the namespace of the specified resource types")
	fs.StringArrayVar(&s.users, "user", nil, "usernames to bind to the role")
	fs.StringArrayVar(&s.groups, "group", nil, "groups to bind to the role")
	fs.StringArrayVar(&s.accounts, "serviceaccount", nil, "service accounts to bind to the role, as NAMESPACE:NAME")
	o.labelFlag(cmd)
	o.writeFlags(cmd, "the role bindings")
	o.localFlag(cmd)
	return cmd
}

func (s subjects) check() error {
	if len(s.users)+len(s.groups)+len(s.accounts) == 0 {
		return errors.New("you must specify at least one value of user, group or serviceaccount")
	}
	for _, account := range s.accounts {
		if _, name, ok := strings.Cut(account, ":"); !ok || name == "" || strings.Contains(name, ":") {
			return errors.New("serviceaccount must be <namespace>:<name>")
		}
	}
	return nil
}

// list returns the subjects, sorted. namespace is that of service accounts without
// one.
func (s subjects) list(namespace string) []rbacv1.Subject {
	var out []rbacv1.Subject
	for _, name := range slices.Compact(slices.Sorted(slices.Values(s.users))) {
		out = append(out, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name})
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(s.groups))) {
		out = append(out, rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name})
	}
	for _, account := range slices.Compact(slices.Sorted(slices.Values(s.accounts))) {
		own, name, _ := strings.Cut(account, ":")
		if own == "" {
			own = namespace
		}
		out = append(out, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: own, Name: name})
	}
	return out
}

// addSubjects adds the subjects that a binding does not have.
func addSubjects(t target, s subjects, namespace string) (map[string]any, error) {
	if t.Kind.Group != rbacv1.GroupName || (t.Kind.Kind != "RoleBinding" && t.Kind.Kind != "ClusterRoleBinding") {
		return nil, errors.New("setting subjects is only supported for RoleBinding/ClusterRoleBinding")
	}
	if !t.Kind.Namespaced {
		if i := slices.IndexFunc(s.accounts, func(a string) bool { return strings.HasPrefix(a, ":") }); i >= 0 {
			return nil, errors.New("serviceaccount must be <namespace>:<name>, namespace must be specified")
		}
	}
	var binding rbacv1.RoleBinding // a ClusterRoleBinding has the same subjects
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(t.Object.Object, &binding); err != nil {
		return nil, err
	}
	before := len(binding.Subjects)
	for _, subject := range s.list(namespace) {
		if !slices.Contains(binding.Subjects, subject) {
			binding.Subjects = append(binding.Subjects, subject)
		}
	}
	if len(binding.Subjects) == before {
		return nil, nil
	}
	all, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&binding)
	if err != nil {
		return nil, err
	}
	t.Object.Object["subjects"] = all["subjects"]
	return map[string]any{"subjects": all["subjects"]}, nil
}

func runSetField(ctx context.Context, o *fieldOptions) error {
	if err := o.localVersion(o.ResourceVersion); err != nil {
		return err
	}
	return o.each(ctx, true, func(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
		version := o.ResourceVersion
		if version == "" && t.Source == "" {
			version = t.Object.GetResourceVersion() // the patch replaces what was read
		}
		patch, err := o.edit(t)
		if err != nil || patch == nil || o.Local || o.DryRun == "client" {
			verb := o.verb
			if patch == nil {
				verb = "" // no changes
			}
			return t.Object, verb, err
		}
		if version != "" {
			patch["metadata"] = map[string]any{"resourceVersion": version}
		}
		body, err := json.Marshal(patch)
		if err != nil {
			return nil, "", err
		}
		obj, err := c.Patch(ctx, t.Kind, t.Namespace, t.Name, types.MergePatchType, body, o.query())
		return obj, o.verb, err
	})
}
