package watchcache

import "sync"

// A cache keeps the objects decoded that it has decoded last: as many as hotObjects, whose messages have
// at most hotBytes together. The others are decoded from their messages on demand, so that
// memory grows with the messages, which are smaller.
const (
	hotObjects = 1024
	hotBytes   = 16 << 20
)

// hot holds the most recently decoded entries. Safe for concurrent use.
type hot struct {
	mu      sync.Mutex
	entries []hotEntry // the oldest first
	bytes   int
}

type hotEntry struct {
	*Entry
	bytes int // of the message
}

func (h *hot) add(e *Entry) {
	size := 0
	if p := e.message().data.Load(); p != nil {
		size = p.Len()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = append(h.entries, hotEntry{e, size})
	h.bytes += size
	for len(h.entries) > hotObjects || h.bytes > hotBytes && len(h.entries) > 1 {
		oldest := h.entries[0]
		oldest.drop()
		h.bytes -= oldest.bytes
		h.entries[0] = hotEntry{}
		h.entries = h.entries[1:]
	}
}

func (h *hot) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries, h.bytes = nil, 0
}
