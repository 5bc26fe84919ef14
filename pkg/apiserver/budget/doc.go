// Package budget bounds the memory and the work that a request may cause. Cost
// estimates, before anything is decoded, what a body becomes in memory; a
// Pool is what all requests together may take; MergeWork and TrackWork bound
// the work on patches. The package decodes nothing.
package budget
