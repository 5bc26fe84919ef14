package simulation

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// fault is a fault injected into one call.
type fault int

const (
	none        fault = iota
	lost              // the request does not arrive
	unheard           // the call succeeds, the response is lost
	refused           // 429 with Retry-After
	broken            // 500
	conflict          // 409, although there was no other write
	crashBefore       // the caller is killed before the call
	crashAfter        // the call succeeds, the caller is killed
)

func (f fault) String() string {
	return [...]string{"none", "lost", "unheard", "refused", "broken", "conflict", "crash before", "crash after"}[f]
}

// plan is the faults of a seed. Seed 0 has none.
type plan struct {
	seed  uint64
	rates rates
	trace func(string) // called for every fault as it happens; may be nil

	mu     sync.Mutex
	over   bool
	began  time.Time
	counts map[string]int
	log    []string
}

// rates are per ten thousand calls.
type rates struct {
	request   map[fault]int // write requests of daemons to the API server
	read      map[fault]int // read requests
	store     map[fault]int // of the API server to the store
	runtime   map[fault]int // of the kubelet to the runtime
	cutWatch  int           // reads of a watch
	lagWatch  int
	maxLag    time.Duration
	lateReply int
	longDown  int // per ten thousand outages
}

func newPlan(seed uint64) *plan {
	p := &plan{seed: seed, began: time.Now(), counts: map[string]int{}}
	if seed == 0 {
		p.over = true
		return p
	}
	// Seeds differ in their preferred faults.
	r := p.draw("rates")
	some := func(most int) int { return r.IntN(most + 1) }
	p.rates = rates{
		request: map[fault]int{
			lost: some(200), unheard: some(200), refused: some(100), broken: some(100), conflict: some(200),
			crashBefore: some(60), crashAfter: some(60),
		},
		read:     map[fault]int{lost: some(200), refused: some(100), broken: some(100)},
		store:    map[fault]int{crashBefore: some(15), crashAfter: some(15)},
		runtime:  map[fault]int{lost: some(100), unheard: some(100), crashBefore: some(50), crashAfter: some(50)},
		cutWatch: some(200), lagWatch: some(1000), maxLag: time.Duration(some(3000)) * time.Millisecond,
		lateReply: some(200), longDown: some(1500),
	}
	return p
}

// draw returns a random source that depends on the seed and the words only.
func (p *plan) draw(words ...string) *rand.Rand {
	h := fnv.New64a()
	for _, w := range words {
		h.Write([]byte(w))
		h.Write([]byte{0})
	}
	return rand.New(rand.NewPCG(p.seed, h.Sum64()))
}

// next returns the random source for the next call of this sort by this daemon; nil if there are to
// be no more faults.
func (p *plan) next(who, what string) (*rand.Rand, int) {
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return nil, 0
	}
	key := who + " " + what
	p.counts[key]++
	n := p.counts[key]
	p.mu.Unlock()
	return p.draw(who, what, fmt.Sprint(n)), n
}

// pick chooses the fault of a call.
func (p *plan) pick(who, what string, rates map[fault]int, not ...fault) fault {
	r, n := p.next(who, what)
	if r == nil {
		return none
	}
	dice := r.IntN(10_000)
	for f := lost; f <= crashAfter; f++ {
		if dice -= rates[f]; dice >= 0 {
			continue
		}
		if slices.Contains(not, f) {
			return none
		}
		p.note("%s: %s #%d: %s", who, what, n, f)
		return f
	}
	return none
}

// delay returns how long a response takes.
func (p *plan) delay(who, what string) time.Duration {
	r, _ := p.next(who, "delay of "+what)
	if r == nil {
		return 0
	}
	d := time.Duration(r.IntN(10_000)) * time.Microsecond
	if r.IntN(10_000) < p.rates.lateReply {
		d += time.Duration(r.IntN(2000)) * time.Millisecond
	}
	return d
}

// lag returns the delay of a watch event, and whether the connection breaks instead.
func (p *plan) lag(who, what string) (late time.Duration, cut bool) {
	r, n := p.next(who, "news of "+what)
	if r == nil {
		return 0, false
	}
	if r.IntN(10_000) < p.rates.lagWatch && p.rates.maxLag > 0 {
		late = time.Duration(r.Int64N(int64(p.rates.maxLag)))
	}
	if cut = r.IntN(10_000) < p.rates.cutWatch; cut {
		p.note("%s: watch of %s: cut at read #%d", who, what, n)
	}
	return late, cut
}

// outage returns how long a killed daemon stays down.
func (p *plan) outage(who string) time.Duration {
	r, _ := p.next(who, "outage")
	if r == nil {
		return 0
	}
	d := time.Duration(r.IntN(5000)) * time.Millisecond
	if r.IntN(10_000) < p.rates.longDown {
		d += time.Duration(r.IntN(90)) * time.Second
	}
	p.note("%s: down for %s", who, d)
	return d
}

func (p *plan) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := fmt.Sprintf("%12s  %s", time.Since(p.began).Round(time.Millisecond), fmt.Sprintf(format, args...))
	p.log = append(p.log, line)
	if p.trace != nil {
		p.trace(line)
	}
}

// stop ends the faults.
func (p *plan) stop() {
	p.note("no more faults")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
}

func (p *plan) stopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

// story returns all faults so far.
func (p *plan) story() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.log, "\n")
}

// tally counts the faults by kind.
func (p *plan) tally() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	count := map[string]int{}
	for _, line := range p.log {
		for f := lost; f <= crashAfter; f++ {
			if strings.HasSuffix(line, ": "+f.String()) {
				count[f.String()]++
			}
		}
		if strings.Contains(line, ": cut at") {
			count["watch cut"]++
		}
	}
	var out []string
	for what, n := range count {
		out = append(out, fmt.Sprintf("%s %d", what, n))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
