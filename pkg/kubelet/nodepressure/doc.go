// Package nodepressure decides when a node is so short of memory or disk that pods must be
// evicted.
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
package nodepressure
