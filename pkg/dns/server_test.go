package dns

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "podium/pkg/client"
	"podium/pkg/client/clienttest"
)

// startServer runs a server on a loopback address over an API in memory that has one
// headless Service with the number of endpoints.
func startServer(t *testing.T, endpoints int) (s *Server, address string) {
	t.Helper()
	c := clienttest.New().Client(t)
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	create(t, c, service("many", func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone }))
	all := slice("many", "IPv4", nil)
	for i := range endpoints {
		all.Endpoints = append(all.Endpoints, at(fmt.Sprintf("10.244.%d.%d", i/250, i%250+1), "", true))
	}
	create[*discoveryv1.EndpointSlice](t, c, all)

	udp, tcp := listen(t)
	e := &elsewhere{answer: func(_ string, q *dns.Msg) (*dns.Msg, error) { return reply(q), nil }}
	s, err := New(Config{
		Client: c, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), PacketConn: udp, Listener: tcp,
		Domain: "cluster.local", TTL: 5 * time.Second, Upstream: []string{"a:53"}, Exchange: e.exchange,
		CacheBytes: 1 << 20, CacheTTL: time.Hour, MaxForwards: 10, MaxConns: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	if s.views.namespaces.WaitSynced(ctx) != nil || s.views.svcs.WaitSynced(ctx) != nil || s.views.sls.WaitSynced(ctx) != nil {
		t.Fatal("the views were not filled")
	}
	return s, udp.LocalAddr().String()
}

// listen opens a port for UDP and TCP. A port that is free for UDP may be taken for TCP.
func listen(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	var failed error
	for range 20 {
		udp, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		tcp, err := net.Listen("tcp", udp.LocalAddr().String())
		if err == nil {
			return udp, tcp
		}
		failed = err
		udp.Close()
	}
	t.Fatal(failed)
	return nil, nil
}

func create[T interface {
	metav1.Object
	comparable
}](t *testing.T, c *api.Client, obj T) {
	t.Helper()
	var err error
	switch o := any(obj).(type) {
	case *corev1.Namespace:
		_, err = api.For[*corev1.Namespace](c).Create(t.Context(), o)
	case *corev1.Service:
		_, err = api.For[*corev1.Service](c).Create(t.Context(), o)
	case *discoveryv1.EndpointSlice:
		_, err = api.For[*discoveryv1.EndpointSlice](c).Create(t.Context(), o)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestTruncationAndTCP(t *testing.T) {
	const endpoints = 300
	s, address := startServer(t, endpoints)
	if err := s.Ready(); err != nil {
		t.Error(err)
	}
	for name, tt := range map[string]struct {
		network string
		edns    uint16
		most    int  // bytes of the answer
		whole   bool // else truncated with TC set
	}{
		"plain UDP":                      {"udp", 0, 512, false},
		"UDP with EDNS":                  {"udp", 1000, 1000, false},
		"no more than fits every path":   {"udp", 65535, udpSize, false},
		"less than the least is no less": {"udp", 1, 512, false},
		"TCP":                            {"tcp", 0, dns.MaxMsgSize, true},
		"TCP with EDNS":                  {"tcp", 512, dns.MaxMsgSize, true},
	} {
		t.Run(name, func(t *testing.T) {
			q := &dns.Msg{}
			q.SetQuestion("many.shop.svc.cluster.local.", dns.TypeA)
			if tt.edns > 0 {
				q.SetEdns0(tt.edns, false)
			}
			c := dns.Client{Net: tt.network, UDPSize: dns.MaxMsgSize, Timeout: 5 * time.Second}
			got, _, err := c.Exchange(q, address)
			if err != nil {
				t.Fatal(err)
			}
			got.Compress = true
			if got.Len() > tt.most || got.Truncated == tt.whole || (len(got.Answer) == endpoints) != tt.whole {
				t.Errorf("%d records in %d bytes, truncated %v", len(got.Answer), got.Len(), got.Truncated)
			}
			if (got.IsEdns0() != nil) != (tt.edns > 0) {
				t.Error("EDNS is answered exactly to those who speak it")
			}
		})
	}
}

func TestQuestionsThatAreNone(t *testing.T) {
	_, address := startServer(t, 1)
	for name, tt := range map[string]struct {
		change func(*dns.Msg)
		want   string // the response code; "silence" for no response
	}{
		"an answer":               {func(m *dns.Msg) { m.Response = true }, "silence"},
		"an update":               {func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }, "NOTIMP"},
		"two questions":           {func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }, "FORMERR"},
		"no question":             {func(m *dns.Msg) { m.Question = nil }, "FORMERR"},
		"another class":           {func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }, "REFUSED"},
		"a transfer of the zone":  {func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAXFR }, "REFUSED"},
		"all there is":            {func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeANY }, "NOERROR"},
		"no recursion":            {func(m *dns.Msg) { m.RecursionDesired, m.Question[0].Name = false, "example.org." }, "REFUSED"},
		"EDNS of another version": {func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(7) }, "BADVERS"},
	} {
		t.Run(name, func(t *testing.T) {
			q := &dns.Msg{}
			q.SetQuestion("many.shop.svc.cluster.local.", dns.TypeA)
			tt.change(q)
			c := dns.Client{Timeout: time.Second}
			if tt.want == "silence" {
				c.Timeout = 100 * time.Millisecond
			}
			got, _, err := c.Exchange(q, address)
			code := "silence"
			if err == nil {
				code = dns.RcodeToString[got.Rcode]
			}
			if got != nil && got.Rcode == dns.RcodeBadVers {
				code = "BADVERS"
			}
			if code != tt.want {
				t.Errorf("got %s (%v), want %s", code, err, tt.want)
			}
		})
	}
}

