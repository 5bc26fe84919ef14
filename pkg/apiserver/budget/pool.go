package budget

import (
	"context"
	"math"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Small is the cost of decoding up to which a request does not count: it never
// waits for large ones. The number of small requests is bounded by the seats.
const Small = 1 << 20

// SmallBody is the same for a body that is being read.
const SmallBody = 64 << 10

// Limits are the bounds of a Pool.
type Limits struct {
	Total   int64 // units for all requests
	Share   int64 // of them for one user
	Small   int64 // a request for at most so many does not count
	Waiting int   // requests that may wait; one more is refused. 0: any number
}

// Pool is what requests share: bytes of memory, or turns. It is safe for
// concurrent use. A nil Pool has no bounds.
type Pool struct {
	Limits

	mu      sync.Mutex
	used    int64
	byUser  map[string]int64
	waiting []*claim // in the order of arrival
}

type claim struct {
	user    string
	units   int64
	granted chan struct{}
}

// NewPool makes a pool with everything free.
func NewPool(l Limits) *Pool { return &Pool{Limits: l, byUser: map[string]int64{}} }

// maxWaiting is how many requests may wait for memory.
const maxWaiting = 256

// NewMemory makes a pool of limit bytes, for which requests up to small bytes
// do not count. One user may take half of it.
func NewMemory(limit, small int64) *Pool {
	return NewPool(Limits{Total: limit, Share: limit / 2, Small: small, Waiting: maxWaiting})
}

// defaultLimit is the budget of a process whose memory has no limit.
const defaultLimit = 512 << 20

// Share is the part of a process's memory limit that decoding may take; the
// rest is for what is stored, and for what the collector has not freed yet. No
// limit is math.MaxInt64.
func Share(limit int64) int64 {
	if limit == math.MaxInt64 {
		return defaultLimit
	}
	return limit / 4
}

// Used is the number of units taken now.
func (p *Pool) Used() int64 {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

func nothing() {}

// Acquire waits until n units are free for user, and takes them until release
// is called, once. A request for more than a user may take waits until the user
// has nothing else. The error is the context's, or a 429 when too many wait.
func (p *Pool) Acquire(ctx context.Context, user string, n int64) (release func(), err error) {
	if p == nil || n <= p.Small {
		return nothing, nil
	}
	c := &claim{user: user, units: min(n, p.Share)}
	p.mu.Lock()
	if len(p.waiting) == 0 && p.fits(c) {
		p.take(c)
		p.mu.Unlock()
		return func() { p.release(c) }, nil
	}
	if p.Waiting > 0 && len(p.waiting) >= p.Waiting {
		p.mu.Unlock()
		return nil, apierrors.NewTooManyRequests("Too many large requests, please try again later.", 1)
	}
	c.granted = make(chan struct{})
	p.waiting = append(p.waiting, c)
	p.grant() // those that wait may all be of users who have their share
	p.mu.Unlock()
	select {
	case <-c.granted:
		return func() { p.release(c) }, nil
	case <-ctx.Done():
		p.abandon(c)
		return nil, ctx.Err()
	}
}

// fits, take and grant want the lock held.

func (p *Pool) fits(c *claim) bool {
	return p.used+c.units <= p.Total && p.byUser[c.user]+c.units <= p.Share
}

func (p *Pool) take(c *claim) {
	p.used += c.units
	p.byUser[c.user] += c.units
}

// grant serves those that wait in the order of arrival. A claim that its own
// user's share holds up lets others pass, one that the total holds up does not.
func (p *Pool) grant() {
	kept := p.waiting[:0]
	full := false
	for _, c := range p.waiting {
		switch {
		case !full && p.fits(c):
			p.take(c)
			close(c.granted)
			continue
		case p.byUser[c.user]+c.units <= p.Share:
			full = true
		}
		kept = append(kept, c)
	}
	clear(p.waiting[len(kept):])
	p.waiting = kept
}

func (p *Pool) release(c *claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= c.units
	if p.byUser[c.user] -= c.units; p.byUser[c.user] == 0 {
		delete(p.byUser, c.user)
	}
	p.grant()
}

// abandon takes back a claim whose request has ended.
func (p *Pool) abandon(c *claim) {
	p.mu.Lock()
	i := slices.Index(p.waiting, c)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		p.grant()
	}
	p.mu.Unlock()
	if i < 0 {
		p.release(c) // it was granted meanwhile
	}
}
