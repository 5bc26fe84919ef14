// Package eventratelimit is the admission plugin EventRateLimit: it bounds how
// many events are written, for the whole server, for a namespace, a user, or a
// source and the object it reports on.
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#eventratelimit
package eventratelimit