func TestNamesFollowTheAPI(t *testing.T) {
	s, address := startServer(t, 1)
	if got, _, err := (&dns.Client{}).Exchange(aQuestion("later.shop.svc.cluster.local."), address); err != nil || got.Rcode != dns.RcodeNameError {
		t.Fatalf("before: %v, %v", got, err)
	}
	create(t, s.cfg.Client, service("later", func(s *corev1.ServiceSpec) { s.ClusterIP = "10.96.0.9" }))
	deadline := time.Now().Add(10 * time.Second)
	for {
		got, _, err := (&dns.Client{}).Exchange(aQuestion("later.shop.svc.cluster.local."), address)
		if err == nil && len(got.Answer) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after 10 s: %v, %v", got, err)
		}
	}
	if got, _, err := (&dns.Client{}).Exchange(&dns.Msg{MsgHdr: dns.MsgHdr{Id: 1}, Question: []dns.Question{{Name: "9.0.96.10.in-addr.arpa.", Qtype: dns.TypePTR, Qclass: dns.ClassINET}}}, address); err != nil || !strings.Contains(fmt.Sprint(got), "later.shop.svc.cluster.local.") {
		t.Errorf("the way back: %v, %v", got, err)
	}
}

func aQuestion(name string) *dns.Msg { return (&dns.Msg{}).SetQuestion(name, dns.TypeA) }

// FuzzPackets checks that every response fits the client's size and repeats its
// question.
func FuzzPackets(f *testing.F) {
	for _, name := range []string{"web.shop.svc.cluster.local.", "_http._tcp.db.shop.svc.cluster.local.", "away.shop.svc.cluster.local.", "5.0.244.10.in-addr.arpa.", "."} {
		for _, kind := range []uint16{dns.TypeA, dns.TypeSRV, dns.TypePTR, dns.TypeANY} {
			q := (&dns.Msg{}).SetQuestion(name, kind)
			q.SetEdns0(700, true)
			data, err := q.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"))
	e := &elsewhere{answer: func(_ string, q *dns.Msg) (*dns.Msg, error) { return reply(q, "example.org. 60 IN A 192.0.2.1"), nil }}
	h := newTestHandler(e, "a:53")
	var broken bytes.Buffer // the log of recovered panics
	h.log = slog.New(slog.NewTextHandler(&broken, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		q := &dns.Msg{}
		if q.Unpack(data) != nil || len(q.Question) != 1 {
			return
		}
		c := &asker{}
		h.ServeDNS(c, q)
		packed, err := c.got.Pack()
		if err != nil {
			t.Fatalf("the answer to %v cannot be sent: %v", q, err)
		}
		if len(packed) > udpSize || c.got.Id != q.Id {
			t.Errorf("%d bytes for %v", len(packed), q)
		}
		if broken.Len() > 0 {
			t.Fatalf("%v: %s", q, &broken)
		}
	})
}
