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

// maxWaiting is how many requests may wait; one more is refused.
const maxWaiting = 256

// Memory is the number of bytes that large requests may take at the same time.
// One user may take at most half of it. A nil Memory has no bound.
type Memory struct {
	limit int64
	small int64

	mu      sync.Mutex
	used    int64
	byUser  map[string]int64
	waiting []*claim // in the order of arrival
}

type claim struct {
	user    string
	bytes   int64
	granted chan struct{}
}

// NewMemory makes a budget of limit bytes, for which requests up to small bytes
// do not count.
func NewMemory(limit, small int64) *Memory {
	return &Memory{limit: limit, small: small, byUser: map[string]int64{}}
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

// Used is the number of bytes taken now.
func (m *Memory) Used() int64 {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

func nothing() {}

// Acquire waits until n bytes are free for user, and takes them until release
// is called, once. A request for more than a user may take waits until the user
// has nothing else. The error is the context's, or a 429 when too many wait.
func (m *Memory) Acquire(ctx context.Context, user string, n int64) (release func(), err error) {
	if m == nil || n <= m.small {
		return nothing, nil
	}
	c := &claim{user: user, bytes: min(n, m.limit/2)}
	m.mu.Lock()
	if len(m.waiting) == 0 && m.fits(c) {
		m.take(c)
		m.mu.Unlock()
		return func() { m.release(c) }, nil
	}
	if len(m.waiting) >= maxWaiting {
		m.mu.Unlock()
		return nil, apierrors.NewTooManyRequests("Too many large requests, please try again later.", 1)
	}
	c.granted = make(chan struct{})
	m.waiting = append(m.waiting, c)
	m.grant() // those that wait may all be of users who have their share
	m.mu.Unlock()
	select {
	case <-c.granted:
		return func() { m.release(c) }, nil
	case <-ctx.Done():
		m.abandon(c)
		return nil, ctx.Err()
	}
}

// fits, take and grant want the lock held.

func (m *Memory) fits(c *claim) bool {
	return m.used+c.bytes <= m.limit && m.byUser[c.user]+c.bytes <= m.limit/2
}

func (m *Memory) take(c *claim) {
	m.used += c.bytes
	m.byUser[c.user] += c.bytes
}

// grant serves those that wait in the order of arrival. A claim that its own
// user's share holds up lets others pass, one that the total holds up does not.
func (m *Memory) grant() {
	kept := m.waiting[:0]
	full := false
	for _, c := range m.waiting {
		switch {
		case !full && m.fits(c):
			m.take(c)
			close(c.granted)
			continue
		case m.byUser[c.user]+c.bytes <= m.limit/2:
			full = true
		}
		kept = append(kept, c)
	}
	clear(m.waiting[len(kept):])
	m.waiting = kept
}

func (m *Memory) release(c *claim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= c.bytes
	if m.byUser[c.user] -= c.bytes; m.byUser[c.user] == 0 {
		delete(m.byUser, c.user)
	}
	m.grant()
}

// abandon takes back a claim whose request has ended.
func (m *Memory) abandon(c *claim) {
	m.mu.Lock()
	i := slices.Index(m.waiting, c)
	if i >= 0 {
		m.waiting = slices.Delete(m.waiting, i, i+1)
		m.grant()
	}
	m.mu.Unlock()
	if i < 0 {
		m.release(c) // it was granted meanwhile
	}
}
