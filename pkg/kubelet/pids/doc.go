// Package pids measures and bounds the process ids of the node: how many there
// are, how many pods may take, and when so few are left that pods must be
// evicted (upstream's eviction signal pid.available).
package pids
