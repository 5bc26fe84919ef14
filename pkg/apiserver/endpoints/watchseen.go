package endpoints

import (
	"context"

	"k8s.io/apimachinery/pkg/watch"

	"podium/pkg/storage/watchcache"
)

// seen returns the events as the version of the watch shows them, without those that
// the client does not select, in the same order. It changes events. An error ends the
// watch: the client lists again, so that it misses nothing.
func (s *stream) seen(ctx context.Context, events []watchcache.WatchEvent) ([]watchcache.WatchEvent, error) {
	if s.selected == nil {
		return events, nil
	}
	// One conversion for all: the state of each event, and the one before it if the
	// client selects, because an object that no longer matches is Deleted.
	var entries []*watchcache.Entry
	for i := range events {
		entries = append(entries, s.states(&events[i])...)
	}
	entries, err := s.res.seen(ctx, entries)
	if err != nil {
		return nil, err
	}
	kept := events[:0]
	for _, e := range events {
		n := len(s.states(&e))
		if n == 0 || s.show(&e, entries[:n]) {
			kept = append(kept, e)
		}
		entries = entries[n:]
	}
	return kept, nil
}

// states returns the states of an object that an event is about: the present one, or
// the last one of a deleted object, and the one before if it matters for the selectors.
func (s *stream) states(e *watchcache.WatchEvent) []*watchcache.Entry {
	switch {
	case e.Entry == nil:
		return nil
	case e.Type == watch.Deleted:
		return []*watchcache.Entry{e.Previous()}
	case e.Type == watch.Modified && s.selected.selective():
		return []*watchcache.Entry{e.Entry, e.Previous()}
	}
	return []*watchcache.Entry{e.Entry}
}

// show sets what an event means for the client, given its converted states. It returns
// false if it means nothing.
func (s *stream) show(e *watchcache.WatchEvent, states []*watchcache.Entry) bool {
	last := states[len(states)-1]
	now, before := e.Type != watch.Deleted && s.selected.matches(states[0]), s.selected.matches(last)
	switch e.Entry = states[0]; {
	case e.Type == watch.Added:
		return now
	case now && !before:
		e.Type = watch.Added
	case before && !now:
		e.Type, e.Entry = watch.Deleted, last.At(e.Revision)
	}
	return now || before
}
