// Package pods answers what controllers ask about a pod's state.
package pods
