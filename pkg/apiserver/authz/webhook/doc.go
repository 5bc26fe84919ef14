// Package webhook asks another program whether a request is allowed. What it
// says is remembered for a while; what it costs is bounded: in time, in memory
// and in questions asked at once.
// https://kubernetes.io/docs/reference/access-authn-authz/webhook/
package webhook
