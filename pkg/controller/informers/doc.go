// Package informers holds the informers that controllers share: one for each kind,
// created when the first controller asks for it. Indexes are created on demand, too, so
// that a controller never lists all objects to handle one.
package informers
