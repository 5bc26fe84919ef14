package dns

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/singleflight"
)

// Exchange sends a query to a name server and returns the response; network is "udp" or
// "tcp". It must return when ctx ends.
type Exchange func(ctx context.Context, network, server string, msg *dns.Msg) (*dns.Msg, error)

// The timeouts and limits of forwarding.
const (
	attemptTimeout = 2 * time.Second // of one server
	forwardTimeout = 5 * time.Second // of all servers; clients give up after that
	reviveEvery    = 5 * time.Second // between probes of servers that failed
	probeEvery     = 30 * time.Second
	udpSize        = 1232 // fits every path without fragmentation (DNS flag day 2020)
)

const probeSuffix = ".loop.cluster-dns.invalid."

var (
	errBusy   = errors.New("too many questions wait for other name servers")
	errLoop   = errors.New("the questions sent to other name servers come back here")
	errNoPeer = errors.New("no upstream name servers are configured")
)

// forwarder forwards queries to other name servers and caches the answers.
type forwarder struct {
	servers  []string // host:port, tried in this order
	exchange Exchange
	cache    *cache
	log      *slog.Logger
	metrics  *metrics

	slots  chan struct{} // limits concurrent queries
	flight singleflight.Group
	loop   atomic.Bool
	probe  string // a random name: a query for it means a forwarding loop

	mu     sync.Mutex
	failed map[string]bool // servers that are tried last
}

func newForwarder(cfg Config, m *metrics) *forwarder {
	return &forwarder{
		servers: cfg.Upstream, exchange: cfg.Exchange, log: cfg.Log, metrics: m,
		cache:  newCache(cfg.CacheBytes, cfg.CacheTTL),
		slots:  make(chan struct{}, cfg.MaxForwards),
		probe:  strings.ToLower(rand.Text()) + probeSuffix,
		failed: map[string]bool{},
	}
}

// ask returns the answer from the cache or from another server. overTCP means that the
// client can receive a long answer.
func (f *forwarder) ask(ctx context.Context, r *dns.Msg, overTCP bool) (*dns.Msg, error) {
	key := keyOf(r)
	if msg, ok := f.cache.get(key); ok {
		f.metrics.cacheHits.Inc()
		return msg, nil
	}
	f.metrics.cacheMisses.Inc()
	switch {
	case len(f.servers) == 0:
		return nil, errNoPeer
	case f.loop.Load():
		return nil, errLoop
	}
	// Identical concurrent queries share one answer. A looping probe must not wait
	// for itself.
	same := fmt.Sprint(key, overTCP)
	if strings.HasSuffix(key.name, probeSuffix) {
		same = rand.Text()
	}
	got := f.flight.DoChan(same, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forwardTimeout)
		defer cancel()
		return f.forward(ctx, key, overTCP)
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case result := <-got:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.(*dns.Msg).Copy(), nil
	}
}

func keyOf(r *dns.Msg) question {
	opt := r.IsEdns0()
	return question{
		name: strings.ToLower(r.Question[0].Name), kind: r.Question[0].Qtype,
		secure: opt != nil && opt.Do(), check: r.CheckingDisabled,
	}
}

// forward sends the query to the servers in turn until one answers, and caches the
// answer. It asks again those that do not respond, because packets get lost, until ctx
// ends. It returns errBusy at once if too many queries are waiting.
func (f *forwarder) forward(ctx context.Context, key question, overTCP bool) (*dns.Msg, error) {
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	default:
		return nil, errBusy
	}
	network := "udp"
	if overTCP {
		network = "tcp"
	}
	var errs []error
	for servers := f.inOrder(); len(servers) > 0; {
		var silent []string
		for _, server := range servers {
			answer, err := f.try(ctx, network, server, key)
			if err == nil {
				f.cache.put(key, answer)
				return answer, nil
			}
			errs = append(errs, fmt.Errorf("%s: %w", server, err))
			if ctx.Err() != nil {
				return nil, errors.Join(errs...)
			}
			if timedOut(err) {
				silent = append(silent, server)
			}
		}
		servers = silent
	}
	return nil, errors.Join(errs...)
}

