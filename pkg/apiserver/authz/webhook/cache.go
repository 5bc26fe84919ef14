package webhook

import (
	"container/list"
	"sync"
	"time"

	"podium/pkg/apiserver/authz"
)

// maxAnswers are remembered at most; the one that was used longest ago goes first.
const maxAnswers = 8192

// cache remembers answers until they expire.
type cache struct {
	now func() time.Time

	mu      sync.Mutex
	answers map[string]*list.Element
	order   list.List // the last used in front
}

type answer struct {
	question string
	decision authz.Decision
	reason   string
	until    time.Time
}

func newCache(now func() time.Time) *cache {
	return &cache{now: now, answers: map[string]*list.Element{}}
}

func (c *cache) get(question string) (answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.answers[question]
	if e == nil {
		return answer{}, false
	}
	a := e.Value.(answer)
	if !c.now().Before(a.until) {
		c.dropLocked(e)
		return answer{}, false
	}
	c.order.MoveToFront(e)
	return a, true
}

func (c *cache) put(a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.answers[a.question]; e != nil {
		c.dropLocked(e)
	}
	c.answers[a.question] = c.order.PushFront(a)
	for c.order.Len() > maxAnswers {
		c.dropLocked(c.order.Back())
	}
}

func (c *cache) dropLocked(e *list.Element) {
	delete(c.answers, e.Value.(answer).question)
	c.order.Remove(e)
}
