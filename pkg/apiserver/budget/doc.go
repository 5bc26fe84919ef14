// Package budget bounds the memory and the work that a request may cause. Cost
// estimates, before anything is decoded, what a body becomes in memory; Memory
// is the number of bytes that all requests together may take; MergeWork
// estimates what a strategic merge patch takes. The package decodes nothing.
package budget
