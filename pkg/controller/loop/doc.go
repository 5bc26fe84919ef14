// Package loop is the reconcile loop that all controllers share: a work queue of keys,
// the rules that enqueue them, back-off, the guard against stale caches, and the metrics.
// A controller supplies one function, Reconcile, which brings the actual state of an
// object to its desired state.
//
// The loop guarantees:
//
//   - one worker per key at a time; a key enqueued while it is being reconciled is
//     reconciled once more after that, however often it was enqueued;
//   - a key whose reconcile failed is retried with exponential back-off;
//   - a key that wrote something is not reconciled again until the cache shows the
//     write (Wrote, Wait). This keeps a controller that reads from a cache from
//     creating an object twice.
package loop
