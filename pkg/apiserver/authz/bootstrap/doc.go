// Package bootstrap says which roles and bindings every cluster has: upstream's
// for people, and for each daemon and controller of ours what it uses, no more.
// They are data; the server makes them at its start and completes them.
// https://kubernetes.io/docs/reference/access-authn-authz/rbac/#default-roles-and-role-bindings
package bootstrap
