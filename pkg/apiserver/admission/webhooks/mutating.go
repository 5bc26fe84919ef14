package webhooks

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/jsonpatch"
	"podium/pkg/apiserver/request"
)

// NewMutating returns the plugin MutatingAdmissionWebhook: it asks the webhooks
// one after the other, in the order of their configurations' names, and applies
// the patches that they answer with.
func NewMutating(h admission.Host, cfg Config) admission.Plugin {
	p := newPlugin(h, cfg, admission.PhaseAdmit, "mutatingwebhookconfigurations")
	return admission.Plugin{Mutate: p.mutate}
}

// pluginName is the key under which the plugin keeps its rounds.
const pluginName = "MutatingAdmissionWebhook"

func (p *plugin) mutate(ctx context.Context, a *admission.Attributes) error {
	hooks, err := p.relevant(ctx, a)
	if err != nil || len(hooks) == 0 {
		return err
	}
	rounds := a.Rounds(pluginName)
	for i, h := range hooks {
		if !rounds.Due(a, h.uid) {
			continue
		}
		form, err := p.matches(ctx, h, a)
		if err != nil {
			return err
		}
		if form == nil {
			continue
		}
		began := p.Now()
		changed, err := h.mutates(ctx, a, form, i)
		if err := p.settle(ctx, h, a, p.Now().Sub(began), err, annotation("failed-open.mutation", a, i)); err != nil {
			return err
		}
		if changed {
			rounds.Changed(a)
		}
		if h.reinvoked() {
			rounds.Asked(h.uid)
		}
	}
	rounds.Left(a)
	return nil
}

// annotation returns the key of an audit annotation about the call of a hook.
func annotation(what string, a *admission.Attributes, index int) string {
	return fmt.Sprintf("%s.webhook.admission.k8s.io/round_%d_index_%d", what, a.Round, index)
}

// mutates asks a hook and applies its patch. It reports whether that has changed
// the object. The error says why the request must not pass.
func (h *hook) mutates(ctx context.Context, a *admission.Attributes, form *admission.Form, index int) (changed bool, err error) {
	if err := h.mayCall(a); err != nil {
		return false, err
	}
	defer func() {
		value, _ := json.Marshal(map[string]any{"configuration": h.config, "webhook": h.Name, "mutated": changed})
		request.Annotate(ctx, annotation("mutation", a, index), string(value))
	}()
	r, err := describe(a, form)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	resp, err := h.ask(ctx, true, *r)
	if err != nil {
		return false, err
	}
	h.record(ctx, resp)
	if !resp.Allowed {
		return false, h.denial(resp.Result)
	}
	if len(resp.Patch) == 0 {
		return false, nil
	}
	if changed, err = h.apply(a, form, r.Object.Raw, resp); changed {
		value, _ := json.Marshal(map[string]any{"configuration": h.config, "webhook": h.Name, "patch": json.RawMessage(resp.Patch), "patchType": resp.PatchType})
		request.Annotate(ctx, annotation("patch", a, index), string(value))
	}
	return changed, err
}

// apply applies the patch of a response to the object, of which text is the
// form as JSON.
func (h *hook) apply(a *admission.Attributes, form *admission.Form, text []byte, resp *admissionv1.AdmissionResponse) (changed bool, err error) {
	if *resp.PatchType != admissionv1.PatchTypeJSONPatch {
		return false, h.failed(h.denial(resp.Result).StatusError, fmt.Errorf("unsupported patch type %q", *resp.PatchType))
	}
	patch, err := jsonpatch.Parse(resp.Patch)
	if err != nil {
		return false, h.failed(apierrors.NewServiceUnavailable("error decoding patch in webhook response"), fmt.Errorf("received undecodable patch in webhook response: %w", err))
	}
	if patch.Empty() {
		return false, nil
	}
	subject := a.Subject()
	if subject == nil || a.Operation == admission.Connect {
		return false, apierrors.NewInternalError(fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation", h.Name))
	}
	patched, err := patch.Apply(text)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	before := subject.DeepCopyObject()
	if err := form.Set(subject, patched); err != nil {
		return false, apierrors.NewInternalError(err)
	}
	return !equality.Semantic.DeepEqual(before, subject), nil
}
