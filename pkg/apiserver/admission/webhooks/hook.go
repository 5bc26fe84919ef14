package webhooks

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/cel-go/cel"
	registration "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/match"
	"podium/pkg/apiserver/webhook"
	"podium/pkg/expression"
	"podium/pkg/scheme"
)

const defaultTimeout = 10 * time.Second

// hook is one webhook of a configuration, ready to be asked. It is immutable.
type hook struct {
	registration.MutatingWebhook
	config     string // the name of the configuration
	uid        string // identifies the hook among all
	criteria   *match.Criteria
	scope      *expression.Scope
	conditions []*expression.Program
	timeout    time.Duration
	client     *webhook.Hook
	unusable   error // why the hook cannot be asked; nil: it can
}

// set is the hooks of all configurations, in the order of the configurations'
// names.
type set struct {
	hooks    []*hook
	byObject map[string][]*hook // by the UID and version of the configuration
}

// compile makes the hooks of all configurations. It keeps those of
// configurations that have not changed.
func (p *plugin) compile(configs []scheme.Object) *set {
	next := &set{byObject: map[string][]*hook{}}
	for _, obj := range configs {
		key := string(obj.GetUID()) + "/" + obj.GetResourceVersion()
		hooks, kept := p.last.byObject[key]
		if !kept {
			names := map[string]int{}
			for _, w := range match.Webhooks(obj) {
				uid := fmt.Sprintf("%s/%s/%d", obj.GetName(), w.Name, names[w.Name])
				names[w.Name]++
				hooks = append(hooks, p.newHook(obj.GetName(), uid, w))
			}
		}
		next.byObject[key] = hooks
		next.hooks = append(next.hooks, hooks...)
	}
	p.dropClients(next.hooks)
	p.last = next
	return next
}

func (p *plugin) newHook(config, uid string, w registration.MutatingWebhook) *hook {
	h := &hook{MutatingWebhook: w, config: config, uid: uid, timeout: defaultTimeout, scope: p.compiler.NewScope(false)}
	if w.TimeoutSeconds != nil {
		h.timeout = time.Duration(*w.TimeoutSeconds) * time.Second
	}
	for _, c := range w.MatchConditions {
		h.conditions = append(h.conditions, h.scope.Compile(c.Expression, expression.Declared{Authorizer: true}, true, cel.BoolType))
	}
	h.criteria, h.unusable = match.ForWebhook(w.Rules, w.MatchPolicy, w.NamespaceSelector, w.ObjectSelector)
	var err error
	if h.client, err = p.client(&w.ClientConfig); err != nil {
		h.unusable = cmp.Or(h.unusable, fmt.Errorf("could not get REST client: %w", err))
	}
	return h
}

// client returns the connections to a webhook's server. Webhooks of one server share
// them.
func (p *plugin) client(c *registration.WebhookClientConfig) (*webhook.Hook, error) {
	key := webhook.HookKey(c)
	if known := p.clients[key]; known != nil {
		return known, nil
	}
	out, err := webhook.NewHook(c, p.Objects, p.dial)
	if err != nil {
		return nil, err
	}
	p.clients[key] = out
	return out, nil
}

// dropClients closes the clients that no hook uses any longer.
func (p *plugin) dropClients(used []*hook) {
	keep := map[*webhook.Hook]bool{}
	for _, h := range used {
		keep[h.client] = true
	}
	for key, c := range p.clients {
		if !keep[c] {
			c.Close()
			delete(p.clients, key)
		}
	}
}

// ignores reports whether requests pass if the hook cannot be asked.
func (h *hook) ignores() bool {
	return h.FailurePolicy != nil && *h.FailurePolicy == registration.Ignore
}

func (h *hook) reinvoked() bool {
	return h.ReinvocationPolicy != nil && *h.ReinvocationPolicy == registration.IfNeededReinvocationPolicy
}

// matches returns the form in which the hook is to be asked about a request, nil
// if it is not to be asked.
func (p *plugin) matches(ctx context.Context, h *hook, a *admission.Attributes) (*admission.Form, error) {
	if h.criteria == nil {
		return nil, apierrors.NewInternalError(h.unusable)
	}
	form, err := h.criteria.Match(ctx, p.Objects, a)
	if form == nil || err != nil || len(h.conditions) == 0 {
		return form, err
	}
	input, err := match.Input(a, form, p.Authorizer)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	began := p.Now()
	no, err := h.scope.Begin(ctx, input, expression.ConditionsBudget).Conditions(h.conditions)
	p.Series.ConditionsEvaluated(a, h.Name, "webhook", p.phase, p.Now().Sub(began), no >= 0, err)
	switch {
	case no >= 0, err != nil && h.ignores():
		return nil, nil
	case err != nil:
		return nil, apierrors.NewForbidden(a.InForms()[0].Resource.GroupResource(), a.Name, err)
	}
	return form, nil
}

// mayCall returns nil unless the request is a dry run in which the hook may not
// be asked.
func (h *hook) mayCall(a *admission.Attributes) error {
	switch {
	case !a.DryRun:
		return nil
	case h.SideEffects == nil:
		err := apierrors.NewBadRequest("Webhook SideEffects is nil")
		return h.failed(err, err)
	case *h.SideEffects == registration.SideEffectClassNone, *h.SideEffects == registration.SideEffectClassNoneOnDryRun:
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", h.Name))
}
