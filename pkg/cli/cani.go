package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/cli/output"
	"podium/pkg/cli/rest"
	"podium/pkg/roles"
)

// canIOptions are the flags of auth can-i.
type canIOptions struct {
	*Factory
	Verb, What    string // What is TYPE, TYPE/NAME or a path
	Name          string
	Sub           string
	AllNamespaces bool
	List          bool
	NoHeaders     bool
	Quiet         bool
}

func newCanI(f *Factory, run func(context.Context, *canIOptions) error) *cobra.Command {
	o := &canIOptions{Factory: f}
	cmd := &cobra.Command{
		Use:     "can-i VERB [TYPE | TYPE/NAME | PATH]",
		Short:   "Check whether an action is allowed",
		Example: "  podium auth can-i create deployments.apps\n  podium auth can-i get /metrics\n  podium auth can-i --list",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.List && len(args) > 0:
				return errors.New("list option must be specified with no arguments")
			case o.List:
			case len(args) == 2, len(args) == 3:
				o.Verb, o.What = args[0], args[1]
				if len(args) == 3 {
					o.Name = args[2]
				}
			default:
				return errors.New("you must specify two arguments: verb resource or verb resource/resourceName")
			}
			return run(cmd.Context(), o)
		},
	}
	fs := cmd.Flags()
	fs.BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false, "select resources across all namespaces")
	fs.StringVar(&o.Sub, "subresource", "", "subresource such as pod/log or deployment/scale")
	fs.BoolVar(&o.List, "list", false, "print all allowed actions")
	fs.BoolVar(&o.NoHeaders, "no-headers", false, "with --list: do not print headers")
	fs.BoolVarP(&o.Quiet, "quiet", "q", false, "suppress output and return the exit code only")
	return cmd
}

func runCanI(ctx context.Context, o *canIOptions) error {
	namespace, _, err := o.Namespace()
	if err != nil {
		return err
	}
	if o.AllNamespaces {
		namespace = ""
	}
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	if o.List {
		return o.list(ctx, c, namespace)
	}
	question := &authorizationv1.SelfSubjectAccessReview{}
	if strings.HasPrefix(o.What, "/") {
		if o.Sub != "" || o.Name != "" {
			return errors.New("--subresource and a name can not be used with a path that is no resource")
		}
		question.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: o.What, Verb: o.Verb}
	} else {
		question.Spec.ResourceAttributes = o.resource(ctx, c, namespace)
	}
	if err := ask(ctx, c, "SelfSubjectAccessReview", question); err != nil {
		return err
	}
	return o.answer(&question.Status)
}

// resource returns the attributes of the review. A type that the server does
// not serve is only a warning: roles may contain it.
func (o *canIOptions) resource(ctx context.Context, c *rest.Cluster, namespace string) *authorizationv1.ResourceAttributes {
	word, name, _ := strings.Cut(o.What, "/")
	if o.Name != "" {
		name = o.Name
	}
	a := &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: o.Verb, Resource: word, Subresource: o.Sub, Name: name}
	kind, err := c.Find(ctx, word)
	if err != nil {
		if word != "*" && !o.Quiet {
			fmt.Fprintf(o.Err, "Warning: the server doesn't have a resource type '%s'\n", word)
		}
		a.Resource, a.Group, _ = strings.Cut(word, ".")
		if word == "*" {
			a.Group = "*"
		}
		return a
	}
	a.Resource, a.Group, a.Version = kind.Resource, kind.Group, kind.Version
	if !kind.Namespaced && namespace != "" && !o.Quiet {
		fmt.Fprintf(o.Err, "Warning: resource '%s' is not namespace scoped%s\n\n", kind.Resource, inGroup(kind.Group))
	}
	if !kind.Namespaced {
		a.Namespace = ""
	}
	return a
}

func inGroup(group string) string {
	if group == "" {
		return ""
	}
	return " in group '" + group + "'"
}

// answer prints yes or no, and returns an exitError with code 1 for no.
func (o *canIOptions) answer(s *authorizationv1.SubjectAccessReviewStatus) error {
	text, code := "yes", 0
	if !s.Allowed {
		text, code = "no", 1
		if s.Reason != "" {
			text += " - " + s.Reason
		}
		if s.EvaluationError != "" {
			text += " - " + s.EvaluationError
		}
	}
	if !o.Quiet {
		fmt.Fprintln(o.Out, text)
	}
	if code != 0 {
		return &exitError{code: code}
	}
	return nil
}

// list prints all rules, one line for each resource.
func (o *canIOptions) list(ctx context.Context, c *rest.Cluster, namespace string) error {
	if namespace == "" {
		return errors.New("--list is about one namespace: give it with --namespace")
	}
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	if err := ask(ctx, c, "SelfSubjectRulesReview", review); err != nil {
		return err
	}
	if review.Status.Incomplete {
		fmt.Fprintf(o.Err, "Warning: the list may be incomplete: %s\n", review.Status.EvaluationError)
	}
	var rows [][]string
	if !o.NoHeaders {
		rows = append(rows, []string{"Resources", "Non-Resource URLs", "Resource Names", "Verbs"})
	}
	for _, r := range compacted(&review.Status) {
		resource := ""
		if len(r.Resources) > 0 {
			resource = r.Resources[0]
			if r.APIGroups[0] != "" {
				resource += "." + r.APIGroups[0]
			}
		}
		rows = append(rows, []string{resource, bracketed(r.NonResourceURLs), bracketed(r.ResourceNames), bracketed(r.Verbs)})
	}
	return (&output.Columns{}).Write(o.Out, rows)
}

func bracketed(list []string) string { return "[" + strings.Join(list, " ") + "]" }

// compacted splits the rules so that each has one resource or one set of paths,
// merges those for the same one, and sorts them.
func compacted(s *authorizationv1.SubjectRulesReviewStatus) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, r := range s.ResourceRules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: r.ResourceNames, Verbs: r.Verbs})
			}
		}
	}
	for _, r := range s.NonResourceRules {
		for _, url := range r.NonResourceURLs {
			rules = append(rules, rbacv1.PolicyRule{NonResourceURLs: []string{url}, Verbs: r.Verbs})
		}
	}
	rules = roles.Compact(rules)
	slices.SortStableFunc(rules, func(a, b rbacv1.PolicyRule) int {
		return strings.Compare(roles.Text(&a), roles.Text(&b))
	})
	return rules
}

// ask creates a review and decodes the response into it.
func ask(ctx context.Context, c *rest.Cluster, name string, review runtime.Object) error {
	gvk := schema.GroupVersionKind{Group: authorizationv1.GroupName, Version: "v1", Kind: name}
	question, err := toObject(review, gvk)
	if err != nil {
		return err
	}
	delete(question.Object, "status")
	kind, err := c.ByGVK(ctx, gvk)
	if err != nil {
		return err
	}
	answer, err := c.Post(ctx, kind.Path("", ""), question)
	if err != nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(answer.Object, review); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}
