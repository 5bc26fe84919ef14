// Package audit records who asked what of the server, and what came of it, as
// audit.k8s.io/v1 events.
//
// A policy (--audit-policy-file) says which requests are recorded, how much of
// them, and at which stages. Events go to a log file and to a webhook. Each of
// these backends has its own queue and goroutine: a request only puts its
// event into the queues. When a backend falls behind, its queue fills up to its
// bound, in events and in bytes, and then new events are dropped: requests are
// never slowed down nor refused for the sake of the record. Dropped events are
// counted (apiserver_audit_error_total), logged by the server and, when the
// backend has caught up, reported in an event with the annotation
// podium.dev/lost-events. The modes blocking and blocking-strict
// (--audit-log-mode) make requests wait instead.
//
// The texts of an event are bounded, and of unauthenticated requests only few
// are recorded one by one: the others are counted and reported in an event with
// the annotation podium.dev/suppressed-events.
//
// Contents of Secrets and tokens are in no event, whatever the policy says:
// of the resources that hold them (confidential) no body is ever copied, and
// the rest of an answer is its code and reason.
package audit
