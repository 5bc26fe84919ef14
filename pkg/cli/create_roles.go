package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func rbac(kind string) schema.GroupVersionKind { return rbacv1.SchemeGroupVersion.WithKind(kind) }

// ruleFlags are the flags for the rules of a role.
type ruleFlags struct {
	verbs, resources, names, urls []string
	aggregate                     map[string]string
}

func (r *ruleFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringSliceVar(&r.verbs, "verb", nil, "verbs that apply to the resources contained in the rule (get,list,watch,...; * for all)")
	fs.StringSliceVar(&r.resources, "resource", nil, "resources that the rule applies to: pods, deployments.apps, pods/log")
	fs.StringArrayVar(&r.names, "resource-name", nil, "resource name that the rule applies to; may be repeated")
}

// rules converts the flags to rules, one for each API group. It asks the server
// for the groups of resources.
func (r *ruleFlags) rules(ctx context.Context, f *Factory) ([]rbacv1.PolicyRule, error) {
	verbs := unique(r.verbs)
	if slices.Contains(verbs, "*") {
		verbs = []string{"*"}
	}
	var out []rbacv1.PolicyRule
	byGroup := map[string][]string{}
	for _, word := range unique(r.resources) {
		group, resource, err := locate(ctx, f, word)
		if err != nil {
			return nil, err
		}
		byGroup[group] = append(byGroup[group], resource)
	}
	for _, group := range slices.Sorted(maps.Keys(byGroup)) {
		out = append(out, rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{group}, Resources: byGroup[group], ResourceNames: unique(r.names)})
	}
	if urls := unique(r.urls); len(urls) > 0 {
		out = append(out, rbacv1.PolicyRule{Verbs: verbs, NonResourceURLs: urls})
	}
	return out, nil
}

// check reports missing flags.
func (r *ruleFlags) check(urls bool) error {
	switch {
	case len(r.verbs) == 0:
		return errors.New("at least one verb must be specified")
	case urls && len(r.resources) == 0 && len(r.urls) == 0:
		return errors.New("one of resource or nonResourceURL must be specified")
	case !urls && len(r.resources) == 0:
		return errors.New("at least one resource must be specified")
	case len(r.names) > 0 && len(r.resources) == 0:
		return errors.New("invalid resource(s) specified: --resource-name needs a --resource")
	}
	return nil
}

// locate returns the group and resource of a word like pods, deployments.apps
// or pods/log.
func locate(ctx context.Context, f *Factory, word string) (group, resource string, err error) {
	name, sub, _ := strings.Cut(word, "/")
	if name == "*" {
		return "*", word, nil
	}
	c, err := f.Cluster()
	if err != nil {
		return "", "", err
	}
	kind, err := c.Find(ctx, name)
	if err != nil {
		return "", "", err
	}
	if sub != "" {
		return kind.Group, kind.Resource + "/" + sub, nil
	}
	return kind.Group, kind.Resource, nil
}

func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if s = strings.TrimSpace(s); s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func newCreateRole(f *Factory, run runCreateFunc) *cobra.Command {
	var flags ruleFlags
	var cmd *cobra.Command
	cmd = creator(f, run, &cobra.Command{
		Use: "role NAME --verb=VERB --resource=RESOURCE", Short: "Create a role with a single rule",
		Example: "  podium create role reader --verb=get,list,watch --resource=pods,pods/log",
	}, func(name, ns string) (runtime.Object, schema.GroupVersionKind, error) {
		if err := flags.check(false); err != nil {
			return nil, schema.GroupVersionKind{}, err
		}
		rules, err := flags.rules(cmd.Context(), f)
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Rules: rules}, rbac("Role"), err
	})
	flags.add(cmd)
	return cmd
}

