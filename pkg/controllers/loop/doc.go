// Package loop is the reconcile loop that every controller shares: a queue of
// keys, the rules that wake them, back-off, the guard against a stale view, and
// the metrics. A controller gives it one function, Reconcile, which looks at
// present state and makes it what it should be.
//
// What the loop promises:
//
//   - one worker per key at a time; a key woken while it is being reconciled is
//     reconciled once more after that, however often it was woken;
//   - a key whose reconcile failed is tried again, later each time;
//   - a key that wrote something is not reconciled again on a view that does
//     not show that write yet (Wrote, Wait). This is what keeps a controller
//     that reads from a cache from creating a thing twice.
package loop
