package flowcontrol

import (
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/apiserver/request"
)

// Config says how many requests may be under way.
type Config struct {
	Reads, Writes int // seats of ordinary users; 0: no limit. Each level of the system has half as many
	LongRunning   int // watches and streams of one ordinary user; 0: no limit. One of the system has ten times as many
}

// The sorts of requests, which are counted apart.
type kind uint8

const (
	read kind = iota
	write
	longRunning
	kinds
)

// Inflight counts requests under way. It is safe for concurrent use.
type Inflight struct {
	cfg      Config
	seats    [levels][kinds]atomic.Int64
	rejected [schemas][reasons]atomic.Int64

	mu    sync.Mutex
	users map[flow]int // requests under way, a stalled body's or answer's among them
}

// flow is one user's requests of one sort.
type flow struct {
	level level
	kind  kind
	user  string
}

// NewInflight makes the seats that cfg says.
func NewInflight(cfg Config) *Inflight {
	return &Inflight{cfg: cfg, users: map[flow]int{}}
}

// Counts are the requests that hold seats.
func (f *Inflight) Counts() (reads, writes int64) {
	for l := range levels {
		reads += f.seats[l][read].Load()
		writes += f.seats[l][write].Load()
	}
	return reads, writes
}

// limit is how many seats a level has; 0: as many as wanted.
func (f *Inflight) limit(l level, k kind) int {
	n := [kinds]int{f.cfg.Reads, f.cfg.Writes, 0}[k]
	if l == exempt || n == 0 || l.ordinary() {
		return n
	}
	return max(n/2, 1)
}

// share is how many requests of one user may be under way; 0: any number.
func (f *Inflight) share(fl flow) int {
	switch {
	case fl.level == exempt:
		return 0
	case fl.kind != longRunning:
		n := f.limit(fl.level, fl.kind)
		return (n + 1) / 2
	case fl.level.ordinary():
		return f.cfg.LongRunning
	}
	return 10 * f.cfg.LongRunning
}

// Place is a request's place among those under way. Its methods are called by
// the goroutine that serves the request.
type Place struct {
	f      *Inflight
	schema schema
	flow   flow
	seated bool
}

// Begin counts a request among those of its user, until End. The error is a
// 429 if the user has too many under way, be they still being read, worked on
// or being answered.
func (f *Inflight) Begin(r *request.Request) (*Place, error) {
	p := &Place{f: f}
	p.schema, p.flow.user = classify(r)
	p.flow.level, p.flow.kind = p.schema.level(), write
	switch {
	case r.LongRunning():
		p.flow.kind = longRunning
	case r.ReadOnly():
		p.flow.kind = read
	}
	r.Flow = p.flow.user
	share := f.share(p.flow)
	if share == 0 {
		return p, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users[p.flow] >= share {
		return nil, f.reject(p.schema, queueFull)
	}
	f.users[p.flow]++
	return p, nil
}

// Ordinary says that the request's user is no part of the cluster itself.
func (p *Place) Ordinary() bool { return p.flow.level.ordinary() }

// TakeSeat takes a seat of the request's level, for the work on it. A watch or
// a stream needs none. The error is a 429 if all are taken.
func (p *Place) TakeSeat() error {
	if p.flow.kind == longRunning {
		return nil
	}
	seats := &p.f.seats[p.flow.level][p.flow.kind]
	limit := p.f.limit(p.flow.level, p.flow.kind)
	if n := seats.Add(1); limit > 0 && n > int64(limit) && p.flow.level != exempt {
		seats.Add(-1)
		return p.f.reject(p.schema, concurrencyLimit)
	}
	p.seated = true
	return nil
}

// FreeSeat gives the seat back, if there is one: the answer is made, and only
// its way to the client is left.
func (p *Place) FreeSeat() {
	if p.seated {
		p.seated = false
		p.f.seats[p.flow.level][p.flow.kind].Add(-1)
	}
}

// End is called once, when the request has ended.
func (p *Place) End() {
	p.FreeSeat()
	if p.f.share(p.flow) == 0 {
		return
	}
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if p.f.users[p.flow]--; p.f.users[p.flow] == 0 {
		delete(p.f.users, p.flow)
	}
}

func (f *Inflight) reject(s schema, why reason) error {
	f.rejected[s][why].Add(1)
	return apierrors.NewTooManyRequests("Too many requests, please try again later.", 1)
}
