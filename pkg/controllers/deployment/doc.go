// Package deployment rolls out each Deployment's pod template: one ReplicaSet per template,
// scaled step by step (RollingUpdate) or one after the other (Recreate). Old ReplicaSets are
// kept as history.
//
// A reconcile performs the next step, which decide returns; the resulting changes enqueue
// the next reconcile. The controller keeps no state in memory: the replica sets and the
// deployment's status contain the progress of a rollout.
package deployment
