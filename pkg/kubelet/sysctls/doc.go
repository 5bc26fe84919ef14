// Package sysctls determines which sysctls a pod may set: those that affect only its
// own namespaces, and those that an administrator allows.
package sysctls
