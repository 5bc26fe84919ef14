package ttlcache

import (
	"container/list"
	"sync"
	"time"
)

// Cache holds entries until they expire, up to a maximum number: beyond it, the least
// recently used entry is evicted, so that new keys cannot exhaust memory. It is safe for
// concurrent use.
type Cache[K comparable, V any] struct {
	size int
	now  func() time.Time

	mu      sync.Mutex
	entries map[K]*list.Element
	order   list.List // the most recently used in front
}

type entry[K comparable, V any] struct {
	key     K
	value   V
	expires time.Time
}

// New returns an empty cache of at most size entries that reads the time from now.
func New[K comparable, V any](size int, now func() time.Time) *Cache[K, V] {
	return &Cache[K, V]{size: size, now: now, entries: map[K]*list.Element{}}
}

// Get returns the value of key; ok is false if there is none or it has expired.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.entries[key]
	if el == nil {
		return value, false
	}
	e := el.Value.(entry[K, V])
	if !c.now().Before(e.expires) {
		c.dropLocked(el)
		return value, false
	}
	c.order.MoveToFront(el)
	return e.value, true
}

// Put stores value for ttl and replaces the previous value of key. With a ttl of zero
// or less it does nothing.
func (c *Cache[K, V]) Put(key K, value V, ttl time.Duration) {
	if ttl <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if el := c.entries[key]; el != nil {
		c.dropLocked(el)
	}
	c.entries[key] = c.order.PushFront(entry[K, V]{key, value, c.now().Add(ttl)})
	if c.order.Len() > c.size {
		c.dropLocked(c.order.Back())
	}
}

func (c *Cache[K, V]) dropLocked(el *list.Element) {
	delete(c.entries, el.Value.(entry[K, V]).key)
	c.order.Remove(el)
}
