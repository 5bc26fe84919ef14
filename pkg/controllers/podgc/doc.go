// Package podgc deletes pods that no kubelet and no other controller deletes: those of nodes
// that no longer exist, those deleted before they were bound, those deleted on a node that is
// out of service, and, beyond a threshold, the oldest terminated ones.
package podgc
