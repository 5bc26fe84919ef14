// Package workloads runs many pods at once on a cluster of four node containers: a Job of
// 500 indexes, an autoscaler under load, drains with disruption budgets, and a rollout of 100
// pods while the controller manager and the scheduler are killed. It watches all pods, so that
// what must hold at every instant is checked at every change.
package workloads
