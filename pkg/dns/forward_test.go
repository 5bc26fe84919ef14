package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// elsewhere is an Exchange with its own answers; it records the queried servers.
type elsewhere struct {
	answer func(server string, q *dns.Msg) (*dns.Msg, error)
	wait   time.Duration
	silent func(server string) bool // whether a query gets no response; nil: each gets one

	mu    sync.Mutex
	asked []string
}

// untilNow returns the queries so far.
func (e *elsewhere) untilNow() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.asked)
}

func (e *elsewhere) exchange(ctx context.Context, network, server string, q *dns.Msg) (*dns.Msg, error) {
	e.mu.Lock()
	e.asked = append(e.asked, fmt.Sprintf("%s %s %s", network, server, q.Question[0].Name))
	silent := e.silent != nil && e.silent(server)
	e.mu.Unlock()
	if silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	select {
	case <-time.After(e.wait):
		return e.answer(server, q)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func reply(q *dns.Msg, records ...string) *dns.Msg {
	m := &dns.Msg{}
	m.SetReply(q)
	for _, text := range records {
		rr, err := dns.NewRR(text)
		if err != nil {
			panic(err)
		}
		if rr.Header().Rrtype == dns.TypeSOA {
			m.Ns = append(m.Ns, rr)
		} else {
			m.Answer = append(m.Answer, rr)
		}
	}
	return m
}

func newTestHandler(e *elsewhere, servers ...string) *handler {
	m := newMetrics(prometheus.NewRegistry())
	log := slog.New(slog.DiscardHandler)
	f := newForwarder(Config{
		Upstream: servers, Exchange: e.exchange, Log: log, CacheBytes: 1 << 20, CacheTTL: time.Hour, MaxForwards: 2,
	}, m)
	return &handler{
		zone:    &zone{origin: "cluster.local.", ttl: 5, pods: true, lookup: shop()},
		forward: f, metrics: m, synced: func() bool { return true }, log: log, ctx: context.Background(),
	}
}

// asker is a dns.ResponseWriter that keeps the responses.
type asker struct {
	dns.ResponseWriter
	tcp bool
	got *dns.Msg
}

func (c *asker) RemoteAddr() net.Addr {
	if c.tcp {
		return &net.TCPAddr{}
	}
	return &net.UDPAddr{}
}
func (c *asker) WriteMsg(m *dns.Msg) error { c.got = m; return nil }

func ask(h *handler, name string, kind uint16, change ...func(*dns.Msg)) *dns.Msg {
	q := &dns.Msg{}
	q.SetQuestion(name, kind)
	for _, c := range change {
		c(q)
	}
	c := &asker{}
	h.ServeDNS(c, q)
	return c.got
}

func brief(m *dns.Msg) string {
	out := []string{dns.RcodeToString[m.Rcode]}
	for _, rr := range m.Answer {
		out = append(out, strings.ReplaceAll(rr.String(), "\t", " "))
	}
	return strings.Join(out, "; ")
}

func TestForwarding(t *testing.T) {
	fails := func(string, *dns.Msg) (*dns.Msg, error) { return nil, errors.New("no route") }
	good := func(_ string, q *dns.Msg) (*dns.Msg, error) { return reply(q, "example.org. 60 IN A 192.0.2.1"), nil }
	tests := map[string]struct {
		reason  string
		answer  func(string, *dns.Msg) (*dns.Msg, error)
		servers []string
		name    string
		want    string
		asked   []string
	}{
		"Answered": {
			reason: "the first server is asked, and nobody else", answer: good, servers: []string{"a:53", "b:53"}, name: "Example.org.",
			want: "NOERROR; Example.org. 60 IN A 192.0.2.1", asked: []string{"udp a:53 example.org."},
		},
		"SecondServer": {
			reason: "when one fails, the next is asked", servers: []string{"a:53", "b:53"}, name: "example.org.",
			answer: func(s string, q *dns.Msg) (*dns.Msg, error) {
				if s == "a:53" {
					return fails(s, q)
				}
				return good(s, q)
			},
			want: "NOERROR; example.org. 60 IN A 192.0.2.1", asked: []string{"udp a:53 example.org.", "udp b:53 example.org."},
		},
		"ForgedAnswer": {
			reason: "an answer to another question is no answer", servers: []string{"a:53"}, name: "example.org.",
			answer: func(_ string, q *dns.Msg) (*dns.Msg, error) {
				m := reply(q, "bank.example. 60 IN A 192.0.2.66")
				m.Question[0].Name = "bank.example."
				return m, nil
			},
			want: "SERVFAIL", asked: []string{"udp a:53 example.org."},
		},
		"NobodyToAsk": {
			reason: "without other servers the world is refused, so that clients try their next server at once",
			answer: fails, name: "example.org.", want: "REFUSED",
		},
		"NotTheirs": {
			reason: "names of the cluster never leave it", answer: good, servers: []string{"a:53"}, name: "none.shop.svc.cluster.local.",
			want: "NXDOMAIN",
		},
		"ExternalName": {
			reason: "a Service that is another name is answered with that name's records", answer: good, servers: []string{"a:53"},
			name: "away.shop.svc.cluster.local.",
			want: "NOERROR; away.shop.svc.cluster.local. 5 IN CNAME example.org.; example.org. 60 IN A 192.0.2.1", asked: []string{"udp a:53 example.org."},
		},
		"ExternalNameUnanswered": {
			reason: "the name itself is known, whatever the world says", answer: fails, servers: []string{"a:53"},
			name: "away.shop.svc.cluster.local.",
			want: "NOERROR; away.shop.svc.cluster.local. 5 IN CNAME example.org.", asked: []string{"udp a:53 example.org."},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := &elsewhere{answer: tt.answer}
			h := newTestHandler(e, tt.servers...)
			got := brief(ask(h, tt.name, dns.TypeA))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s:\n%s", tt.reason, diff)
			}
			if diff := cmp.Diff(tt.asked, e.asked); diff != "" {
				t.Errorf("%s: who was asked:\n%s", tt.reason, diff)
			}
		})
	}
}

