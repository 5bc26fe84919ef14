// Package job runs the pods of Jobs to completion: it creates pods up to the parallelism,
// replaces failed ones with back-off, counts the ones that have ended, and decides when the
// Job has succeeded or failed.
//
// Counting is exact. Each pod has the finalizer batch.kubernetes.io/job-tracking. A pod that
// has ended is first recorded in the status (as a UID in uncountedTerminatedPods, or as a
// completed index), then its finalizer is removed, then the UID moves into the counters. The
// name of a pod is a function of the Job's UID, the index and the names in use, so that a
// create whose response was lost is not repeated under another name.
//
// A Job goes through these states:
//
//	running ⇄ suspended
//	running, suspended ─▶ SuccessCriteriaMet ─▶ Complete
//	running, suspended ─▶ FailureTarget ─▶ Failed
//
// SuccessCriteriaMet and FailureTarget are written before pods are deleted; Complete and
// Failed after all pods have ended and are counted.
package job
