package events

import (
	"container/list"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Limits, equal to upstream's.
const (
	maxSimilar    = 10               // distinct messages of one reason before they are combined
	similarFor    = 10 * time.Minute // how long messages count as similar
	spamBurst     = 25               // burst of events per object
	spamRefill    = 5 * time.Minute  // time until one more event is allowed
	maxRemembered = 4096             // entries of each LRU

	combined = "(combined from similar events): "
)

// similar is the key of events that differ only in their message.
type similar struct {
	object       corev1.ObjectReference
	kind, reason string
}

// same is the key of events that repeat each other.
type same struct {
	similar
	message string
}

// series is an event and its repetitions, stored as one object on the server.
type series struct {
	event  *corev1.Event
	stored bool
}

// add counts e, a repetition, in the series.
func (s *series) add(e *corev1.Event) {
	s.event.Message = e.Message
	if e.EventTime.IsZero() {
		s.event.Count++
		s.event.LastTimestamp = e.LastTimestamp
		return
	}
	count := int32(2) // the first is the event itself
	if s.event.Series != nil {
		count = s.event.Series.Count + 1
	}
	s.event.Series = &corev1.EventSeries{Count: count, LastObservedTime: e.EventTime}
}

// repetition returns a merge patch of the fields that add changes.
func (s *series) repetition() map[string]any {
	if s.event.Series != nil {
		return map[string]any{"series": s.event.Series, "message": s.event.Message}
	}
	return map[string]any{"count": s.event.Count, "lastTimestamp": s.event.LastTimestamp, "message": s.event.Message}
}

// lastSeen returns the time of the event's last occurrence.
func lastSeen(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.LastTimestamp.Time
}

type group struct {
	since    time.Time
	messages map[string]bool
}

type bucket struct {
	tokens float64
	filled time.Time
}

// correlator decides whether an event is written, counted or dropped. It is not safe
// for concurrent use.
type correlator struct {
	series *lru[same, *series]
	groups *lru[similar, *group]
	spam   *lru[corev1.ObjectReference, *bucket]
}

func newCorrelator() *correlator {
	return &correlator{
		series: newLRU[same, *series](maxRemembered),
		groups: newLRU[similar, *group](maxRemembered),
		spam:   newLRU[corev1.ObjectReference, *bucket](maxRemembered),
	}
}

// observe returns the updated series that e belongs to, or false if the object of e
// exceeds its rate.
func (c *correlator) observe(e *corev1.Event) (*series, bool) {
	now := lastSeen(e)
	object := e.InvolvedObject
	object.ResourceVersion = ""
	if !c.allow(object, now) {
		return nil, false
	}
	like := similar{object, e.Type, e.Reason}
	key := same{like, e.Message}
	if c.countMessage(like, e.Message, now) > maxSimilar {
		key.message = combined
		e.Message = combined + e.Message
	}
	s, known := c.series.get(key)
	if !known {
		s = &series{event: e}
		c.series.put(key, s)
		return s, true
	}
	s.add(e)
	return s, true
}

func (c *correlator) countMessage(like similar, message string, now time.Time) int {
	g, ok := c.groups.get(like)
	if !ok || now.Sub(g.since) > similarFor {
		g = &group{since: now, messages: map[string]bool{}}
		c.groups.put(like, g)
	}
	if len(g.messages) <= maxSimilar {
		g.messages[message] = true
	} else if !g.messages[message] {
		return len(g.messages) + 1
	}
	return len(g.messages)
}

func (c *correlator) allow(object corev1.ObjectReference, now time.Time) bool {
	b, ok := c.spam.get(object)
	if !ok {
		b = &bucket{tokens: spamBurst, filled: now}
		c.spam.put(object, b)
	}
	b.tokens = min(spamBurst, b.tokens+now.Sub(b.filled).Seconds()/spamRefill.Seconds())
	b.filled = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// lru is a map that evicts the least recently used entry when it exceeds max.
type lru[K comparable, V any] struct {
	max   int
	items map[K]*list.Element
	order *list.List // of pair[K, V], the most recently used in front
}

type pair[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](limit int) *lru[K, V] {
	return &lru[K, V]{max: limit, items: map[K]*list.Element{}, order: list.New()}
}

func (l *lru[K, V]) get(k K) (V, bool) {
	e, ok := l.items[k]
	if !ok {
		var none V
		return none, false
	}
	l.order.MoveToFront(e)
	return e.Value.(pair[K, V]).value, true
}

func (l *lru[K, V]) put(k K, v V) {
	if e, ok := l.items[k]; ok {
		e.Value = pair[K, V]{k, v}
		l.order.MoveToFront(e)
		return
	}
	l.items[k] = l.order.PushFront(pair[K, V]{k, v})
	if l.order.Len() > l.max {
		last := l.order.Back()
		l.order.Remove(last)
		delete(l.items, last.Value.(pair[K, V]).key)
	}
}
