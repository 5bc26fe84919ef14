// Package budget bounds the memory and the CPU time of a request. Cost
// estimates the decoded size of a body before it is decoded; Pool limits what
// all requests use together; MergeWork and TrackWork bound the cost of patches.
// The package decodes no objects.
package budget
