package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Backend stores events, each of which is one JSON object without line breaks.
// Write may block, and is not called concurrently.
type Backend interface {
	Write(ctx context.Context, events [][]byte) error
}

// The modes of a backend.
const (
	ModeBatch          = "batch"           // events are queued; requests do not wait
	ModeBlocking       = "blocking"        // each request waits until its event is written
	ModeBlockingStrict = "blocking-strict" // as blocking, and the request is refused if that fails
)

// BackendConfig configures a backend and its queue. A zero BatchWait means 10
// ms, a zero QPS no limit; BufferSize and BatchSize must be set in mode batch.
type BackendConfig struct {
	Name       string // label of metrics: log or webhook
	Backend    Backend
	Mode       string
	BufferSize int           // events in the queue before new ones are dropped
	BufferMax  int64         // bytes in the queue before new events are dropped; 0: 64 MiB
	BatchSize  int           // events in one Write
	BatchWait  time.Duration // time to wait for a batch to fill; 0: 10 ms
	QPS        float64       // calls of Write per second; 0: no limit
	Burst      int
}

const (
	bufferMax    = 64 << 20
	drainTimeout = 5 * time.Second  // at shutdown, to write what is queued
	complainMost = 30 * time.Second // between log lines about lost events
	gatherEvery  = 10 * time.Millisecond
)

// queue is the queue of one backend, or in the blocking modes a lock on it.
type queue struct {
	BackendConfig
	strict  bool
	bodies  *bodies
	metrics *metrics
	log     *slog.Logger

	events chan *Event
	bytes  atomic.Int64
	limit  *rate.Limiter

	writing sync.Mutex // serializes Write in the blocking modes

	mu              sync.Mutex
	lost            int // lost events since the last log line
	complained      time.Time
	unreported      int       // lost events not yet reported to the backend
	unreportedSince time.Time // the first of them
	reported        time.Time
}

func newQueue(c BackendConfig, b *bodies, m *metrics, log *slog.Logger) *queue {
	q := &queue{BackendConfig: c, strict: c.Mode == ModeBlockingStrict, bodies: b, metrics: m, log: log, limit: rate.NewLimiter(rate.Inf, 0)}
	if q.BufferMax == 0 {
		q.BufferMax = bufferMax
	}
	if c.Mode == ModeBatch {
		q.events = make(chan *Event, c.BufferSize)
	}
	if c.QPS > 0 {
		q.limit = rate.NewLimiter(rate.Limit(c.QPS), c.Burst)
	}
	return q
}

var errFull = errors.New("the queue is full: the backend falls behind")

// send queues an event without blocking, or, in the blocking modes, writes it
// and blocks until then. It returns an error if the event is lost.
func (q *queue) send(e *Event) error {
	if q.events == nil {
		line := e.AppendJSON(nil, q.bodies)
		q.writing.Lock()
		defer q.writing.Unlock()
		return q.write(context.Background(), [][]byte{line})
	}
	size := e.size()
	if q.bytes.Add(size) > q.BufferMax {
		q.bytes.Add(-size)
		q.lose(errFull, 1)
		return errFull
	}
	select {
	case q.events <- e:
		return nil
	default:
		q.bytes.Add(-size)
		q.lose(errFull, 1)
		return errFull
	}
}

// lose counts n lost events in the metric and logs their number at most once
// per complainMost. It does not log the events themselves, since the server's
// log has other readers. It does nothing if err is nil.
func (q *queue) lose(err error, n int) {
	if err == nil {
		return
	}
	q.metrics.errors.WithLabelValues(q.Name).Add(float64(n))
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if q.unreported == 0 {
		q.unreportedSince = now
	}
	q.lost, q.unreported = q.lost+n, q.unreported+n
	if now.Sub(q.complained) >= complainMost {
		q.log.Error("audit events are lost", "events", q.lost, "err", err)
		q.complained, q.lost = now, 0
	}
}

