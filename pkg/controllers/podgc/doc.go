// Package podgc deletes pods that nobody else would: those whose node is gone,
// those that were to end before they were ever bound, those on a node that is
// out of service, and, beyond a threshold, those that ended longest ago.
package podgc
