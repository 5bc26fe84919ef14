// Package pods holds predicates on the state of a pod, and the order in which controllers
// delete pods.
package pods
