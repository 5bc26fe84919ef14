// Package roles compares and reconciles RBAC rules: which rules cover others, which are
// missing, and how to bring a role or a binding to its desired state without removing
// anything. The API server and the CLI share it.
package roles
