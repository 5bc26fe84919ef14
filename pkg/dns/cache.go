package dns

import (
	"container/list"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// question is the key of a cached answer. Answers differ by the DO bit, which
// requests signatures, and the CD bit.
type question struct {
	name   string // lower case
	kind   uint16
	secure bool // the DO bit
	check  bool // the CD bit
}

// cache holds answers of other name servers for as long as their TTLs allow. It is
// bounded in bytes and evicts the least recently used answer. It is safe for
// concurrent use.
type cache struct {
	limit int           // maximum size in bytes
	most  time.Duration // maximum time for which an answer is cached

	mu    sync.Mutex
	used  int
	order *list.List // of *kept, most recently used first
	byKey map[question]*list.Element
}

type kept struct {
	key     question
	msg     *dns.Msg
	size    int
	from    time.Time
	expires time.Time
}

// entryCost is the size of an entry in addition to the answer's bytes.
const entryCost = 256

func newCache(limit int, most time.Duration) *cache {
	return &cache{limit: limit, most: most, order: list.New(), byKey: map[question]*list.Element{}}
}

// get returns a copy of an answer, with its TTLs reduced by the time it was cached.
func (c *cache) get(key question) (*dns.Msg, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byKey[key]
	if !ok {
		return nil, false
	}
	k, now := e.Value.(*kept), time.Now()
	if !now.Before(k.expires) {
		c.drop(e)
		return nil, false
	}
	c.order.MoveToFront(e)
	msg := k.msg.Copy()
	age := uint32(now.Sub(k.from) / time.Second)
	for _, section := range [][]dns.RR{msg.Answer, msg.Ns, msg.Extra} {
		for _, rr := range section {
			if h := rr.Header(); h.Rrtype != dns.TypeOPT {
				h.Ttl -= min(age, h.Ttl)
			}
		}
	}
	return msg, true
}

// put caches an answer if that is allowed. It keeps a copy.
func (c *cache) put(key question, msg *dns.Msg) {
	ttl, ok := lifetime(msg)
	if ttl = min(ttl, c.most); !ok || ttl <= 0 {
		return
	}
	size := msg.Len() + entryCost
	if size > c.limit {
		return
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byKey[key]; ok {
		c.drop(e)
	}
	for c.used+size > c.limit {
		c.drop(c.order.Back())
	}
	c.used += size
	c.byKey[key] = c.order.PushFront(&kept{key, msg.Copy(), size, now, now.Add(ttl)})
}

func (c *cache) drop(e *list.Element) {
	k := e.Value.(*kept)
	c.order.Remove(e)
	delete(c.byKey, k.key)
	c.used -= k.size
}

func (c *cache) sizes() (entries, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byKey), c.used
}

// lifetime returns how long an answer may be cached: its shortest TTL or, for a
// negative answer, at most the minimum TTL of the zone's SOA (RFC 2308). ok is false
// if it must not be cached.
func lifetime(msg *dns.Msg) (time.Duration, bool) {
	if msg.Truncated || msg.Rcode != dns.RcodeSuccess && msg.Rcode != dns.RcodeNameError {
		return 0, false
	}
	shortest, any := uint32(0), false
	shorten := func(ttl uint32) {
		if !any || ttl < shortest {
			shortest, any = ttl, true
		}
	}
	negative := msg.Rcode == dns.RcodeNameError || !answersQuestion(msg)
	soa := false
	for _, section := range [][]dns.RR{msg.Answer, msg.Ns, msg.Extra} {
		for _, rr := range section {
			if rr.Header().Rrtype == dns.TypeOPT {
				continue
			}
			shorten(rr.Header().Ttl)
			if s, ok := rr.(*dns.SOA); ok {
				soa = true
				if negative {
					shorten(s.Minttl)
				}
			}
		}
	}
	return time.Duration(shortest) * time.Second, any && (!negative || soa)
}

// answersQuestion reports whether the answer has a record of the requested type,
// possibly under another name.
func answersQuestion(msg *dns.Msg) bool {
	for _, rr := range msg.Answer {
		if len(msg.Question) == 1 && (rr.Header().Rrtype == msg.Question[0].Qtype || msg.Question[0].Qtype == dns.TypeANY) {
			return true
		}
	}
	return false
}