// A client waits at most once for a server that does not respond. Another one is asked until it does.
func TestAServerThatFailedIsAskedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := true
		e := &elsewhere{
			silent: func(server string) bool { return dead && server == "a:53" },
			answer: func(_ string, q *dns.Msg) (*dns.Msg, error) { return reply(q), nil }, // neither records nor SOA: not cached
		}
		h := newTestHandler(e, "a:53", "b:53")
		h.forward.slots = make(chan struct{}, 10)
		ctx, cancel := context.WithCancel(t.Context())
		go h.forward.revive(ctx)
		ask(h, "first.example.", dns.TypeA)
		time.Sleep(reviveEvery)
		var wg sync.WaitGroup
		began := time.Now()
		for i := range 10 {
			wg.Go(func() { ask(h, fmt.Sprintf("q%d.example.", i), dns.TypeA) })
		}
		wg.Wait()
		if took := time.Since(began); took != 0 {
			t.Errorf("queries took %s", took)
		}
		e.mu.Lock()
		dead = false
		e.mu.Unlock()
		time.Sleep(2 * reviveEvery)
		ask(h, "last.example.", dns.TypeA)
		asked := slices.DeleteFunc(e.untilNow(), func(q string) bool {
			return strings.HasPrefix(q, "udp b:53 q") || strings.HasSuffix(q, probeSuffix)
		})
		want := []string{"udp a:53 first.example.", "udp b:53 first.example.", "udp a:53 last.example."}
		if diff := cmp.Diff(want, asked); diff != "" {
			t.Error(diff)
		}
		cancel()
	})
}

func TestALostPacketIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := 1
		e := &elsewhere{
			silent: func(string) bool { lost--; return lost >= 0 },
			answer: func(_ string, q *dns.Msg) (*dns.Msg, error) { return reply(q, "example.org. 60 IN A 192.0.2.1"), nil },
		}
		h := newTestHandler(e, "a:53")
		if got := brief(ask(h, "example.org.", dns.TypeA)); got != "NOERROR; example.org. 60 IN A 192.0.2.1" {
			t.Error(got)
		}
	})
}

func TestConcurrentQueriesAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &elsewhere{wait: time.Second, answer: func(_ string, q *dns.Msg) (*dns.Msg, error) {
			return reply(q, q.Question[0].Name+" 60 IN A 192.0.2.1"), nil
		}}
		h := newTestHandler(e, "a:53")
		var wg sync.WaitGroup
		codes := make([]int, 40)
		for i := range codes {
			name := "same.example."
			if i >= 37 { // with "same" that is one more than the two slots
				name = fmt.Sprintf("other%d.example.", i)
			}
			wg.Go(func() { codes[i] = ask(h, name, dns.TypeA).Rcode })
		}
		wg.Wait()
		if len(e.asked) != 2 {
			t.Errorf("asked %d times, not twice: %v", len(e.asked), e.asked)
		}
		refused := 0
		for _, c := range codes {
			if c == dns.RcodeServerFailure {
				refused++
			}
		}
		if refused < 2 {
			t.Errorf("%d questions beyond the bound were refused, not 2 or more", refused)
		}
	})
}

func TestASilentServerCostsBoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &elsewhere{wait: time.Hour, answer: func(_ string, q *dns.Msg) (*dns.Msg, error) { return reply(q), nil }}
		h := newTestHandler(e, "a:53", "b:53", "c:53", "d:53")
		began := time.Now()
		if got := ask(h, "example.org.", dns.TypeA); got.Rcode != dns.RcodeServerFailure {
			t.Errorf("got %s", brief(got))
		}
		if took := time.Since(began); took != forwardTimeout {
			t.Errorf("took %s", took)
		}
	})
}

