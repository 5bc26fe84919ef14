// Package pods runs the pods of a node. A Manager runs a worker for each pod: one
// goroutine that owns the pod and moves it through its lifecycle. The observer
// notifies workers of changes in the runtime, and the status writer reports to the
// API. The decisions are pure functions (decide, podStatus, admit) of the API's
// and the runtime's state, so that a restarted kubelet comes to the same results:
// all essential state is outside the kubelet's memory.
package pods
