// Package resources rejects nodes with insufficient resources for a pod, and prefers the least
// allocated and most evenly allocated nodes.
package resources
