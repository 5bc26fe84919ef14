// Package bootstrap defines the default roles and bindings of every cluster:
// upstream's user-facing roles, and for each daemon and controller exactly the
// permissions that it uses. The package only returns objects; the API server
// reconciles them when it starts.
//
// https://kubernetes.io/docs/reference/access-authn-authz/rbac/#default-roles-and-role-bindings
package bootstrap
