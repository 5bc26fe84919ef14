package watchcache

import (
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/watch"
)

// WatchEvent is one change as a watcher sees it, or a bookmark (then Entry is
// nil). A Deleted event's Entry shows the object's last state with the revision
// of the deletion as its resourceVersion.
type WatchEvent struct {
	Type       watch.EventType
	Entry      *Entry
	Revision   int64
	InitialEnd bool // the bookmark behind the initial events

	change *change // nil if nobody else sees this very event
}

// Alone says that no other watcher sees this very event: what Frame returns is
// not kept.
func (e *WatchEvent) Alone() bool { return e.change == nil }

// Frame returns the event's bytes in a media type: what another watcher has
// made for the same event, else what make returns, which is then kept for the
// others. The bytes are shared and must not be modified.
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
	entry    *Entry // the state it made, nil if it deleted the object
	prev     *Entry // the state before, nil if it created the object

	mu     sync.Mutex // guards the making of what stands below
	gone   *Entry     // prev at this revision
	frames atomic.Pointer[frame]
}

// frame is an encoded event; those of one change form a short list.
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

// deleted is what a watcher that saw prev sees when it is gone.
func (c *change) deleted() *Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone == nil {
		c.gone = c.prev.at(c.revision)
	}
	return c.gone
}