func timedOut(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// try sends the query to one server and records whether that failed.
func (f *forwarder) try(ctx context.Context, network, server string, key question) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	began := time.Now()
	answer, err := f.exchange(ctx, network, server, key.message())
	f.metrics.forward.WithLabelValues(server).Observe(time.Since(began).Seconds())
	if err == nil {
		err = credible(answer, key)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.failed[server] = true
		f.metrics.forwardErrors.WithLabelValues(server).Inc()
		return nil, err
	}
	delete(f.failed, server)
	return answer, nil
}

// message returns the query to send. It contains nothing else of the client's query.
func (key question) message() *dns.Msg {
	m := &dns.Msg{}
	m.SetQuestion(key.name, key.kind)
	m.CheckingDisabled = key.check
	m.SetEdns0(udpSize, key.secure)
	return m
}

// credible returns an error if an answer is for another question, or if the server
// reports a failure of its own, so that the next server is tried.
func credible(answer *dns.Msg, key question) error {
	switch {
	case answer == nil || !answer.Response || len(answer.Question) != 1:
		return errors.New("what came is not an answer")
	case !strings.EqualFold(answer.Question[0].Name, key.name) || answer.Question[0].Qtype != key.kind:
		return errors.New("the answer is to another question")
	case answer.Rcode == dns.RcodeServerFailure || answer.Rcode == dns.RcodeRefused || answer.Rcode == dns.RcodeNotImplemented || answer.Rcode == dns.RcodeFormatError:
		return fmt.Errorf("the upstream server answered %s", dns.RcodeToString[answer.Rcode])
	}
	return nil
}

// inOrder returns the servers, with those that failed last.
func (f *forwarder) inOrder() []string {
	well, ill := f.split()
	return append(well, ill...)
}

// split returns the servers whose last answer was good, or that were not asked, and the others.
func (f *forwarder) split() (well, ill []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.servers {
		if f.failed[s] {
			ill = append(ill, s)
		} else {
			well = append(well, s)
		}
	}
	return well, ill
}

// revive periodically probes the servers that failed, so that no client waits for one that
// does not respond. A server that responds is tried in its turn again. It blocks until ctx ends.
func (f *forwarder) revive(ctx context.Context) error {
	t := time.NewTicker(reviveEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		_, ill := f.split()
		for _, server := range ill {
			if f.send(ctx, server) == nil {
				f.mu.Lock()
				delete(f.failed, server)
				f.mu.Unlock()
			}
		}
	}
}

// send sends the probe to a server. It returns an error if there is no response.
func (f *forwarder) send(ctx context.Context, server string) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	_, err := f.exchange(ctx, "udp", server, question{name: f.probe, kind: dns.TypeHINFO}.message())
	return err
}

// watchLoop periodically sends a query for a random name to each server. If the query
// arrives here, forwarding would loop; as long as it does, nothing is forwarded. It
// blocks until ctx ends.
func (f *forwarder) watchLoop(ctx context.Context) error {
	t := time.NewTicker(probeEvery)
	defer t.Stop()
	for {
		before := f.metrics.probes.Load()
		for _, server := range f.servers {
			_ = f.send(ctx, server) // the answer does not matter
		}
		looping := f.metrics.probes.Load() != before
		if f.loop.Swap(looping) != looping && looping {
			f.log.Error("forwarding loop detected: upstream name servers forward queries to this server; queries are no longer forwarded. Set other name servers with --upstream or in the file of --resolv-conf", "upstream", f.servers)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// NetExchange implements Exchange on this machine's network.
func NetExchange(ctx context.Context, network, server string, msg *dns.Msg) (*dns.Msg, error) {
	c := dns.Client{Net: network, UDPSize: udpSize}
	answer, _, err := c.ExchangeContext(ctx, msg, server)
	return answer, err
}

// serverAddress adds the default port to a name server's address. It returns an error
// for an invalid address.
func serverAddress(text string) (string, error) {
	if ap, err := netip.ParseAddrPort(text); err == nil && ap.Port() != 0 {
		return ap.String(), nil
	}
	ip, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		return "", fmt.Errorf("%q is neither an IP address nor one with a port", text)
	}
	return net.JoinHostPort(ip.String(), "53"), nil
}
