package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	celtypes "github.com/google/cel-go/common/types"
	"github.com/prometheus/client_golang/prometheus"
	registration "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	limits "k8s.io/apiserver/pkg/apis/cel"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/request"
	"podium/pkg/expression"
	"podium/pkg/prom"
	"podium/pkg/scheme"
)

// checks is what a validating policy does.
type checks struct {
	validations []validation
	annotations []annotation
}

type validation struct {
	registration.Validation
	check, message *expression.Program // message is nil if there is no expression
}

type annotation struct {
	key   string
	value *expression.Program
}

type validating struct {
	*plugin[checks]
	total   *prometheus.CounterVec
	latency *prometheus.HistogramVec
}

// NewValidating returns the plugin ValidatingAdmissionPolicy.
func NewValidating(h admission.Host) admission.Plugin {
	f := prom.For(h.Metrics)
	labels := []string{"policy", "policy_binding", "error_type", "enforcement_action"}
	v := &validating{
		plugin: newPlugin(h, admission.PhaseValidate, "validatingadmissionpolicies", "validatingadmissionpolicybindings", compileValidating),
		total:  f.CounterVec("apiserver_validating_admission_policy_check_total", "Checks of validating admission policies that were not plainly passed.", labels...),
		latency: f.HistogramVec("apiserver_validating_admission_policy_check_duration_seconds", "Time of these checks in seconds.",
			[]float64{0.0000005, 0.001, 0.01, 0.1, 1}, labels...),
	}
	return admission.Plugin{Validate: v.validate}
}

func compileValidating(c *expression.Compiler, obj scheme.Object) *policy[checks] {
	of := obj.(*registration.ValidatingAdmissionPolicy)
	s := &of.Spec
	p := newPolicy[checks](c, head{of.Name, s.ParamKind, s.FailurePolicy, s.MatchConstraints, s.Variables, s.MatchConditions})
	for _, v := range s.Validations {
		compiled := validation{Validation: v, check: p.scope.Compile(v.Expression, p.declared(), true, expression.ConditionType())}
		if v.MessageExpression != "" {
			compiled.message = p.scope.Compile(v.MessageExpression, expression.Declared{Params: s.ParamKind != nil}, true, expression.MessageType())
		}
		p.actions.validations = append(p.actions.validations, compiled)
	}
	for _, a := range s.AuditAnnotations {
		value := p.scope.Compile(strings.TrimSpace(a.ValueExpression), p.declared(), true, expression.AnnotationTypes()...)
		p.actions.annotations = append(p.actions.annotations, annotation{a.Key, value})
	}
	return p
}

// denial is a reason to deny a request.
type denial struct {
	policy, binding string // binding is empty if the policy itself fails
	message         string
	reason          metav1.StatusReason // empty: Invalid
	index           int                 // of the validation
	broken          bool                // an expression could not be evaluated
}

// outcome collects what the policies say about a request.
type outcome struct {
	denials     []denial
	annotations map[string][]string // by policy and key
}

func (v *validating) validate(ctx context.Context, a *admission.Attributes) error {
	out := &outcome{}
	all, err := v.invocations(ctx, a, func(p *policy[checks], b *binding, err error) {
		d := denial{policy: p.name, message: err.Error(), broken: true}
		if b != nil {
			d.binding = b.name
		}
		out.denials = append(out.denials, d)
	})
	if err != nil {
		return err
	}
	for i := range all {
		for _, params := range all[i].params {
			if err := v.evaluate(ctx, &all[i], a, params, out); err != nil {
				return err
			}
		}
	}
	for key, values := range out.annotations {
		request.Annotate(ctx, key, strings.Join(values, ", "))
	}
	return out.refusal(a)
}

// refusal returns the error of a denied request, nil if it is not denied.
func (o *outcome) refusal(a *admission.Attributes) error {
	if len(o.denials) == 0 {
		return nil
	}
	first := o.denials[0]
	message := fmt.Sprintf("ValidatingAdmissionPolicy '%s' denied request: %s", first.policy, first.message)
	if first.binding != "" {
		message = fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", first.policy, first.binding, first.message)
	}
	err := admission.Forbidden(a, "%s", message)
	err.ErrStatus.Reason, err.ErrStatus.Code = metav1.StatusReasonInvalid, http.StatusUnprocessableEntity
	switch first.reason {
	case metav1.StatusReasonForbidden:
		err.ErrStatus.Reason, err.ErrStatus.Code = first.reason, http.StatusForbidden
	case metav1.StatusReasonUnauthorized:
		err.ErrStatus.Reason, err.ErrStatus.Code = first.reason, http.StatusUnauthorized
	case metav1.StatusReasonRequestEntityTooLarge:
		err.ErrStatus.Reason, err.ErrStatus.Code = first.reason, http.StatusRequestEntityTooLarge
	}
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Message: message})
	return err
}

