package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/authz/bootstrap"
	"podium/pkg/apiserver/authz/node"
	"podium/pkg/apiserver/authz/rbac"
	"podium/pkg/apiserver/authz/webhook"
	"podium/pkg/apiserver/request"
	"podium/pkg/storage/watchcache"
)

// The authorization modes, as --authorization-mode names them.
const (
	modeNode        = "Node"
	modeRBAC        = "RBAC"
	modeWebhook     = "Webhook"
	modeAlwaysAllow = "AlwaysAllow"
	modeAlwaysDeny  = "AlwaysDeny"
)

func modes() []string {
	return []string{modeAlwaysAllow, modeAlwaysDeny, modeNode, modeRBAC, modeWebhook}
}

// Access decides which requests are allowed: it holds the chain of authorizers
// and the RBAC policy. The policy is kept current even if RBAC is not among the
// modes, since the check against privilege escalation needs it. It is safe for
// concurrent use.
type Access struct {
	modes    []string
	chain    authz.Authorizer
	roles    *rbac.Policy
	ready    func() error // returns an error while the roles and pods are not yet synced; nil: always synced
	pods     *node.Graph
	kubelets *rbac.Rules
}

// AccessConfig configures how requests are authorized.
type AccessConfig struct {
	Modes   []string // the order of the authorizers; default: Node, RBAC
	Webhook webhook.Config
}

// NewAccess builds the chain of authorizers. Members of system:masters are
// allowed everything, in every mode. It returns an error if a mode is unknown
// or the webhook's kubeconfig cannot be loaded.
func NewAccess(cfg AccessConfig) (*Access, error) {
	if len(cfg.Modes) == 0 {
		cfg.Modes = []string{modeNode, modeRBAC}
	}
	a := &Access{modes: cfg.Modes, roles: rbac.New(), pods: node.NewGraph(), kubelets: rbac.Compile(bootstrap.Node())}
	chain := []authz.Authorizer{authz.Privileged(request.Masters)}
	for _, mode := range cfg.Modes {
		switch mode {
		case modeNode:
			chain = append(chain, a.present(node.New(a.pods, a.kubelets)))
		case modeRBAC:
			chain = append(chain, a.present(a.roles))
		case modeWebhook:
			hook, err := webhook.New(cfg.Webhook)
			if err != nil {
				return nil, err
			}
			chain = append(chain, hook)
		case modeAlwaysAllow:
			chain = append(chain, authz.Always(authz.Allow, ""))
		case modeAlwaysDeny:
			chain = append(chain, authz.Always(authz.NoOpinion, "Everything is forbidden."))
		default:
			return nil, fmt.Errorf("%q is not an authorization mode", mode)
		}
	}
	a.chain = authz.Chain(chain...)
	return a, nil
}

// Authorize asks the authorizers in their order and returns the first decision
// that is not NoOpinion, with the reason for it.
func (a *Access) Authorize(ctx context.Context, user *request.User, info *request.Info) (authz.Decision, string) {
	return a.chain.Authorize(ctx, user, info)
}

// RulesFor returns the RBAC rules that apply to a user in a namespace, or
// cluster-wide if namespace is empty.
func (a *Access) RulesFor(user *request.User, namespace string) []rbacv1.PolicyRule {
	return a.roles.RulesFor(user, namespace)
}

// RoleRules returns the rules of a Role, or of a ClusterRole if namespace is
// empty. found reports whether that role exists.
func (a *Access) RoleRules(namespace, name string) (all []rbacv1.PolicyRule, found bool) {
	return a.roles.RoleRules(namespace, name)
}

// Review returns what a user may do in a namespace. Incomplete is set if an
// authorizer that cannot enumerate its rules may allow more.
func (a *Access) Review(user *request.User, namespace string) authorizationv1.SubjectRulesReviewStatus {
	out := authorizationv1.SubjectRulesReviewStatus{ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}}
	var problems []string
	var rules []rbacv1.PolicyRule
	for _, mode := range a.modes {
		switch {
		case mode == modeRBAC:
			rules = append(rules, a.roles.RulesFor(user, namespace)...)
		case mode == modeAlwaysAllow:
			rules = append(rules, everything()...)
		case mode == modeNode && node.Name(user) != "", mode == modeWebhook:
			out.Incomplete = true
			problems = append(problems, strings.ToLower(mode)+" authorizer does not support user rule resolution")
		}
	}
	for _, r := range rules {
		if len(r.NonResourceURLs) > 0 {
			out.NonResourceRules = append(out.NonResourceRules, authorizationv1.NonResourceRule{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
			continue
		}
		out.ResourceRules = append(out.ResourceRules, authorizationv1.ResourceRule{
			Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames,
		})
	}
	out.EvaluationError = strings.Join(problems, ", ")
	return out
}

func everything() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
		{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
	}
}

