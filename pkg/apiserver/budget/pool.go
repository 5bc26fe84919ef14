package budget

import (
	"context"
	"math"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Small is the decoding cost, in bytes, up to which a request is not counted
// and never waits. Flow control bounds the number of such requests.
const Small = 1 << 20

// SmallBody is the same threshold for reading a body.
const SmallBody = 64 << 10

// Limits are the limits of a Pool.
type Limits struct {
	Total   int64 // units that all requests together may hold
	Share   int64 // units that one user may hold
	Small   int64 // requests for at most this many units are not counted
	Waiting int   // requests that may wait; further ones are refused. 0: no limit
}

// Pool is a weighted semaphore with a share per user, for bytes of memory or
// for turns. It is safe for concurrent use. A nil Pool has no limits.
type Pool struct {
	Limits

	mu      sync.Mutex
	used    int64
	byUser  map[string]int64
	waiting []*claim // in the order of arrival
}

// claim is one call of Acquire. granted is closed once a waiting claim holds
// its units.
type claim struct {
	user    string
	units   int64
	granted chan struct{}
}

// NewPool returns a pool with all units free.
func NewPool(l Limits) *Pool { return &Pool{Limits: l, byUser: map[string]int64{}} }

// maxWaiting is how many requests may wait for memory.
const maxWaiting = 256

// NewMemory returns a pool of limit bytes. Requests for up to small bytes are
// not counted. One user may hold half of it.
func NewMemory(limit, small int64) *Pool {
	return NewPool(Limits{Total: limit, Share: limit / 2, Small: small, Waiting: maxWaiting})
}

// defaultLimit is the budget of a process whose memory has no limit.
const defaultLimit = 512 << 20

// Share returns the part of a process's memory limit, in bytes, that decoding
// may use. The rest is for the watch cache and for garbage. A limit of
// math.MaxInt64 means none.
func Share(limit int64) int64 {
	if limit == math.MaxInt64 {
		return defaultLimit
	}
	return limit / 4
}

// Used returns the number of units in use.
func (p *Pool) Used() int64 {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

func nothing() {}

// Acquire blocks until n units are free for user, and takes them until release
// is called. Call release exactly once. A request for more than the user's
// share waits until the user holds nothing else. The error is the context's, or
// a 429 if too many requests wait.
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
	p.grant() // all waiting claims may be of users that have used their share
	p.mu.Unlock()
	select {
	case <-c.granted:
		return func() { p.release(c) }, nil
	case <-ctx.Done():
		p.abandon(c)
		return nil, ctx.Err()
	}
}

// The caller of fits, take and grant holds p.mu.

func (p *Pool) fits(c *claim) bool {
	return p.used+c.units <= p.Total && p.byUser[c.user]+c.units <= p.Share
}

func (p *Pool) take(c *claim) {
	p.used += c.units
	p.byUser[c.user] += c.units
}

// grant grants waiting claims in the order of arrival. Later claims may
// overtake one that is blocked by its user's share, but not one that is blocked
// by the total.
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

// release returns a claim's units and grants waiting claims.
func (p *Pool) release(c *claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= c.units
	if p.byUser[c.user] -= c.units; p.byUser[c.user] == 0 {
		delete(p.byUser, c.user)
	}
	p.grant()
}

// abandon removes a claim whose request has ended.
func (p *Pool) abandon(c *claim) {
	p.mu.Lock()
	i := slices.Index(p.waiting, c)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		p.grant()
	}
	p.mu.Unlock()
	if i < 0 {
		p.release(c) // granted before the removal
	}
}
