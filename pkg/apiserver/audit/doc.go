// Package audit records the requests of the server, their users and their
// outcome, as audit.k8s.io/v1 events.
//
// A policy (--audit-policy-file) sets which requests are recorded, at which
// level, and at which stages. Events go to a log file and to a webhook. Each of
// these backends has its own queue and goroutine, and a request only adds its
// event to the queues. When a backend falls behind, its queue fills up to its
// limit, in events and in bytes, and new events are dropped: requests are
// neither delayed nor refused because of the audit. Dropped events are counted
// (apiserver_audit_error_total), logged by the server and, when the backend has
// caught up, reported in an event with the annotation podium.dev/lost-events.
// The modes blocking and blocking-strict (--audit-log-mode) make requests wait
// instead.
//
// The texts of an event are limited in length. Only a few unauthenticated
// requests are recorded individually: the rest are counted and reported in an
// event with the annotation podium.dev/suppressed-events.
//
// The content of Secrets and tokens is in no event, whatever the policy: the
// package never copies bodies of confidential resources, and reduces their
// response status to code and reason.
package audit
