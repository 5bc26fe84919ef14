// Package watchcache keeps one resource in memory: an immutable ordered tree,
// so that a LIST is a snapshot taken in O(1), and a ring of recent events, so
// that a WATCH can begin in the past. Every object carries its encodings, made
// once and shared by all who ask.
//
// One Feed, a single watch over the whole store, drives all caches: their
// revisions advance together with every write to any of them, and a read that
// must be consistent only asks the store for its revision and waits for the
// feed to pass it.
package watchcache
