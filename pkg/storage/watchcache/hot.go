package watchcache

import "sync"

// hotObjects is how many decoded objects a cache keeps: those decoded last.
// The others are made again from their messages when somebody needs them, so
// that memory grows with the messages, which are several times smaller.
const hotObjects = 1024

// hot is the entries that were decoded last.
type hot struct {
	mu      sync.Mutex
	entries []*Entry // a ring once it is full
	next    int
}

func (h *hot) add(e *Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.entries) < hotObjects {
		h.entries = append(h.entries, e)
		return
	}
	h.entries[h.next].drop()
	h.entries[h.next] = e
	h.next = (h.next + 1) % hotObjects
}
