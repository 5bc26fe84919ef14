package policies

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	registration "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/apiserver/admission"
	"podium/pkg/expression"
	"podium/pkg/prom"
	"podium/pkg/scheme"
)

// changes is what a mutating policy does.
type changes struct {
	mutations []step
	reinvoked bool
}

// step is one mutation of a policy.
type step struct {
	program *expression.Program
	patch   bool // a JSON patch, else an apply configuration
}

type mutating struct {
	*plugin[changes]
	total   *prometheus.CounterVec
	latency *prometheus.HistogramVec
}

// NewMutating returns the plugin MutatingAdmissionPolicy.
func NewMutating(h admission.Host) admission.Plugin {
	f := prom.For(h.Metrics)
	labels := []string{"policy", "policy_binding", "error_type"}
	m := &mutating{
		plugin: newPlugin(h, admission.PhaseAdmit, "mutatingadmissionpolicies", "mutatingadmissionpolicybindings", compileMutating),
		total:  f.CounterVec("apiserver_mutating_admission_policy_check_total", "Mutations of mutating admission policies.", labels...),
		latency: f.HistogramVec("apiserver_mutating_admission_policy_check_duration_seconds", "Time of mutations of mutating admission policies in seconds.",
			[]float64{0.0000005, 0.001, 0.01, 0.1, 1}, labels...),
	}
	return admission.Plugin{Operations: []admission.Operation{admission.Create, admission.Update}, Mutate: m.mutate}
}

func compileMutating(c *expression.Compiler, obj scheme.Object) *policy[changes] {
	of := obj.(*registration.MutatingAdmissionPolicy)
	s := &of.Spec
	p := newPolicy[changes](c, head{of.Name, s.ParamKind, s.FailurePolicy, s.MatchConstraints, s.Variables, s.MatchConditions})
	p.actions.reinvoked = s.ReinvocationPolicy == registration.IfNeededReinvocationPolicy
	d := p.declared()
	d.Patch = true
	for _, m := range s.Mutations {
		switch {
		case m.PatchType == registration.PatchTypeJSONPatch && m.JSONPatch != nil:
			p.actions.mutations = append(p.actions.mutations, step{p.scope.Compile(m.JSONPatch.Expression, d, true, expression.PatchType()), true})
		case m.PatchType == registration.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
			p.actions.mutations = append(p.actions.mutations, step{p.scope.Compile(m.ApplyConfiguration.Expression, d, true, expression.ConfigurationType()), false})
		}
	}
	return p
}

// pluginName is the key under which the plugin keeps its rounds.
const pluginName = "MutatingAdmissionPolicy"

// failure is a policy that could not be evaluated for a request.
type failure struct {
	policy, binding string // binding is empty if the policy itself fails
	message         string
	reason          metav1.StatusReason // empty: Forbidden
}

func (f *failure) text() string {
	if f.binding == "" {
		return fmt.Sprintf("policy %q denied request: %s", f.policy, f.message)
	}
	return fmt.Sprintf("policy '%s' with binding '%s' denied request: %s", f.policy, f.binding, f.message)
}

func (m *mutating) mutate(ctx context.Context, a *admission.Attributes) error {
	var failures []failure
	all, err := m.invocations(ctx, a, func(p *policy[changes], b *binding, err error) {
		f := failure{policy: p.name, message: err.Error()}
		if b != nil {
			f.binding = b.name
		}
		failures = append(failures, f)
	})
	if err != nil || len(all) == 0 && len(failures) == 0 {
		return err
	}
	rounds := a.Rounds(pluginName)
	for i := range all {
		for n, params := range all[i].params {
			key := fmt.Sprintf("%s/%s/%d", all[i].policy.name, all[i].binding.name, n)
			if !rounds.Due(a, key) {
				continue
			}
			err := m.run(ctx, &all[i], a, params, rounds)
			var status *apierrors.StatusError
			if errors.As(err, &status) {
				return status
			}
			if err != nil && !all[i].ignores {
				failures = append(failures, failure{all[i].policy.name, all[i].binding.name, err.Error(), metav1.StatusReasonInvalid})
			}
			if all[i].actions.reinvoked {
				rounds.Asked(key)
			}
		}
	}
	rounds.Left(a)
	return refusal(a, failures)
}

// refusal returns the error of a request that policies failed for, nil if none
// did.
func refusal(a *admission.Attributes, failures []failure) error {
	if len(failures) == 0 {
		return nil
	}
	err := admission.Forbidden(a, "admission request denied by policy")
	err.ErrStatus.Message = failures[0].text()
	if reason := failures[0].reason; reason != "" {
		err.ErrStatus.Reason = reason
	}
	for i := range failures {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Message: failures[i].text()})
	}
	return err
}

// run runs the mutations of an invocation with one of its parameters. A
// *apierrors.StatusError is about the server; for another error the failure
// policy decides.
func (m *mutating) run(ctx context.Context, i *invocation[changes], a *admission.Attributes, params map[string]any, rounds *admission.Rounds) error {
	subject := a.Subject()
	if subject == nil {
		return nil
	}
	input, err := m.input(ctx, a, i.form, params)
	if err != nil {
		return err
	}
	if applies, err := m.applies(ctx, i, a, input); !applies {
		return err
	}
	before := subject.DeepCopyObject()
	for n, change := range i.actions.mutations {
		if n > 0 { // a mutation sees what the former have changed
			if input.Object, err = i.form.Tree(subject); err != nil {
				return err
			}
		}
		began := m.Now()
		err := m.apply(i.scope.Begin(ctx, input, expression.Budget), &change, i.form, subject, input.Object)
		m.count(i, m.Now().Sub(began), err)
		if err != nil {
			return err
		}
	}
	if !equality.Semantic.DeepEqual(before, subject) {
		rounds.Changed(a)
	}
	return nil
}

func (m *mutating) count(i *invocation[changes], took time.Duration, err error) {
	kind := "no_error"
	if err != nil {
		kind = "invalid_error"
	}
	m.total.WithLabelValues(i.policy.name, i.binding.name, kind).Inc()
	m.latency.WithLabelValues(i.policy.name, i.binding.name, kind).Observe(took.Seconds())
}

// apply changes the subject, of which tree is the form, by one mutation.
func (m *mutating) apply(e *expression.Evaluation, change *step, form *admission.Form, subject runtime.Object, tree map[string]any) error {
	if change.program.Error != nil {
		return change.program.Error
	}
	value, err := e.Run(change.program)
	if err != nil {
		return err
	}
	if change.patch {
		return applyPatch(value, form, subject)
	}
	return applyConfiguration(value, form, subject, tree)
}