// present wraps an authorizer that decides from watched objects: until the
// initial lists are synced it returns NoOpinion.
func (a *Access) present(next authz.Authorizer) authz.Authorizer {
	return authz.Func(func(ctx context.Context, user *request.User, info *request.Info) (authz.Decision, string) {
		if a.ready != nil && a.ready() != nil {
			return authz.NoOpinion, "the roles have not been read yet"
		}
		return next.Authorize(ctx, user, info)
	})
}

// refusal returns the error for a request that no authorizer has allowed:
// Forbidden, or ServiceUnavailable until the default roles are reconciled, so
// that clients retry instead of treating a missing role as final.
func (s *Server) refusal(user *request.User, info *request.Info, reason string) error {
	if !s.rolesDone.Load() {
		return apierrors.NewServiceUnavailable("the roles are not yet available")
	}
	return authz.Forbidden(user, info, reason)
}

// mayCreate returns nil if the user of ctx's request, an update or patch of an
// object that does not exist, may create that object.
func (s *Server) mayCreate(ctx context.Context) error {
	req := request.From(ctx)
	info := req.Info
	info.Verb = "create"
	decision, reason := s.cfg.Authorizer.Authorize(ctx, req.User, &info)
	if decision != authz.Allow {
		return s.refusal(req.User, &info, reason)
	}
	return nil
}

// followers returns the watch cache followers that keep the authorizers
// current, by resource.
func (a *Access) followers() map[schema.GroupResource]watchcache.Follower {
	of := func(resource string) schema.GroupResource {
		return schema.GroupResource{Group: rbacv1.GroupName, Resource: resource}
	}
	return map[schema.GroupResource]watchcache.Follower{
		of("roles"):                             a.roles.Roles(),
		of("clusterroles"):                      a.roles.ClusterRoles(),
		of("rolebindings"):                      a.roles.RoleBindings(),
		of("clusterrolebindings"):               a.roles.ClusterRoleBindings(),
		{Resource: string(corev1.ResourcePods)}: a.pods,
		{Resource: "persistentvolumes"}:         node.Volumes{Graph: a.pods},

		{Group: storagev1.GroupName, Resource: "volumeattachments"}: node.Attachments{Graph: a.pods},
	}
}

// usage returns which rules have allowed requests since the server started.
func (a *Access) usage() []rbac.Line {
	// The node authorizer applies the rules of system:node itself, so its usage
	// replaces that of the role.
	lines := slices.DeleteFunc(a.roles.Usage(), func(l rbac.Line) bool { return l.Role == "system:node" && l.Namespace == "" })
	lines = append(lines, a.kubelets.Usage("system:node")...)
	rbac.Sort(lines)
	return lines
}

// accessFlags are the authorization flags, bound to the AccessConfig.
type accessFlags struct {
	AccessConfig
	version string
}

func (f *accessFlags) flags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&f.Modes, "authorization-mode", []string{modeNode, modeRBAC}, "ordered list of authorizers: "+strings.Join(modes(), ", "))
	fs.StringVar(&f.Webhook.File, "authorization-webhook-config-file", "", "kubeconfig file of the authorization webhook, for mode Webhook")
	fs.StringVar(&f.version, "authorization-webhook-version", "v1", "API version of the SubjectAccessReview that is sent to the webhook; only v1 is supported")
	fs.DurationVar(&f.Webhook.AllowedTTL, "authorization-webhook-cache-authorized-ttl", 5*time.Minute, "cache TTL for allowed decisions of the webhook")
	fs.DurationVar(&f.Webhook.DeniedTTL, "authorization-webhook-cache-unauthorized-ttl", 30*time.Second, "cache TTL for denied decisions of the webhook")
}

// parse validates the flags. Its error names every invalid one.
func (f *accessFlags) parse() error {
	var errs []error
	for i, mode := range f.Modes {
		if !slices.Contains(modes(), mode) {
			errs = append(errs, fmt.Errorf("--authorization-mode: %q is not a valid mode; there are %s", mode, strings.Join(modes(), ", ")))
		}
		if slices.Contains(f.Modes[:i], mode) {
			errs = append(errs, fmt.Errorf("--authorization-mode has %q more than once", mode))
		}
	}
	if len(f.Modes) == 0 {
		errs = append(errs, errors.New("--authorization-mode: at least one must be given"))
	}
	if slices.Contains(f.Modes, modeWebhook) != (f.Webhook.File != "") {
		errs = append(errs, errors.New("--authorization-mode=Webhook and --authorization-webhook-config-file belong together"))
	}
	if f.version != "v1" {
		errs = append(errs, fmt.Errorf("--authorization-webhook-version: %q is not supported; use v1", f.version))
	}
	return errors.Join(errs...)
}
