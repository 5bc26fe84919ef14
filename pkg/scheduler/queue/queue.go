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

// Config holds the back-off times; zero means the default.
type Config struct {
	InitialBackoff time.Duration // after the first failure; default 1 s
	MaxBackoff     time.Duration // default 10 s
	MaxWait        time.Duration // maximum time in unschedulable without any event; default 5 min

	Moved func(to, why string) // called for each pod that enters a place (metrics); may be nil
}

// Attempt is one attempt to find a node for a pod.
type Attempt struct {
	Pod    *corev1.Pod
	Number int       // 1 is the first
	Added  time.Time // when the pod was first queued

	item  *item
	moves uint64 // of the queue, when the attempt began
}

// item is a pod in the queue.
type item struct {
	pod      *corev1.Pod
	attempts int
	added    time.Time
	number   uint64 // the order in which pods were first queued

	queued uint64          // the order in which pods became active
	since  time.Time       // when it entered its place
	ready  time.Time       // end of its back-off
	wakes  framework.Event // the events that may let it fit
	stale  bool            // the pod changed since the current attempt began
	place  place
	index  int // in its heap
}

type place int

const (
	nowhere place = iota // in an attempt, or removed
	active
	backoff
	unschedulable
)

// Queue is the scheduling queue. It is safe for concurrent use, but only one goroutine may
// call Pop.
type Queue struct {
	cfg Config

	mu      sync.Mutex
	items   map[types.UID]*item // all pods, including those in an attempt
	active  itemHeap
	backoff itemHeap
	parked  map[framework.Event]map[*item]struct{} // unschedulable, by what wakes them
	gated   map[types.UID]struct{}                 // pods that are not in items

	number  uint64 // pods queued so far
	flushed time.Time
	order   uint64
	moves   uint64               // events so far
	recent  [256]framework.Event // the last of them, by moves
	wake    chan struct{}        // wakes Pop
}

// Names of the places of pods and of the events that move pods there, as used in metrics.
const (
	Active        = "active"
	Backoff       = "backoff"
	Unschedulable = "unschedulable"
	Gated         = "gated" // beside the queue: their gates are not removed yet

	PodAdd           = "PodAdd"
	PodUpdate        = "PodUpdate"
	BackoffComplete  = "BackoffComplete"
	AttemptFailed    = "ScheduleAttemptFailure"
	WaitedLongEnough = "UnschedulableTimeout"
)

// New returns an empty queue.
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
		gated:   map[types.UID]struct{}{},
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

// Add adds a new pod or updates a queued one. helps means that the change may let the pod fit:
// then it is retried without waiting for an event.
func (q *Queue) Add(pod *corev1.Pod, helps bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	it := q.items[pod.UID]
	if it == nil {
		delete(q.gated, pod.UID)
		it = &item{pod: pod, added: now, number: q.number}
		q.number++
		q.items[pod.UID] = it
		q.activate(it, now, PodAdd)
		return
	}
	it.pod = pod
	if it.place == active {
		heap.Fix(&q.active, it.index) // the priority may have changed
	}
	if helps {
		q.renew(it, now)
	}
}

// Retry retries a queued pod without waiting for an event.
func (q *Queue) Retry(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.items[uid]; it != nil {
		q.renew(it, time.Now())
	}
}

// renew retries a pod because of a change of the pod itself.
func (q *Queue) renew(it *item, now time.Time) {
	switch it.place {
	case unschedulable:
		q.retry(it, now, PodUpdate)
	case nowhere:
		it.stale = true
	}
}

// Gate records a pod that is not queued until its scheduling gates are removed.
func (q *Queue) Gate(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gated[uid] = struct{}{}
}

// Gated returns the number of pods that are not queued because of their gates.
func (q *Queue) Gated() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.gated)
}

// Remove removes a pod from the queue, or from those that are gated.
func (q *Queue) Remove(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.gated, uid)
	it := q.items[uid]
	if it == nil {
		return
	}
	delete(q.items, uid)
	q.take(it)
}

// Pop removes the first active pod and starts an attempt. It blocks until there is one, and
// returns nil when ctx ends.
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

// flushEvery is the interval of the check for pods that waited for MaxWait.
const flushEvery = 30 * time.Second

// pop returns the first active pod, or nil and the time to wait for one.
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

// Fail ends an attempt that found no node: the pod waits for one of the events in wakes. It
// waits only for its back-off if such an event occurred during the attempt, or if wakes is 0,
// which is for failures that no event resolves.
func (q *Queue) Fail(a *Attempt, wakes framework.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := a.item
	if q.items[it.pod.UID] != it || it.place != nowhere {
		return // removed during the attempt
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

// missed reports whether one of the events in wakes may have come after the first moves events.
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

// Wake handles an event: the unschedulable pods that wait for it are retried once their
// back-off is over.
func (q *Queue) Wake(e framework.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.recent[q.moves%uint64(len(q.recent))] = e
	q.moves++
	q.retryAll(func(*item) bool { return true }, e, time.Now(), e.String())
}

// Counts returns the number of pods in each place.
func (q *Queue) Counts() (inActive, inBackoff, inUnschedulable int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, items := range q.parked {
		inUnschedulable += len(items)
	}
	return len(q.active.items), len(q.backoff.items), inUnschedulable
}

// retryAll retries the unschedulable pods that wait for e and for which choose
// returns true, in the order in which they were first queued.
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

// retry moves a pod to active, or to backoff until its back-off is over. Callers of this, of
// renew and of the methods below must hold the lock.
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

// take removes a pod from its place.
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
