// Package replicationcontroller maintains the desired number of pods of each
// ReplicationController. It reconciles them as package replicaset does ReplicaSets.
package replicationcontroller
