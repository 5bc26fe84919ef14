// Package rbac authorizes by roles and bindings. It keeps an index by subject
// in memory that follows the watch cache, so that a decision needs neither a
// read nor an allocation.
//
// https://kubernetes.io/docs/reference/access-authn-authz/rbac/
package rbac
