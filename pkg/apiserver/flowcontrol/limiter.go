package flowcontrol

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/apiserver/request"
	"podium/pkg/backoff"
)

// Config sets the limits of requests in flight.
type Config struct {
	Reads, Writes int  // their sum is the number of seats; half of each is how many requests a user may have in flight. 0: no limit
	LongRunning   int  // watches and streams of one ordinary user; 0: no limit. One of the system has ten times as many
	Plain         bool // no priorities: reads and writes have seats of their own, nothing waits, administrators are exempt

	Wait     time.Duration         // how long a request without deadline may wait for a seat
	Now      func() time.Time      // optional: time.Now
	Registry prometheus.Registerer // optional
}

// The kinds of requests, which have separate limits of places.
type kind uint8

const (
	read kind = iota
	write
	longRunning
)

// Limiter limits requests in flight. It is safe for concurrent use.
type Limiter struct {
	cfg     Config
	metrics *metrics
	plan    atomic.Pointer[plan]
	plain   [2]*schema      // for reads and writes, if cfg.Plain
	counts  [2]atomic.Int64 // reads and writes that hold a seat
	changed chan struct{}   // has an element when the objects have changed

	planning sync.Mutex // held while a plan is made
	objects  objects

	mu    sync.Mutex
	users map[flow]int // requests in flight, including those whose body or response is in transfer
}

// flow identifies the requests of one user and kind in a priority level.
type flow struct {
	level    string
	user     string
	kind     kind
	ordinary bool
}

// New returns a Limiter with the default priority levels, and registers its metrics.
func New(cfg Config) *Limiter {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	f := &Limiter{cfg: cfg, metrics: newMetrics(cfg.Registry), users: map[flow]int{}, changed: make(chan struct{}, 1)}
	f.objects.setDefaults()
	f.rebuild()
	if cfg.Plain {
		f.plain = [2]*schema{f.plainSchema("readOnly", cfg.Reads), f.plainSchema("mutating", cfg.Writes)}
	}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(f)
	}
	return f
}

// borrowEvery is the interval at which levels lend each other seats.
const borrowEvery = 10 * time.Second

// Run adjusts the seats of the levels periodically. It blocks until ctx ends.
func (f *Limiter) Run(ctx context.Context) {
	for backoff.Sleep(ctx, borrowEvery) == nil {
		f.rebuild()
	}
}

// Counts returns the number of reads and writes that hold seats.
func (f *Limiter) Counts() (reads, writes int64) {
	return f.counts[read].Load(), f.counts[write].Load()
}

// classify returns the schema of a request.
func (f *Limiter) classify(r *request.Request) *schema {
	p := f.plan.Load()
	if f.cfg.Plain && !p.schemas[0].matches(r) { // the first is that of administrators
		if r.ReadOnly() {
			return f.plain[read]
		}
		return f.plain[write]
	}
	for _, s := range p.schemas {
		if s.matches(r) {
			return s
		}
	}
	return p.catchAll
}

// share returns how many requests one user may have in flight; 0: no limit.
func (f *Limiter) share(fl flow) int {
	if fl.kind == longRunning {
		if fl.ordinary {
			return f.cfg.LongRunning
		}
		return 10 * f.cfg.LongRunning
	}
	n := [2]int{f.cfg.Reads, f.cfg.Writes}[fl.kind]
	if n > 0 && !fl.ordinary {
		n = max(n/2, 1)
	}
	return (n + 1) / 2
}

// take takes a place, and reports whether the flow had one left.
func (f *Limiter) take(fl flow, share int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users[fl] >= share {
		return false
	}
	f.users[fl]++
	return true
}

func (f *Limiter) leave(fl flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users[fl]--; f.users[fl] == 0 {
		delete(f.users, fl)
	}
}
