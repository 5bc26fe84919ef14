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

// Backend writes events somewhere. It is called by one goroutine at a time;
// each event is one JSON object without line breaks.
type Backend interface {
	Write(ctx context.Context, events [][]byte) error
}

// The modes of a backend.
const (
	ModeBatch          = "batch"           // events are queued, requests do not wait
	ModeBlocking       = "blocking"        // each request waits until its event is written
	ModeBlockingStrict = "blocking-strict" // and is refused if that fails
)

// BackendConfig is a backend and how it is fed. What is zero is not limited.
type BackendConfig struct {
	Name       string // for metrics: log, webhook
	Backend    Backend
	Mode       string
	BufferSize int           // events in the queue before new ones are dropped
	BatchSize  int           // events in one Write
	BatchWait  time.Duration // how long to wait for a batch to fill; 0: 10 ms
	QPS        float64       // Writes a second; 0: no limit
	Burst      int
}

// maxQueued is how many bytes a queue may hold.
const maxQueued = 64 << 20

const (
	drainTimeout = 5 * time.Second  // at the end, for what is queued
	complainMost = 30 * time.Second // between log lines about lost events
	gatherEvery  = 10 * time.Millisecond
)

// queue stands between the requests and a backend.
type queue struct {
	BackendConfig
	strict  bool
	bodies  *bodies
	metrics *metrics
	log     *slog.Logger

	events chan *Event
	bytes  atomic.Int64
	limit  *rate.Limiter

	writing sync.Mutex // one Write at a time, in the blocking modes

	mu              sync.Mutex
	lost            int // since the last complaint in the server's log
	complained      time.Time
	unreported      int       // lost, and not reported to the backend
	unreportedSince time.Time // the first of them
	reported        time.Time
}

func newQueue(c BackendConfig, b *bodies, m *metrics, log *slog.Logger) *queue {
	q := &queue{BackendConfig: c, strict: c.Mode == ModeBlockingStrict, bodies: b, metrics: m, log: log, limit: rate.NewLimiter(rate.Inf, 0)}
	if c.Mode == ModeBatch {
		q.events = make(chan *Event, c.BufferSize)
	}
	if c.QPS > 0 {
		q.limit = rate.NewLimiter(rate.Limit(c.QPS), c.Burst)
	}
	return q
}

var errFull = errors.New("the queue is full: the backend falls behind")

// send queues an event or, in the blocking modes, writes it.
func (q *queue) send(e *Event) error {
	if q.events == nil {
		line := e.AppendJSON(nil, q.bodies)
		q.writing.Lock()
		defer q.writing.Unlock()
		return q.write(context.Background(), [][]byte{line})
	}
	size := e.size()
	if q.bytes.Add(size) > maxQueued {
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

// lose notes lost events: each in the metric, and now and then a log line. The
// events themselves are not logged: the log has other readers.
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

// write writes lines and, when the backend has caught up with the requests, an
// event that says how many are missing, so that the gap shows in the audit.
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

// takeUnreported returns how many lost events to report now: all of them if
// nothing waits in the queue or the last report is long ago, else 0.
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

// putUnreported takes back what could not be reported.
func (q *queue) putUnreported(missing int, since time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if missing > 0 {
		q.unreported, q.unreportedSince = q.unreported+missing, since
	}
}

// logLost logs the losses that no log line has counted yet.
func (q *queue) logLost() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lost > 0 {
		q.log.Error("audit events were lost", "events", q.lost)
		q.lost = 0
	}
}

// run writes what is queued until ctx ends, and then what is left.
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
			return // the end, and nothing is left
		}
		if err := q.limit.Wait(last); err != nil {
			q.lose(err, len(batch)+len(q.events))
			return
		}
		_ = q.write(last, q.encode(batch))
	}
}

// batch waits for an event and takes what comes with it; none at the end. While
// it gathers it looks into the queue now and then only: to be woken by every
// event would cost the requests more than all the rest.
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

// rest takes what is there already.
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

func (q *queue) took(batch []*Event, e *Event) []*Event {
	q.bytes.Add(-e.size())
	return append(batch, e)
}

// encode writes events one behind the other into memory of their own.
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
