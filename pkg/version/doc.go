// Package version says which Kubernetes this is, and from which of our commits;
// and which of two versions is the newer.
package version
