package queue

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheduler/framework"
)

// Config holds the times; zero means the default.
type Config struct {
	InitialBackoff time.Duration // after the first failure; default 1 s
	MaxBackoff     time.Duration // default 10 s
	MaxWait        time.Duration // in unschedulable, without any event; default 5 min

	Moved func(to, why string) // nil, or told of each pod that enters a place (metrics)
}

// Attempt is one try to find a node for a pod.
type Attempt struct {
	Pod    *corev1.Pod
	Number int       // 1 is the first
	Added  time.Time // when the pod first came

	item  *item
	moves uint64 // of the queue, when the attempt began
}

// item is a pod in the queue.
type item struct {
	pod      *corev1.Pod
	attempts int
	added    time.Time
	number   uint64 // in what order pods came

	queued uint64          // in what order they became active
	since  time.Time       // when it came where it is
	ready  time.Time       // end of its back-off
	wakes  framework.Event // what may help it
	stale  bool            // the attempt under way looks at a pod that changed since
	place  place
	index  int // in its heap
}

type place int

const (
	nowhere place = iota // an attempt is under way, or it was removed
	active
	backoff
	unschedulable
)

// Queue is safe for concurrent use, but for Pop, which one goroutine calls.
type Queue struct {
	cfg Config

	mu      sync.Mutex
	items   map[types.UID]*item // all, also those under way
	active  itemHeap
	backoff itemHeap
	parked  map[framework.Event]map[*item]struct{} // unschedulable, by what wakes them

	number  uint64 // of pods that came
	flushed time.Time
	order   uint64
	moves   uint64               // events so far
	recent  [256]framework.Event // what the last of them were, by moves
	wake    chan struct{}        // something came that Pop may want
}

// The names of the three places and of what brings pods there, as metrics have them.
const (
	Active        = "active"
	Backoff       = "backoff"
	Unschedulable = "unschedulable"

	PodAdd           = "PodAdd"
	PodUpdate        = "PodUpdate"
	BackoffComplete  = "BackoffComplete"
	AttemptFailed    = "ScheduleAttemptFailure"
	WaitedLongEnough = "UnschedulableTimeout"
)

// New makes an empty queue.
func New(cfg Config) *Queue {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&cfg.InitialBackoff, time.Second)
	def(&cfg.MaxBackoff, 10*time.Second)
	def(&cfg.MaxWait, 5*time.Minute)
	return &Queue{
		cfg: cfg, items: map[types.UID]*item{}, parked: map[framework.Event]map[*item]struct{}{}, wake: make(chan struct{}, 1),
		active:  itemHeap{less: byPriority},
		backoff: itemHeap{less: func(a, b *item) bool { return a.ready.Before(b.ready) }},
	}
}

// byPriority is the order in which pods are scheduled.
func byPriority(a, b *item) bool {
	if pa, pb := priority(a.pod), priority(b.pod); pa != pb {
		return pa > pb
	}
	return a.queued < b.queued
}