func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h *handler
		var looping atomic.Bool
		looping.Store(true)
		e := &elsewhere{answer: func(_ string, q *dns.Msg) (*dns.Msg, error) {
			if !looping.Load() {
				return reply(q, q.Question[0].Name+" 60 IN A 192.0.2.1"), nil
			}
			c := &asker{}
			h.ServeDNS(c, q.Copy())
			return c.got, nil
		}}
		h = newTestHandler(e, "a:53")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go h.forward.watchLoop(ctx)
		synctest.Wait()
		before := e.untilNow()
		if got := ask(h, "example.org.", dns.TypeA); got.Rcode != dns.RcodeServerFailure || len(e.untilNow()) != len(before) {
			t.Errorf("while questions come back: %s, asked %v, before %v", brief(got), e.untilNow(), before)
		}
		looping.Store(false)
		time.Sleep(probeEvery + time.Second)
		if got := ask(h, "example.org.", dns.TypeA); got.Rcode != dns.RcodeSuccess {
			t.Errorf("after the loop was cut: %s", brief(got))
		}
	})
}

func TestCache(t *testing.T) {
	soa := "example. 300 IN SOA ns.example. host.example. 1 2 3 4 30"
	tests := map[string]struct {
		reason string
		answer func(q *dns.Msg) *dns.Msg
		keeps  time.Duration // 0: not cached
	}{
		"Answer": {"the shortest TTL counts", func(q *dns.Msg) *dns.Msg {
			return reply(q, "a.example. 60 IN CNAME b.example.", "b.example. 20 IN A 192.0.2.1")
		}, 20 * time.Second},
		"NoRecord":  {"an empty answer lives as the SOA says", func(q *dns.Msg) *dns.Msg { return reply(q, soa) }, 30 * time.Second},
		"NoName":    {"so does a name that does not exist", func(q *dns.Msg) *dns.Msg { m := reply(q, soa); m.Rcode = dns.RcodeNameError; return m }, 30 * time.Second},
		"NoSOA":     {"without SOA nobody knows how long", func(q *dns.Msg) *dns.Msg { return reply(q) }, 0},
		"Truncated": {"half an answer is none", func(q *dns.Msg) *dns.Msg { m := reply(q, "a.example. 60 IN A 192.0.2.1"); m.Truncated = true; return m }, 0},
		"TTLZero":   {"what may not be kept is not", func(q *dns.Msg) *dns.Msg { return reply(q, "a.example. 0 IN A 192.0.2.1") }, 0},
		"AtMost":    {"a day is too long", func(q *dns.Msg) *dns.Msg { return reply(q, "a.example. 86400 IN A 192.0.2.1") }, time.Hour},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &elsewhere{answer: func(_ string, q *dns.Msg) (*dns.Msg, error) { return tt.answer(q), nil }}
				h := newTestHandler(e, "a:53")
				asked := func() int { ask(h, "a.example.", dns.TypeA); return len(e.asked) }
				asked()
				if tt.keeps == 0 {
					if asked() != 2 {
						t.Errorf("%s: it was kept", tt.reason)
					}
					return
				}
				time.Sleep(tt.keeps - time.Millisecond)
				if asked() != 1 {
					t.Errorf("%s: it was not kept for %s", tt.reason, tt.keeps)
				}
				time.Sleep(time.Millisecond)
				if asked() != 2 {
					t.Errorf("%s: it was kept longer than %s", tt.reason, tt.keeps)
				}
			})
		})
	}
}

func TestCacheIsBoundedAndTTLsGoDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(4000, time.Hour)
		put := func(name string) {
			q := question{name: name, kind: dns.TypeA}
			c.put(q, reply(q.message(), name+" 60 IN A 192.0.2.1"))
		}
		for i := range 100 {
			put(fmt.Sprintf("n%d.example.", i))
			c.get(question{name: "n0.example.", kind: dns.TypeA}) // used, so it is not evicted
		}
		if n, bytes := c.sizes(); bytes > 4000 || n < 5 {
			t.Errorf("holds %d answers in %d bytes", n, bytes)
		}
		time.Sleep(7 * time.Second)
		msg, ok := c.get(question{name: "n0.example.", kind: dns.TypeA})
		if !ok || msg.Answer[0].Header().Ttl != 53 {
			t.Errorf("kept %v: %v", ok, msg)
		}
		if _, ok := c.get(question{name: "n50.example.", kind: dns.TypeA}); ok {
			t.Error("the one asked for longest ago is still there")
		}
		if _, ok := c.get(question{name: "n0.example.", kind: dns.TypeA, secure: true}); ok {
			t.Error("an answer without signatures for one who wants them")
		}
	})
}
