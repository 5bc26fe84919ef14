package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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

// The modes of authorization, by upstream's names.
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

// Access is who may do what. The roles are always known, also where they are
// not asked: nobody may write a role that allows more than they are allowed.
type Access struct {
	modes    []string
	chain    authz.Authorizer
	roles    *rbac.Policy
	ready    func() error // nil: what is known is the present
	pods     *node.Graph
	kubelets *rbac.Rules
}

// AccessConfig says how requests are authorized.
type AccessConfig struct {
	Modes   []string // in the order in which they are asked; default: Node, RBAC
	Webhook webhook.Config
}

// NewAccess builds the chain of authorizers. Members of system:masters may do
// everything, whatever the modes say.
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
			return nil, fmt.Errorf("%q is no authorization mode", mode)
		}
	}
	a.chain = authz.Chain(chain...)
	return a, nil
}

// Authorize asks the authorizers in their order.
func (a *Access) Authorize(ctx context.Context, user *request.User, info *request.Info) (authz.Decision, string) {
	return a.chain.Authorize(ctx, user, info)
}

// RulesFor are the rules of roles that hold for a user in a namespace, or
// everywhere.
func (a *Access) RulesFor(user *request.User, namespace string) []rbacv1.PolicyRule {
	return a.roles.RulesFor(user, namespace)
}

// RoleRules are the rules of a role, or of a cluster role without a namespace.
func (a *Access) RoleRules(namespace, name string) (all []rbacv1.PolicyRule, found bool) {
	return a.roles.RoleRules(namespace, name)
}

// Review tells what a user may do in a namespace, and whether there may be
// more: not every authorizer can say what it would allow.
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

// present lets an authorizer decide only when what it knows is the present: a
// server that starts reads the past first.
func (a *Access) present(next authz.Authorizer) authz.Authorizer {
	return authz.Func(func(ctx context.Context, user *request.User, info *request.Info) (authz.Decision, string) {
		if a.ready != nil && a.ready() != nil {
			return authz.NoOpinion, "the roles have not been read yet"
		}
		return next.Authorize(ctx, user, info)
	})
}

// refusal is the answer to a request that nobody has allowed. While the server
// does not know the roles, or a new cluster has none, it does not know that: a
// client that tries again later is not told that it lacks a right.
func (s *Server) refusal(user *request.User, info *request.Info, reason string) error {
	if !s.rolesDone.Load() {
		return apierrors.NewServiceUnavailable("this server does not know the cluster's roles yet")
	}
	return authz.Forbidden(user, info, reason)
}

// mayCreate asks whether the user of ctx's request, which updates or patches an
// object that does not exist, may create it.
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

// followers are told of what the decisions rest on.
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
	}
}

// usage tells which rules have allowed requests since the start.
func (a *Access) usage() []rbac.Line {
	// What kubelets are allowed stands under the role that says the same.
	lines := slices.DeleteFunc(a.roles.Usage(), func(l rbac.Line) bool { return l.Role == "system:node" && l.Namespace == "" })
	lines = append(lines, a.kubelets.Usage("system:node")...)
	rbac.Sort(lines)
	return lines
}

// accessFlags are the flags of authorization.
type accessFlags struct {
	modes       []string
	webhookFile string
	version     string
	allowedTTL  time.Duration
	deniedTTL   time.Duration
}

func (f *accessFlags) flags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&f.modes, "authorization-mode", []string{modeNode, modeRBAC}, "who is asked whether a request is allowed, in this order: "+strings.Join(modes(), ", "))
	fs.StringVar(&f.webhookFile, "authorization-webhook-config-file", "", "file, a kubeconfig, that says where the webhook of mode Webhook is")
	fs.StringVar(&f.version, "authorization-webhook-version", "v1", "version of the SubjectAccessReview that is sent to the webhook; v1 is the only one")
	fs.DurationVar(&f.allowedTTL, "authorization-webhook-cache-authorized-ttl", 5*time.Minute, "how long the webhook's yes is remembered")
	fs.DurationVar(&f.deniedTTL, "authorization-webhook-cache-unauthorized-ttl", 30*time.Second, "how long its no is")
}

// parse checks the flags; all problems are told at once.
func (f *accessFlags) parse() error {
	var errs []error
	for i, mode := range f.modes {
		if !slices.Contains(modes(), mode) {
			errs = append(errs, fmt.Errorf("--authorization-mode: %q is not a valid mode; there are %s", mode, strings.Join(modes(), ", ")))
		}
		if slices.Contains(f.modes[:i], mode) {
			errs = append(errs, fmt.Errorf("--authorization-mode has %q more than once", mode))
		}
	}
	if len(f.modes) == 0 {
		errs = append(errs, errors.New("--authorization-mode: at least one must be given"))
	}
	if slices.Contains(f.modes, modeWebhook) != (f.webhookFile != "") {
		errs = append(errs, errors.New("--authorization-mode=Webhook and --authorization-webhook-config-file belong together"))
	}
	if f.version != "v1" {
		errs = append(errs, fmt.Errorf("--authorization-webhook-version: %q is not served; v1 is", f.version))
	}
	return errors.Join(errs...)
}

func (f *accessFlags) build(registry prometheus.Registerer) (*Access, error) {
	return NewAccess(AccessConfig{Modes: f.modes, Webhook: webhook.Config{
		File: f.webhookFile, AllowedTTL: f.allowedTTL, DeniedTTL: f.deniedTTL, Registry: registry,
	}})
}
