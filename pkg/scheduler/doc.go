// Package scheduler assigns a node to each pod that has none. Schedule is a pure function of a
// snapshot and a pod. The daemon around it updates the snapshot from watches, takes one pod at
// a time from the queue, assumes that the pod is on the chosen node, and binds several pods
// concurrently.
package scheduler
