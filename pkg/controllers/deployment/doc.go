// Package deployment rolls each Deployment's pods to its template: one
// ReplicaSet per template, scaled up and down step by step (RollingUpdate) or
// one after the other (Recreate), the old ones kept as history.
//
// A reconcile asks decide for the next step and takes it; the change that the
// step makes wakes the next reconcile. Nothing is remembered in between: the
// replica sets and the deployment's status say how far a rollout is.
package deployment
