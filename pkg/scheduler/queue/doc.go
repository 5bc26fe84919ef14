// Package queue holds the pods without a node. A pod is in one of three places:
//
//	active ──Pop──▶ (an attempt) ──Fail──▶ unschedulable ──an event that may help,
//	  ▲                                          │           or 5 minutes──┐
//	  └───────────── backoff (1 s to 10 s) ◀─────┴─────────────────────────┘
//
// Active pods come out by priority, then first in, first out.
package queue
