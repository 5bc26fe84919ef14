// Package informer keeps a local, indexed copy of the objects of one kind, and calls
// handlers for each change exactly once and in order, across disconnections,
// compactions and restarts of the server.
package informer
