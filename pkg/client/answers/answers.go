package answers

import (
	"container/list"
	"sync"
	"time"
)

// Cache remembers answers until they are too old, and not more than a number of
// them: who asks ever new questions must not fill the process. The one that was
// used longest ago goes first.
type Cache[K comparable, V any] struct {
	most int
	now  func() time.Time

	mu    sync.Mutex
	known map[K]*list.Element
	order list.List // the last used in front
}

type answer[K comparable, V any] struct {
	question K
	value    V
	until    time.Time
}

// New remembers no more than most answers.
func New[K comparable, V any](most int, now func() time.Time) *Cache[K, V] {
	return &Cache[K, V]{most: most, now: now, known: map[K]*list.Element{}}
}

// Get is the answer to a question, if it is remembered.
func (c *Cache[K, V]) Get(question K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.known[question]
	if e == nil {
		return value, false
	}
	a := e.Value.(answer[K, V])
	if !c.now().Before(a.until) {
		c.dropLocked(e)
		return value, false
	}
	c.order.MoveToFront(e)
	return a.value, true
}

// Put remembers an answer for a while, of which nothing may be left.
func (c *Cache[K, V]) Put(question K, value V, ttl time.Duration) {
	if ttl <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.known[question]; e != nil {
		c.dropLocked(e)
	}
	c.known[question] = c.order.PushFront(answer[K, V]{question, value, c.now().Add(ttl)})
	if c.order.Len() > c.most {
		c.dropLocked(c.order.Back())
	}
}

func (c *Cache[K, V]) dropLocked(e *list.Element) {
	delete(c.known, e.Value.(answer[K, V]).question)
	c.order.Remove(e)
}
