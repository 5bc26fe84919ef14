// Package scheduler finds a node for each pod that has none. It is a library
// first: Schedule is a pure function of a snapshot and a pod. The daemon around
// it keeps the snapshot up to date by watches, takes pods off the queue one at
// a time, assumes that each is where it was sent, and binds many at once.
package scheduler
