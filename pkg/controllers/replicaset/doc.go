// Package replicaset keeps as many pods as each ReplicaSet asks for: it adopts
// those that match and lets go of those that no longer do, creates what is
// missing, deletes what is too much, the least useful first, and counts.
package replicaset