func priority(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// Add queues a new pod, or brings a queued one up to date; helps says that the
// change may let it fit (then it need not wait for an event).
func (q *Queue) Add(pod *corev1.Pod, helps bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	it := q.items[pod.UID]
	if it == nil {
		it = &item{pod: pod, added: now, number: q.number}
		q.number++
		q.items[pod.UID] = it
		q.activate(it, now, PodAdd)
		return
	}
	it.pod = pod
	switch it.place {
	case active:
		heap.Fix(&q.active, it.index) // the priority may be another
	case unschedulable:
		if helps {
			q.retry(it, now, PodUpdate)
		}
	case nowhere:
		it.stale = it.stale || helps
	}
}

// Remove forgets a pod, wherever it is.
func (q *Queue) Remove(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[uid]
	if it == nil {
		return
	}
	delete(q.items, uid)
	q.take(it)
}

// Pop takes the next pod and begins an attempt at it. It blocks until there is
// one, or ctx ends; then it returns nil.
func (q *Queue) Pop(ctx context.Context) *Attempt {
	for {
		a, next := q.pop()
		if a != nil {
			return a
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-q.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// flushEvery is how often pods are looked for that waited long enough.
const flushEvery = 30 * time.Second

// pop returns the first active pod, or how long to wait at most.
func (q *Queue) pop() (*Attempt, time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for len(q.backoff.items) > 0 && !q.backoff.items[0].ready.After(now) {
		q.activate(q.backoff.items[0], now, BackoffComplete)
	}
	if now.Sub(q.flushed) >= flushEvery {
		q.flushed = now
		q.retryAll(func(it *item) bool { return now.Sub(it.since) >= q.cfg.MaxWait }, framework.AnyEvent, now, WaitedLongEnough)
	}
	if len(q.active.items) > 0 {
		it := q.active.items[0]
		q.take(it)
		it.attempts++
		it.stale = false
		return &Attempt{Pod: it.pod, Number: it.attempts, Added: it.added, item: it, moves: q.moves}, 0
	}
	wait := flushEvery
	if len(q.backoff.items) > 0 {
		wait = min(wait, q.backoff.items[0].ready.Sub(now))
	}
	return nil, wait
}

// Fail ends an attempt that found no node: the pod waits for one of the events
// in wakes. If such an event came during the attempt, or wakes is none because
// the failure was not the cluster's, it only waits for its back-off.
func (q *Queue) Fail(a *Attempt, wakes framework.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := a.item
	if q.items[it.pod.UID] != it || it.place != nowhere {
		return // removed meanwhile
	}
	now := time.Now()
	it.wakes = wakes
	it.ready = now.Add(q.delay(it.attempts))
	if wakes == 0 || it.stale || q.missed(a.moves, wakes) {
		q.enter(it, backoff, now, AttemptFailed)
		return
	}
	q.enter(it, unschedulable, now, AttemptFailed)
}

// missed says whether an event that may help came since the queue had seen so many.
func (q *Queue) missed(moves uint64, wakes framework.Event) bool {
	if q.moves-moves > uint64(len(q.recent)) {
		return true
	}
	for n := moves; n < q.moves; n++ {
		if q.recent[n%uint64(len(q.recent))]&wakes != 0 {
			return true
		}
	}
	return false
}

func (q *Queue) delay(attempts int) time.Duration {
	d := q.cfg.InitialBackoff
	for i := 1; i < attempts && d < q.cfg.MaxBackoff; i++ {
		d *= 2
	}
	return min(d, q.cfg.MaxBackoff)
}

// Wake tells of an event: the pods it may help are tried again, when their
// back-off is over.
func (q *Queue) Wake(e framework.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.recent[q.moves%uint64(len(q.recent))] = e
	q.moves++
	q.retryAll(func(*item) bool { return true }, e, time.Now(), e.String())
}

// Counts is how many pods are in each place.
func (q *Queue) Counts() (inActive, inBackoff, inUnschedulable int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, items := range q.parked {
		inUnschedulable += len(items)
	}
	return len(q.active.items), len(q.backoff.items), inUnschedulable
}

// retryAll retries the unschedulable pods that e may help and that choose
// wants, in the order in which they came.
func (q *Queue) retryAll(choose func(*item) bool, e framework.Event, now time.Time, why string) {
	var chosen []*item
	for wakes, items := range q.parked {
		if wakes&e == 0 {
			continue
		}
		for it := range items {
			if choose(it) {
				chosen = append(chosen, it)
			}
		}
	}
	slices.SortFunc(chosen, func(a, b *item) int { return cmp.Compare(a.number, b.number) })
	for _, it := range chosen {
		q.retry(it, now, why)
	}
}

// retry moves a pod to active, or to backoff while its time is not over. The
// lock is held, as in all that follow.
func (q *Queue) retry(it *item, now time.Time, why string) {
	if it.ready.After(now) {
		q.enter(it, backoff, now, why)
		return
	}
	q.activate(it, now, why)
}

func (q *Queue) activate(it *item, now time.Time, why string) {
	q.order++
	it.queued = q.order
	q.enter(it, active, now, why)
}

func (q *Queue) enter(it *item, to place, now time.Time, why string) {
	q.take(it)
	it.place, it.since = to, now
	name := Unschedulable
	switch to {
	case active:
		heap.Push(&q.active, it)
		name = Active
	case backoff:
		heap.Push(&q.backoff, it)
		name = Backoff
	case unschedulable:
		if q.parked[it.wakes] == nil {
			q.parked[it.wakes] = map[*item]struct{}{}
		}
		q.parked[it.wakes][it] = struct{}{}
	}
	if q.cfg.Moved != nil {
		q.cfg.Moved(name, why)
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take removes a pod from the place it is in.
func (q *Queue) take(it *item) {
	switch it.place {
	case active:
		heap.Remove(&q.active, it.index)
	case backoff:
		heap.Remove(&q.backoff, it.index)
	case unschedulable:
		delete(q.parked[it.wakes], it)
	}
	it.place = nowhere
}