// evaluate evaluates an invocation with one of its parameters, and enforces what
// that says. The error is about the server, not about the policy.
func (v *validating) evaluate(ctx context.Context, i *invocation[checks], a *admission.Attributes, params map[string]any, out *outcome) error {
	input, err := v.input(ctx, a, i.form, params)
	if err != nil {
		return err
	}
	began := v.Now()
	applies, err := v.applies(ctx, i, a, input)
	if err != nil {
		v.fail(ctx, i, denial{message: err.Error(), broken: true}, v.Now().Sub(began), out)
		return nil
	}
	if !applies {
		return nil
	}
	decided, err := decide(i.scope.Begin(ctx, input, expression.Budget), i.actions.validations)
	if err != nil {
		decided = []denial{{message: err.Error(), broken: true}}
	}
	for _, d := range decided {
		v.fail(ctx, i, d, v.Now().Sub(began), out)
	}
	if err == nil {
		v.annotate(ctx, i, input, out)
	}
	return nil
}

// decide evaluates validations and returns a denial for each that is not true.
// The error means that the budget is spent.
func decide(e *expression.Evaluation, validations []validation) (out []denial, err error) {
	for n, v := range validations {
		result, err := e.Run(v.check)
		switch {
		case errors.Is(err, expression.ErrBudget):
			return nil, err
		case err != nil:
			out = append(out, denial{message: err.Error(), index: n, broken: true})
		case result != celtypes.True:
			d := denial{index: n, reason: metav1.StatusReasonInvalid}
			if v.Reason != nil {
				d.reason = *v.Reason
			}
			if d.message, err = v.text(e); err != nil {
				d.message, d.broken = fmt.Sprintf("failed messageExpression: %s", err), true
			}
			out = append(out, d)
		}
	}
	return out, nil
}

// text returns the message of a validation that has failed: that of its
// expression, else the fixed one, else the failed expression. The error means
// that the budget is spent.
func (v *validation) text(e *expression.Evaluation) (string, error) {
	if v.message != nil {
		result, err := e.Run(v.message)
		if errors.Is(err, expression.ErrBudget) {
			return "", err
		}
		if err == nil {
			text, _ := result.Value().(string)
			text = strings.TrimSpace(text)
			if text != "" && len(text) <= limits.MaxEvaluatedMessageExpressionSizeBytes && !strings.Contains(text, "\n") {
				return text, nil
			}
		}
	}
	if text := strings.TrimSpace(v.Message); text != "" {
		return text, nil
	}
	return fmt.Sprintf("failed expression: %v", strings.TrimSpace(v.Expression)), nil
}

// fail enforces a denial as the binding says, or counts it if the policy ignores
// that an expression could not be evaluated.
func (v *validating) fail(ctx context.Context, i *invocation[checks], d denial, took time.Duration, out *outcome) {
	d.policy, d.binding = i.policy.name, i.binding.name
	if d.broken && i.ignores {
		v.count(d, "allow", took)
		return
	}
	for _, action := range i.enforce {
		v.count(d, strings.ToLower(string(action)), took)
		switch action {
		case registration.Deny:
			out.denials = append(out.denials, d)
		case registration.Warn:
			request.Warn(ctx, fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s", d.policy, d.binding, d.message))
		case registration.Audit:
			text, _ := json.Marshal([]any{struct {
				Message           string                          `json:"message"`
				Policy            string                          `json:"policy"`
				Binding           string                          `json:"binding"`
				ExpressionIndex   int                             `json:"expressionIndex"`
				ValidationActions []registration.ValidationAction `json:"validationActions"`
			}{d.message, d.policy, d.binding, d.index, i.enforce}})
			request.Annotate(ctx, "validation.policy.admission.k8s.io/validation_failure", string(text))
		}
	}
}

func (v *validating) count(d denial, action string, took time.Duration) {
	kind := "no_error"
	if d.broken {
		kind = "invalid_error"
	}
	v.total.WithLabelValues(d.policy, d.binding, kind, action).Inc()
	v.latency.WithLabelValues(d.policy, d.binding, kind, action).Observe(took.Seconds())
}

// maxAnnotation is the maximum length in bytes of the value of an audit
// annotation.
const maxAnnotation = 10 << 10

// annotate evaluates the audit annotations of a policy. With failure policy
// Fail, one that cannot be evaluated denies the request.
func (v *validating) annotate(ctx context.Context, i *invocation[checks], input *expression.Input, out *outcome) {
	e := i.scope.Begin(ctx, input, expression.Budget)
	for _, a := range i.actions.annotations {
		result, err := e.Run(a.value)
		if err != nil {
			if !i.ignores {
				out.denials = append(out.denials, denial{policy: i.policy.name, binding: i.binding.name, message: err.Error(), broken: true})
			}
			if errors.Is(err, expression.ErrBudget) {
				return
			}
			continue
		}
		text, _ := result.Value().(string)
		text = strings.TrimSpace(text)
		key := i.policy.name + "/" + a.key
		text = text[:min(len(text), maxAnnotation)]
		if text == "" || slices.Contains(out.annotations[key], text) {
			continue
		}
		if out.annotations == nil {
			out.annotations = map[string][]string{}
		}
		out.annotations[key] = append(out.annotations[key], text)
	}
}