func newCreateClusterRole(f *Factory, run runCreateFunc) *cobra.Command {
	var flags ruleFlags
	var cmd *cobra.Command
	cmd = creator(f, run, &cobra.Command{
		Use: "clusterrole NAME --verb=VERB --resource=RESOURCE", Short: "Create a cluster role",
		Example: "  podium create clusterrole metrics --verb=get --non-resource-url=/metrics",
	}, func(name, _ string) (runtime.Object, schema.GroupVersionKind, error) {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if len(flags.aggregate) > 0 {
			if len(flags.verbs)+len(flags.resources)+len(flags.urls)+len(flags.names) > 0 {
				return nil, schema.GroupVersionKind{}, errors.New("aggregation rule must be specified without nonResourceURL, resourceName, resource or verb")
			}
			role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: flags.aggregate}}}
			return role, rbac("ClusterRole"), nil
		}
		err := flags.check(true)
		if err == nil {
			role.Rules, err = flags.rules(cmd.Context(), f)
		}
		return role, rbac("ClusterRole"), err
	})
	flags.add(cmd)
	cmd.Flags().StringSliceVar(&flags.urls, "non-resource-url", nil, "non-resource URLs that the rule applies to: /metrics, /healthz/*")
	cmd.Flags().StringToStringVar(&flags.aggregate, "aggregation-rule", nil, "label selector for combining ClusterRoles (a=b,c=d)")
	return cmd
}

// subjectFlags are the subjects of a binding.
type subjectFlags struct{ users, groups, accounts []string }

func (s *subjectFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&s.users, "user", nil, "user to bind to the role; may be repeated")
	cmd.Flags().StringArrayVar(&s.groups, "group", nil, "group to bind to the role; may be repeated")
	cmd.Flags().StringArrayVar(&s.accounts, "serviceaccount", nil, "service account to bind to the role, NAMESPACE:NAME; may be repeated")
}

func (s *subjectFlags) subjects() ([]rbacv1.Subject, error) {
	var out []rbacv1.Subject
	for _, name := range s.users {
		out = append(out, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name})
	}
	for _, name := range s.groups {
		out = append(out, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name})
	}
	for _, account := range s.accounts {
		namespace, name, ok := strings.Cut(account, ":")
		if !ok || namespace == "" || name == "" || strings.Contains(name, ":") {
			return nil, fmt.Errorf("serviceaccount must be <namespace>:<name>, not %q", account)
		}
		out = append(out, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name})
	}
	return out, nil
}

func newCreateRoleBinding(f *Factory, run runCreateFunc) *cobra.Command {
	var flags subjectFlags
	var role, clusterRole string
	cmd := creator(f, run, &cobra.Command{
		Use:   "rolebinding NAME --role=NAME|--clusterrole=NAME [--user=NAME] [--group=NAME] [--serviceaccount=NAMESPACE:NAME]",
		Short: "Create a role binding in a namespace",
	}, func(name, ns string) (runtime.Object, schema.GroupVersionKind, error) {
		if (role == "") == (clusterRole == "") {
			return nil, schema.GroupVersionKind{}, errors.New("exactly one of clusterrole or role must be specified")
		}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role}
		if clusterRole != "" {
			ref.Kind, ref.Name = "ClusterRole", clusterRole
		}
		subjects, err := flags.subjects()
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, RoleRef: ref, Subjects: subjects}, rbac("RoleBinding"), err
	})
	flags.add(cmd)
	cmd.Flags().StringVar(&role, "role", "", "role that this binding refers to, in the same namespace")
	cmd.Flags().StringVar(&clusterRole, "clusterrole", "", "cluster role that this binding refers to")
	return cmd
}

func newCreateClusterRoleBinding(f *Factory, run runCreateFunc) *cobra.Command {
	var flags subjectFlags
	var clusterRole string
	cmd := creator(f, run, &cobra.Command{
		Use:   "clusterrolebinding NAME --clusterrole=NAME [--user=NAME] [--group=NAME] [--serviceaccount=NAMESPACE:NAME]",
		Short: "Create a cluster role binding",
	}, func(name, _ string) (runtime.Object, schema.GroupVersionKind, error) {
		if clusterRole == "" {
			return nil, schema.GroupVersionKind{}, errors.New("exactly one clusterrole must be specified")
		}
		subjects, err := flags.subjects()
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole},
		}, rbac("ClusterRoleBinding"), err
	})
	flags.add(cmd)
	cmd.Flags().StringVar(&clusterRole, "clusterrole", "", "cluster role that this binding refers to")
	return cmd
}
