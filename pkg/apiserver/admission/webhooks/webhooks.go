package webhooks

import (
	"context"
	"errors"
	"net/http"
	"time"

	registration "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/match"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/webhook"
	"podium/pkg/expression"
)

// Config configures both plugins.
type Config struct {
	Dial webhook.Dial // connects to the endpoints of Services; nil: TCP
}

// plugin is what the two plugins have in common.
type plugin struct {
	admission.Host
	phase    string
	dial     webhook.Dial
	compiler *expression.Compiler
	hooks    *admission.Derived[*set]

	// Only compile uses these, in one call at a time.
	last    *set
	clients map[string]*webhook.Hook // by webhook.HookKey
}

func newPlugin(h admission.Host, cfg Config, phase, resource string) *plugin {
	if h.Series == nil {
		h.Series = admission.NewSeries(nil)
	}
	p := &plugin{Host: h, phase: phase, dial: cfg.Dial, compiler: expression.NewCompiler(), last: &set{}, clients: map[string]*webhook.Hook{}}
	p.hooks = admission.Derive(h.Objects, registration.SchemeGroupVersion.WithResource(resource), p.compile)
	return p
}

// relevant returns the hooks of the cluster, none for a request that no webhook
// applies to.
func (p *plugin) relevant(ctx context.Context, a *admission.Attributes) ([]*hook, error) {
	if match.Exempt(a) {
		return nil, nil
	}
	all, err := p.hooks.Get(ctx)
	if err != nil {
		return nil, admission.Forbidden(a, "not yet ready to handle request")
	}
	return all.hooks, nil
}

// settle counts a call, and decides about the request by its error: it returns
// the error to send, or nil if the request passes. failOpen names the audit
// annotation of a failed call that is ignored.
func (p *plugin) settle(ctx context.Context, h *hook, a *admission.Attributes, took time.Duration, err error, failOpen string) error {
	var failed *callError
	var denied *deniedError
	switch {
	case err == nil:
		p.Series.WebhookCalled(a, h.Name, p.phase, took, http.StatusOK, "")
		return nil
	case errors.As(err, &failed):
		code := int(failed.status.ErrStatus.Code)
		if !h.ignores() {
			p.Series.WebhookCalled(a, h.Name, p.phase, took, code, admission.RejectedUncallable)
			return apierrors.NewInternalError(failed)
		}
		p.Series.WebhookCalled(a, h.Name, p.phase, took, code, "")
		if ctx.Err() != nil {
			return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
		}
		p.Series.WebhookFailedOpen(h.Name, p.phase)
		request.Annotate(ctx, failOpen, h.Name)
		return nil
	case errors.As(err, &denied):
		p.Series.WebhookCalled(a, h.Name, p.phase, took, int(denied.ErrStatus.Code), admission.RejectedByWebhook)
		return denied.StatusError
	}
	p.Series.WebhookCalled(a, h.Name, p.phase, took, 0, admission.RejectedInternally)
	return err
}
