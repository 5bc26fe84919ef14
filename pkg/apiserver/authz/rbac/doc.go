// Package rbac decides by roles and bindings: an index in memory, by subject,
// that follows the watch cache, so that a request is decided without a read and
// without an allocation.
// https://kubernetes.io/docs/reference/access-authn-authz/rbac/
package rbac
