// Package webhook authorizes requests by a SubjectAccessReview sent to a
// service. It caches decisions and limits the time, memory and concurrency of
// calls.
//
// https://kubernetes.io/docs/reference/access-authn-authz/webhook/
package webhook
