package watchcache

import (
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/watch"
)

// WatchEvent is one change as a watcher receives it, or a bookmark, whose Entry is
// nil. The Entry of a Deleted event has the last state of the object, with the
// revision of the deletion as its resourceVersion.
type WatchEvent struct {
	Type       watch.EventType
	Entry      *Entry
	Revision   int64
	InitialEnd bool // the bookmark after the initial events

	change *change // nil if no other watcher receives the same event
}

// Previous returns the state before the event, nil for an object of the initial state or
// one that was created.
func (e *WatchEvent) Previous() *Entry {
	if e.change == nil {
		return nil
	}
	return e.change.prev
}

// Alone reports whether no other watcher receives the same event, so that the
// result of Frame is not cached.
func (e *WatchEvent) Alone() bool { return e.change == nil }

// Frame returns the encoded event in a media type. It calls make unless another
// watcher has already encoded the same event, and shares the result with the other
// watchers, including a nil result. The bytes must not be modified. Safe for
// concurrent use.
func (e *WatchEvent) Frame(media string, make func() []byte) []byte {
	if e.change == nil {
		return make()
	}
	return e.change.frame(e.Type, media, make)
}

// change is one write to the resource, shared by the history and all watchers.
type change struct {
	revision int64
	at       int64  // unix time in nanoseconds
	entry    *Entry // the new state; nil if the object was deleted
	prev     *Entry // the previous state; nil if the object was created

	mu     sync.Mutex // held while gone or a frame is created
	gone   *Entry     // prev with this revision
	frames atomic.Pointer[frame]
}

// frame is an encoded event. The frames of a change form a short list.
type frame struct {
	kind  watch.EventType
	media string
	data  []byte
	next  *frame
}

func (c *change) frame(kind watch.EventType, media string, make func() []byte) []byte {
	if f := c.frames.Load().find(kind, media); f != nil {
		return f.data
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	head := c.frames.Load()
	if f := head.find(kind, media); f != nil {
		return f.data
	}
	f := &frame{kind: kind, media: media, data: make(), next: head}
	c.frames.Store(f)
	return f.data
}

func (f *frame) find(kind watch.EventType, media string) *frame {
	for ; f != nil; f = f.next {
		if f.kind == kind && f.media == media {
			return f
		}
	}
	return nil
}

// deleted returns the entry of the Deleted event for watchers that selected prev.
func (c *change) deleted() *Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone == nil {
		c.gone = c.prev.At(c.revision)
	}
	return c.gone
}
