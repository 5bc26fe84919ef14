// Package sysctls knows which kernel parameters a pod may set: those that
// concern its own namespaces alone, and those an administrator lets it set.
package sysctls
