package flowcontrol

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

// level is a priority level. Its queues exist only while they have requests: memory
// follows the load, not the configured number.
//
// Each queue has a virtual time at which its next request is due, which grows with
// the seat-seconds that its requests take; of the waiting queues, the one that is due
// first is next. The level's own virtual time is how far a queue with a fair share
// would have come: a queue that becomes active starts there, and thus neither saves
// up turns nor pays for its past.
type level struct {
	name string
	seed maphash.Seed // unknown to clients, so that they cannot choose their queues

	mu  sync.Mutex // guards all below, and the places in the level
	cfg levelConfig
	max int // seats that the level may use at present: cfg.nominal, and what it has lent or borrowed

	virtual float64 // seconds
	moved   time.Time

	queues    map[int]*queue // those with requests, by index
	waitingIn []*queue       // those with waiting requests
	spare     []*queue       // empty ones, for reuse
	queueless queue          // the requests of a level without queues

	waiting, waitingSeats int
	running, runningSeats int
	rejected              [reasons]int
	dispatched            int
	demand                demand
}

// queue is a FIFO of waiting requests.
type queue struct {
	index   int
	due     float64 // virtual time of the next dispatch
	waiting []*Place
	running *Place // a list, linked by Place.next

	waitingSeats          int
	executing, inUseSeats int
}

// guess is the duration that a dispatched request is charged until its actual one is
// known, in seconds.
const guess = 0.003

func newLevel(name string, now time.Time) *level {
	l := &level{name: name, seed: maphash.MakeSeed(), moved: now, queues: map[int]*queue{}}
	l.demand.reset(now)
	return l
}

// admit dispatches the request if a seat is free and it is its turn, else puts it into
// a queue: p.granted is closed once it is dispatched. If there is no room either it
// returns why.
func (l *level) admit(p *Place, flow string, now time.Time) (why reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(now)
	p.width = min(p.width, l.cfg.widest)
	p.arrived, p.due = now, l.virtual
	switch {
	case l.cfg.exempt:
		l.dispatch(p, &l.queueless, now)
		return admitted
	case l.cfg.queues == 0 && !l.fits(p.width):
		l.rejected[concurrencyLimit]++
		return concurrencyLimit
	case l.cfg.queues == 0:
		l.dispatch(p, &l.queueless, now)
		return admitted
	}
	q := l.choose(p.schema.name, flow)
	if len(l.waitingIn) == 0 && l.fits(p.width) {
		l.dispatch(p, q, now)
		return admitted
	}
	if len(q.waiting) >= l.cfg.length {
		l.retire(q)
		l.rejected[queueFull]++
		return queueFull
	}
	p.granted = make(chan struct{})
	l.enqueue(p, q, now)
	if l.dispatchAll(now); p.level == nil {
		p.schema.series.noRoom.Inc()
	}
	return admitted
}

// fits reports whether a request of that width may be dispatched. One that is wider
// than the level may run alone.
func (l *level) fits(width int) bool {
	return l.runningSeats+width <= l.max || l.runningSeats == 0
}

// advance moves the virtual time: the seats in use, divided by the active queues.
func (l *level) advance(now time.Time) {
	if n := len(l.queues); n > 0 {
		seats := min(l.runningSeats+l.waitingSeats, l.max)
		l.virtual += now.Sub(l.moved).Seconds() * float64(seats) / float64(n)
	}
	l.moved = now
}

// choose returns the least loaded queue of the flow's hand.
func (l *level) choose(schema, flow string) *queue {
	hash := maphash.String(l.seed, flow) ^ maphash.String(l.seed, schema)*0x9e3779b97f4a7c15
	var hand [maxHand]int
	best, load := -1, 0
	for _, i := range deal(hand[:0], hash, l.cfg.queues, l.cfg.hand) {
		q := l.queues[i]
		if q == nil {
			best = i
			break
		}
		if n := q.waitingSeats<<16 + q.inUseSeats; best < 0 || n < load {
			best, load = i, n
		}
	}
	if q := l.queues[best]; q != nil {
		return q
	}
	if len(l.spare) == 0 {
		l.spare = append(l.spare, &queue{})
	}
	last := len(l.spare) - 1
	q := l.spare[last]
	l.spare = l.spare[:last]
	q.index, q.due = best, l.virtual
	l.queues[best] = q
	return q
}

