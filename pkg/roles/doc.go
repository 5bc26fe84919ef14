// Package roles is the arithmetic of RBAC rules: which are covered by others,
// which are missing, how a role or a binding becomes what somebody wants it to
// be without taking anything away. The apiserver and the CLI share it.
package roles
