// Package controller holds what the controllers of kube-controller-manager and
// cloud-controller-manager are made of: the Spec by which a manager lists and
// starts one, the Context it is built with, and the Writer for its changes.
//
// The packages below it hold one concept each: loop (work queue, retries, the
// guard against stale caches), informers (shared caches), ownership (owner
// references), podcontrol (pods of a workload), pods (the state of a pod), and
// manager (flags, leader election, service accounts).
package controller
