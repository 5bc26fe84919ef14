package watchcache

import "sync"

// hotObjects is the number of decoded objects that a cache keeps: the most recently
// decoded ones. The others are decoded from their messages on demand, so that
// memory grows with the messages, which are several times smaller.
const hotObjects = 1024

// hot holds the most recently decoded entries. Safe for concurrent use.
type hot struct {
	mu      sync.Mutex
	entries []*Entry // a ring, once it is full
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

func (h *hot) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries, h.next = nil, 0
}
