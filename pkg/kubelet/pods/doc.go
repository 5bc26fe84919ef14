// Package pods runs the pods of a node. A Manager gives every pod a worker, one
// goroutine that owns it and moves it through its life; the observer tells
// workers when the runtime changed under them; the status writer reports what
// workers find. What is to be done is decided by plain functions (decide,
// podStatus, admit) over what the API wants and what the runtime has, so a
// kubelet that starts again comes to the same conclusions: nothing that matters
// is only in memory.
package pods
