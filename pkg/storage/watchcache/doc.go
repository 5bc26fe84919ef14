// Package watchcache keeps one resource in memory: an immutable ordered tree, so
// that a LIST is a snapshot taken in O(1), and a ring of recent events, so that a
// WATCH can begin in the past. Every object carries its encodings, which are made
// once and shared by all readers.
//
// One Feed, a single watch over the whole store, drives all caches: their revisions
// advance together with every write to any of them. A consistent read gets the
// revision of the store and waits until the feed has reached it.
package watchcache
