package registry

import (
	"context"
	"reflect"
	"time"

	registration "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/admission/match"
	"podium/pkg/expression"
	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

// Webhook configurations: package admission/webhooks acts on them. A validating
// webhook is defaulted and validated as a mutating one, which has all of its
// fields.

func mutatingWebhookConfigurations(k *scheme.Kind, c *expression.Compiler) *Kind {
	return webhookConfigurations(k, c, func(obj *registration.MutatingWebhookConfiguration) {
		for i := range obj.Webhooks {
			w := &obj.Webhooks[i]
			pointed(&w.ReinvocationPolicy, registration.NeverReinvocationPolicy)
			defaultWebhook(&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds, w.Rules, &w.ClientConfig)
		}
	})
}

func validatingWebhookConfigurations(k *scheme.Kind, c *expression.Compiler) *Kind {
	return webhookConfigurations(k, c, func(obj *registration.ValidatingWebhookConfiguration) {
		for i := range obj.Webhooks {
			w := &obj.Webhooks[i]
			defaultWebhook(&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds, w.Rules, &w.ClientConfig)
		}
	})
}

// defaultWebhook sets the defaults of the fields that both sorts of webhooks
// have.
func defaultWebhook(failure **registration.FailurePolicyType, policy **registration.MatchPolicyType, namespace, object **metav1.LabelSelector, timeout **int32,
	rules []registration.RuleWithOperations, c *registration.WebhookClientConfig) {
	pointed(failure, registration.Fail)
	pointed(policy, registration.Equivalent)
	pointed(namespace, metav1.LabelSelector{})
	pointed(object, metav1.LabelSelector{})
	pointed(timeout, 10)
	for i := range rules {
		defaultRule(&rules[i])
	}
	if c.Service != nil {
		pointed(&c.Service.Port, 443)
	}
}

// webhookConfigurations describes a kind of configurations.
func webhookConfigurations[T scheme.Object](k *scheme.Kind, c *expression.Compiler, setDefaults func(T)) *Kind {
	webhooks := func(obj T) []registration.MutatingWebhook { return match.Webhooks(obj) }
	return Of[T]{
		Default: setDefaults,
		Prepare: func(_ context.Context, _ Backend, new, old T) error {
			revise(new, old, func(obj T) any { return webhooks(obj) })
			return nil
		},
		Validate: func(new, old T) field.ErrorList {
			var before []registration.MutatingWebhook
			if !reflect.ValueOf(old).IsNil() {
				before = webhooks(old)
			}
			return validateWebhooks(c, webhooks(new), before)
		},
		Columns: columns(number("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration"), ageColumn()),
		Row: func(obj T, now time.Time) []any {
			return []any{obj.GetName(), int64(len(webhooks(obj))), age(obj.GetCreationTimestamp(), now)}
		},
	}.Kind(k)
}

// revise sets the generation: 1 for a new object, and one more when what part
// returns has changed.
func revise[T scheme.Object](new, old T, part func(T) any) {
	switch {
	case reflect.ValueOf(old).IsNil():
		new.SetGeneration(1)
	case !reflect.DeepEqual(part(new), part(old)):
		new.SetGeneration(old.GetGeneration() + 1)
	default:
		new.SetGeneration(old.GetGeneration())
	}
}

// sideEffects are the classes that a new webhook may have.
func sideEffects() []registration.SideEffectClass {
	return []registration.SideEffectClass{registration.SideEffectClassNone, registration.SideEffectClassNoneOnDryRun}
}

func validateWebhooks(c *expression.Compiler, hooks, before []registration.MutatingWebhook) field.ErrorList {
	var errs field.ErrorList
	var conditions [][]registration.MatchCondition
	for i := range before {
		conditions = append(conditions, before[i].MatchConditions)
	}
	known := expressionsOf(conditions...)
	names := map[string]bool{}
	for i := range hooks {
		w, at := &hooks[i], field.NewPath("webhooks").Index(i)
		errs = append(errs, validateWebhook(w, at)...)
		errs = append(errs, validateConditions(c, w.MatchConditions, false, known, at.Child("matchConditions"))...)
		errs = append(errs, fieldcheck.ReviewVersions(w.AdmissionReviewVersions, "must specify one of v1, v1beta1", at.Child("admissionReviewVersions"))...)
		if w.Name != "" && names[w.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), w.Name))
		}
		names[w.Name] = true
	}
	return errs
}

func validateWebhook(w *registration.MutatingWebhook, at *field.Path) field.ErrorList {
	errs := validation.IsFullyQualifiedName(at.Child("name"), w.Name)
	for i := range w.Rules {
		errs = append(errs, validateOperationRule(&w.Rules[i], at.Child("rules").Index(i))...)
	}
	errs = append(errs, validateFailurePolicy(w.FailurePolicy, at.Child("failurePolicy"))...)
	errs = append(errs, validateMatchPolicy(w.MatchPolicy, at.Child("matchPolicy"))...)
	if w.SideEffects == nil {
		errs = append(errs, field.Required(at.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
	}
	errs = append(errs, oneOfIfSet(w.SideEffects, at.Child("sideEffects"), sideEffects()...)...)
	if t := w.TimeoutSeconds; t != nil && (*t > 30 || *t < 1) {
		errs = append(errs, field.Invalid(at.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds"))
	}
	if w.NamespaceSelector != nil {
		errs = append(errs, validateStrictSelector(w.NamespaceSelector, at.Child("namespaceSelector"))...)
	}
	if w.ObjectSelector != nil {
		errs = append(errs, validateStrictSelector(w.ObjectSelector, at.Child("objectSelector"))...)
	}
	errs = append(errs, oneOfIfSet(w.ReinvocationPolicy, at.Child("reinvocationPolicy"), registration.IfNeededReinvocationPolicy, registration.NeverReinvocationPolicy)...)
	return append(errs, fieldcheck.WebhookClient(&w.ClientConfig, at.Child("clientConfig"))...)
}
