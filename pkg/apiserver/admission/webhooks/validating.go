package webhooks

import (
	"context"
	"fmt"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/match"
)

// NewValidating returns the plugin ValidatingAdmissionWebhook: it asks all
// webhooks at once, and refuses the request if one denies it.
func NewValidating(h admission.Host, cfg Config) admission.Plugin {
	p := newPlugin(h, cfg, admission.PhaseValidate, "validatingwebhookconfigurations")
	return admission.Plugin{Validate: p.validate}
}

// question is a call to make.
type question struct {
	*hook
	request admissionv1.AdmissionRequest
}

func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
	hooks, err := p.relevant(ctx, a)
	if err != nil || len(hooks) == 0 {
		return err
	}
	questions, err := p.questions(ctx, hooks, a)
	if err != nil || len(questions) == 0 {
		return err
	}
	if ctx.Err() != nil {
		return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
	}
	errs := make([]error, len(questions))
	var all sync.WaitGroup
	for i, q := range questions {
		all.Go(func() {
			began := p.Now()
			err := q.validates(ctx, a)
			errs[i] = p.settle(ctx, q.hook, a, p.Now().Sub(began), err, fmt.Sprintf("failed-open.validating.webhook.admission.k8s.io/round_0_index_%d", i))
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// questions returns the calls to make for a request. Hooks that match in the
// same form share the encoded objects.
func (p *plugin) questions(ctx context.Context, hooks []*hook, a *admission.Attributes) ([]question, error) {
	var out []question
	requests := map[*admission.Form]*admissionv1.AdmissionRequest{}
	for _, h := range hooks {
		form, err := p.matches(ctx, h, a)
		if err != nil {
			return nil, err
		}
		if form == nil {
			continue
		}
		if requests[form] == nil {
			if requests[form], err = describe(a, form); err != nil {
				return nil, apierrors.NewInternalError(err)
			}
		}
		out = append(out, question{h, *requests[form]})
	}
	return out, nil
}

// describe returns the request that a hook is asked about, without its UID.
func describe(a *admission.Attributes, in *admission.Form) (*admissionv1.AdmissionRequest, error) {
	r, err := match.Request(a, in)
	if err != nil {
		return nil, err
	}
	if r.Object.Raw, err = in.JSON(a.Subject()); err != nil {
		return nil, err
	}
	if a.Old != nil {
		r.OldObject.Raw, err = in.JSON(runtime.Object(a.Old))
	}
	return r, err
}

// validates asks the hook. The error says why the request must not pass.
func (q *question) validates(ctx context.Context, a *admission.Attributes) error {
	if err := q.mayCall(a); err != nil {
		return err
	}
	resp, err := q.ask(ctx, false, q.request)
	if err != nil {
		return err
	}
	q.record(ctx, resp)
	if !resp.Allowed {
		return q.denial(resp.Result)
	}
	return nil
}
