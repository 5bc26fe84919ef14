// Package metadata reads, watches, patches and deletes objects of any served
// kind by their metadata alone: what the garbage collector and the namespace
// controller need, which care for all kinds alike.
package metadata
