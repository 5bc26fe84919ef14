// Package cluster holds what brings clusters up and takes them down: pki,
// progress, and a package a provider.
package cluster
