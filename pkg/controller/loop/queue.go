package loop

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Key names the object to reconcile; its namespace is "" for cluster-scoped objects.
type Key = types.NamespacedName

// queue is a work queue that hands each key to one worker at a time. A key is
//
// absent ─▶ delayed ─▶ ready ─▶ running ─▶ absent
//
// and may skip delayed. A key that is added while running becomes ready or delayed again
// when the worker is done with it.
// delayed again when the worker gives it back.
type queue struct {
	pace time.Duration // between two starts of one key

	mu      sync.Mutex
	items   map[Key]*item
	ready   []*item // first in, first out
	delayed schedule
	wake    chan struct{} // capacity 1: signals that next may have a key
	metrics *series
}

type item struct {
	key       Key
	running   bool
	ready     bool      // in queue.ready, or added while running
	readyAt   time.Time // since when
	due       time.Time // when in queue.delayed
	wanted    bool      // to be reconciled when due; otherwise kept only for notBefore
	index     int       // in queue.delayed, -1 if not there
	notBefore time.Time // the earliest next start
	fails     int       // consecutive failures
}

func newQueue(pace time.Duration, m *series) *queue {
	return &queue{pace: pace, items: map[Key]*item{}, wake: make(chan struct{}, 1), metrics: m}
}

// add makes the key ready now, or as soon as the pace allows.
func (q *queue) add(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.item(key)
	switch wait := time.Until(it.notBefore); {
	case it.ready:
	case it.running:
		it.ready, it.readyAt = true, time.Now()
		q.metrics.adds.Inc()
	case wait > 0:
		q.delay(it, wait)
	default:
		q.push(it)
	}
}

// addAfter makes the key ready after d, unless it is due sooner.
func (q *queue) addAfter(key Key, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.item(key); !it.ready {
		q.delay(it, d)
	}
}

func (q *queue) item(key Key) *item {
	it := q.items[key]
	if it == nil {
		it = &item{key: key, index: -1}
		q.items[key] = it
	}
	return it
}

func (q *queue) push(it *item) {
	if it.index >= 0 {
		heap.Remove(&q.delayed, it.index)
	}
	if !it.ready {
		it.ready, it.readyAt = true, time.Now()
		q.metrics.adds.Inc()
	}
	q.ready = append(q.ready, it)
	q.metrics.depth.Set(float64(len(q.ready)))
	q.signal()
}

func (q *queue) delay(it *item, d time.Duration) {
	due := time.Now().Add(d)
	if due.Before(it.notBefore) {
		due = it.notBefore
	}
	if it.index >= 0 && it.wanted && !due.Before(it.due) {
		return
	}
	q.keep(it, due, true)
	q.signal()
}

func (q *queue) keep(it *item, due time.Time, wanted bool) {
	it.due, it.wanted = due, wanted
	if it.index >= 0 {
		heap.Fix(&q.delayed, it.index)
	} else {
		heap.Push(&q.delayed, it)
	}
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take blocks until there is a key to reconcile. It returns false when ctx has ended.
func (q *queue) take(ctx context.Context) (*item, bool) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		it, wait := q.next()
		if it != nil {
			return it, true
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-q.wake:
		case <-timer.C:
		}
	}
	return nil, false
}

// next returns the first ready key, or nil and the time until the first delayed key is due.
func (q *queue) next() (*item, time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.expire(now)
	if len(q.ready) == 0 {
		if len(q.delayed) == 0 {
			return nil, time.Hour
		}
		return nil, q.delayed[0].due.Sub(now)
	}
	it := q.ready[0]
	q.ready[0] = nil
	q.ready = q.ready[1:]
	q.metrics.depth.Set(float64(len(q.ready)))
	q.metrics.waited.Observe(now.Sub(it.readyAt).Seconds())
	it.ready, it.running = false, true
	it.notBefore = now.Add(q.pace)
	if len(q.ready) > 0 || len(q.delayed) > 0 {
		q.signal() // for the next worker
	}
	return it, 0
}

// expire moves due keys to ready, or removes those that were kept only for the pace.
func (q *queue) expire(now time.Time) {
	for len(q.delayed) > 0 && !q.delayed[0].due.After(now) {
		it := heap.Pop(&q.delayed).(*item)
		switch {
		case !it.wanted:
			delete(q.items, it.key)
		case it.running:
			it.ready, it.readyAt = true, now
			q.metrics.adds.Inc()
		default:
			q.push(it)
		}
	}
}

// unpaced lifts the pace of a key that the worker did not reconcile.
func (q *queue) unpaced(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it.notBefore = time.Time{}
}

// done returns a key to the queue; it becomes ready after a time if after is not 0.
func (q *queue) done(it *item, fails int, after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it.running, it.fails = false, fails
	rest := time.Until(it.notBefore)
	switch {
	case it.ready && rest <= 0: // added meanwhile
		q.push(it)
	case it.ready:
		it.ready = false
		q.delay(it, rest)
	case after > 0:
		q.delay(it, after)
	case it.index >= 0: // delayed meanwhile
	case rest > 0:
		q.keep(it, it.notBefore, false)
	default:
		delete(q.items, it.key)
	}
}

// schedule is the heap of delayed keys, the earliest first.
type schedule []*item

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due.Before(s[j].due) }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}
func (s *schedule) Push(x any) {
	it := x.(*item)
	it.index = len(*s)
	*s = append(*s, it)
}
func (s *schedule) Pop() any {
	old := *s
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*s = old[:len(old)-1]
	it.index = -1
	return it
}
