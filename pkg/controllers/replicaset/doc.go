// Package replicaset maintains the desired number of pods of each ReplicaSet: it adopts
// matching pods, releases those that no longer match, creates missing ones, deletes surplus
// ones, least useful first, and counts them in the status. Kind lets it reconcile other kinds
// in the same way.
package replicaset