// write writes lines and, once the backend has caught up, an event with the
// number of lost events, so that the gap is visible in the audit log.
func (q *queue) write(ctx context.Context, lines [][]byte) error {
	events := len(lines)
	missing, since := q.takeUnreported()
	if missing > 0 {
		message := fmt.Sprintf("%d audit events are lost: the backend failed or fell behind", missing)
		e := report(annotationLost, missing, http.StatusServiceUnavailable, message, since, time.Now())
		lines = append(lines, e.AppendJSON(nil, q.bodies))
	}
	err := q.Backend.Write(ctx, lines)
	if err != nil {
		q.lose(fmt.Errorf("write: %w", err), events)
		q.putUnreported(missing, since)
	} else if missing > 0 {
		q.logLost()
	}
	return err
}

// takeUnreported returns the number of lost events to report now and resets it.
// It returns 0 while events wait in the queue, unless the last report is more
// than complainMost ago.
func (q *queue) takeUnreported() (missing int, since time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if q.unreported == 0 || len(q.events) > 0 && now.Sub(q.reported) < complainMost {
		return 0, now
	}
	missing, q.unreported, q.reported = q.unreported, 0, now
	return missing, q.unreportedSince
}

// putUnreported adds lost events whose report could not be written.
func (q *queue) putUnreported(missing int, since time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if missing > 0 {
		q.unreported, q.unreportedSince = q.unreported+missing, since
	}
}

// logLost logs losses that are not yet in the log.
func (q *queue) logLost() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lost > 0 {
		q.log.Error("audit events were lost", "events", q.lost)
		q.lost = 0
	}
}

// run writes queued events until ctx ends, and then for at most drainTimeout
// the remaining ones. In the blocking modes it only blocks until ctx ends.
func (q *queue) run(ctx context.Context) {
	if q.events == nil {
		<-ctx.Done()
		return
	}
	last, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(drainTimeout, cancel) })()
	defer q.logLost()
	for {
		batch := q.batch(ctx)
		if len(batch) == 0 {
			return // ctx has ended and the queue is empty
		}
		if err := q.limit.Wait(last); err != nil {
			q.lose(err, len(batch)+len(q.events))
			return
		}
		_ = q.write(last, q.encode(batch))
	}
}

// batch blocks until an event is queued and gathers further ones, for BatchWait
// at most. It returns an empty batch when ctx has ended and the queue is empty.
// It polls while it gathers, since waking up for every event would cost more
// than all other audit work.
func (q *queue) batch(ctx context.Context) []*Event {
	var batch []*Event
	select {
	case e := <-q.events:
		batch = q.took(batch, e)
	case <-ctx.Done():
		return q.rest(batch)
	}
	tick := time.NewTicker(gatherEvery)
	defer tick.Stop()
	for began := time.Now(); len(batch) < q.BatchSize; {
		select {
		case <-tick.C:
			if batch = q.rest(batch); time.Since(began) >= q.BatchWait {
				return batch
			}
		case <-ctx.Done():
			return q.rest(batch)
		}
	}
	return batch
}

// rest adds the events that are already queued to a batch.
func (q *queue) rest(batch []*Event) []*Event {
	for len(batch) < q.BatchSize {
		select {
		case e := <-q.events:
			batch = q.took(batch, e)
		default:
			return batch
		}
	}
	return batch
}

// took appends an event from the channel to a batch and frees its bytes.
func (q *queue) took(batch []*Event, e *Event) []*Event {
	q.bytes.Add(-e.size())
	return append(batch, e)
}

// encode returns the events as JSON, in one newly allocated buffer.
func (q *queue) encode(batch []*Event) [][]byte {
	out := make([][]byte, len(batch))
	var arena []byte
	for i, e := range batch {
		begin := len(arena)
		arena = e.AppendJSON(slices.Grow(arena, 1024), q.bodies)
		out[i] = arena[begin:len(arena):len(arena)]
	}
	return out
}
