// Package cluster is the parent of the packages that create and delete
// clusters: pki, progress and others, and a package for each kind of machine.
package cluster
