// Package informer keeps a local, indexed copy of what the API holds of one
// kind, and tells of each change exactly once and in order, through
// disconnections, compactions and restarts of the server.
package informer
