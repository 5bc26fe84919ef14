package match

import (
	registration "k8s.io/api/admissionregistration/v1"

	"podium/pkg/scheme"
)

// Webhooks returns the webhooks of a configuration; validating ones as mutating
// ones, which have all of their fields.
func Webhooks(obj scheme.Object) (out []registration.MutatingWebhook) {
	switch c := obj.(type) {
	case *registration.MutatingWebhookConfiguration:
		return c.Webhooks
	case *registration.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			out = append(out, registration.MutatingWebhook{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
				NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
				TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
			})
		}
	}
	return out
}