// retire removes a queue without requests.
func (l *level) retire(q *queue) {
	if q != &l.queueless && q.executing == 0 && len(q.waiting) == 0 {
		delete(l.queues, q.index)
		l.spare = append(l.spare, q)
	}
}

func (l *level) enqueue(p *Place, q *queue, now time.Time) {
	p.queue = q
	if len(q.waiting) == 0 {
		l.waitingIn = append(l.waitingIn, q)
	}
	q.waiting = append(q.waiting, p)
	q.waitingSeats += p.width
	l.waiting++
	l.waitingSeats += p.width
	l.demand.set(l.runningSeats+l.waitingSeats, now)
	p.schema.series.enqueued(p.width, len(q.waiting))
}

// dequeue removes a waiting request from its queue.
func (l *level) dequeue(p *Place, now time.Time) {
	q := p.queue
	i := slices.Index(q.waiting, p)
	q.waiting = slices.Delete(q.waiting, i, i+1)
	if len(q.waiting) == 0 {
		l.waitingIn = slices.DeleteFunc(l.waitingIn, func(other *queue) bool { return other == q })
	}
	q.waitingSeats -= p.width
	l.waiting--
	l.waitingSeats -= p.width
	l.demand.set(l.runningSeats+l.waitingSeats, now)
	p.schema.series.dequeued(p.width)
}

// dispatch gives the request its seats.
func (l *level) dispatch(p *Place, q *queue, now time.Time) {
	p.queue, p.level, p.started = q, l, now
	p.next, p.prev = q.running, nil
	if p.next != nil {
		p.next.prev = p
	}
	q.running = p
	q.due = max(q.due, p.due) + guess*float64(p.width)
	q.executing++
	q.inUseSeats += p.width
	l.running++
	l.runningSeats += p.width
	l.dispatched++
	l.demand.set(l.runningSeats+l.waitingSeats, now)
	p.schema.series.began(p.width)
}

// dispatchAll dispatches waiting requests while seats are free. It stops at the first
// one that does not fit, so that narrow requests do not starve wide ones.
func (l *level) dispatchAll(now time.Time) {
	for len(l.waitingIn) > 0 {
		q := slices.MinFunc(l.waitingIn, earlier)
		p := q.waiting[0]
		if !l.fits(p.width) {
			return
		}
		l.dequeue(p, now)
		l.dispatch(p, q, now)
		close(p.granted)
	}
}

// earlier orders queues with waiting requests by when the first of these would be
// done, then by its arrival.
func earlier(a, b *queue) int {
	done := func(q *queue) float64 { return max(q.due, q.waiting[0].due) + guess*float64(q.waiting[0].width) }
	switch x, y := done(a), done(b); {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return a.waiting[0].arrived.Compare(b.waiting[0].arrived)
}

// free releases the seats of a dispatched request, and corrects what its queue was
// charged.
func (l *level) free(p *Place, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(now)
	q := p.queue
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		q.running = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	}
	q.due += (now.Sub(p.started).Seconds() - guess) * float64(p.width)
	q.executing--
	q.inUseSeats -= p.width
	l.running--
	l.runningSeats -= p.width
	l.demand.set(l.runningSeats+l.waitingSeats, now)
	l.dispatchAll(now)
	l.retire(q)
}

// abandon removes a request that waits, and reports whether it still did.
func (l *level) abandon(p *Place, why reason, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.level != nil {
		return false // dispatched meanwhile
	}
	l.advance(now)
	l.dequeue(p, now)
	l.retire(p.queue)
	l.dispatchAll(now) // a wide request may have been in the way
	l.rejected[why]++
	return true
}

// idle reports whether the level has no requests.
func (l *level) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running+l.waiting == 0
}
