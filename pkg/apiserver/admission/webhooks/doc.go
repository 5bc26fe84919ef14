// Package webhooks is the admission plugins MutatingAdmissionWebhook and
// ValidatingAdmissionWebhook: they ask services outside about requests, as the
// webhook configurations in the cluster say.
// https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
package webhooks
