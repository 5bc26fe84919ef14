// Package version holds the Kubernetes version and the build of this program, and compares
// versions.
package version
