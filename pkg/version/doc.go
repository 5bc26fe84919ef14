// Package version says which Kubernetes this is, and from which of our commits.
package version
