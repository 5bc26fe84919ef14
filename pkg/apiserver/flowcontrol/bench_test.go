package flowcontrol

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
)

// What flow control adds to a request that finds a free seat.
func BenchmarkRequest(b *testing.B) {
	for name, r := range map[string]*request.Request{
		"exempt": get("root", authn.Masters), "heartbeat": lease("system:node:a", nodesGroup),
		"account": get("system:serviceaccount:one:a"), "user": get("mallory"),
	} {
		b.Run(name, func(b *testing.B) {
			f := New(Config{Reads: 400, Writes: 200, LongRunning: 1000, Registry: prometheus.NewRegistry()})
			b.ReportAllocs()
			p := &Place{}
			for b.Loop() {
				if err := f.Begin(p, r); err != nil {
					b.Fatal(err)
				}
				if err := p.TakeSeat(b.Context(), 1); err != nil {
					b.Fatal(err)
				}
				p.End()
			}
		})
	}
}

func TestARequestAllocatesNothing(t *testing.T) {
	f, p, r, ctx := New(Config{Reads: 400, Writes: 200}), &Place{}, get("mallory"), t.Context()
	n := testing.AllocsPerRun(100, func() {
		if f.Begin(p, r) != nil || p.TakeSeat(ctx, 1) != nil {
			t.Fatal("refused")
		}
		p.End()
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
