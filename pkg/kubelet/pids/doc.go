// Package pids measures and limits the process ids of the node: how many are in
// use, how many pods may use, and when pods must be evicted because too few are
// left (upstream's eviction signal pid.available).
package pids
