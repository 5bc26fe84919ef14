package apiserver

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/audit"
	"podium/pkg/apiserver/request"
)

// The times that a client has. The connection's own deadline, which http.Server
// sets, ends a request that is neither read nor answered; these extend it while
// the client makes progress, and end a watch that is not read.
const (
	stallTimeout = 30 * time.Second // in which a client must read a piece of an answer
	pieceSize    = 128 << 10
	smallAnswer  = 32 << 10 // an answer that the connection's own deadline is enough for
	rearmAfter   = time.Second
)

// recorder notes what was answered, and sees to it that the client reads.
type recorder struct {
	http.ResponseWriter
	req   *request.Request
	code  int
	size  int64
	began time.Time
	trail *audit.Trail // nil: the request is not recorded for the audit

	stall time.Duration // in which the client must read a piece; 0: no bound
	armed time.Time     // when the deadline was set last
	guard *guard        // of a watch; nil elsewhere
}

// Note is told why the request failed.
func (w *recorder) Note(status *metav1.Status) { w.trail.Failed(status) }

func (w *recorder) WriteHeader(code int) {
	w.begin(code)
	w.ResponseWriter.WriteHeader(code)
}

// begin notes that the answer begins. What the request has held for the work on
// it is free.
func (w *recorder) begin(code int) {
	if w.code != 0 {
		return
	}
	w.code = code
	w.req.Release()
	w.trail.Started(code, w.Header())
}

func (w *recorder) Write(p []byte) (n int, err error) {
	w.begin(http.StatusOK)
	w.size += int64(len(p))
	w.trail.Sent(p)
	for {
		piece := p[n:min(len(p), n+pieceSize)]
		w.rearm(len(p))
		w.guard.enter()
		written, err := w.ResponseWriter.Write(piece)
		w.guard.leave()
		if n += written; err != nil || n >= len(p) {
			return n, err
		}
	}
}

// rearm gives the client time for the next piece of an answer of at least size
// bytes. A watch has its guard instead: setting a deadline costs more.
func (w *recorder) rearm(size int) {
	if w.stall == 0 || w.guard != nil || w.armed.IsZero() && size <= smallAnswer {
		return
	}
	if now := time.Now(); now.Sub(w.armed) > rearmAfter {
		w.armed = now
		deadline := now.Add(w.stall)
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(deadline)
	}
}

// Unwrap and what follows let streams through to the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) Flush() { _ = w.FlushError() }

// FlushError is Flush, and says when the connection is gone.
func (w *recorder) FlushError() error {
	w.guard.enter()
	defer w.guard.leave()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.begin(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// unbounded takes the connection's deadlines from a request that lasts as long
// as its client likes. What it returns is called when the request ends.
func (s *Server) unbounded(rec *recorder, r *http.Request) (end func()) {
	out := http.NewResponseController(rec.ResponseWriter)
	if out.SetWriteDeadline(time.Time{}) != nil {
		return func() {} // no connection that knows deadlines
	}
	_ = out.SetReadDeadline(time.Time{})
	if rec.req.Verb == "watch" {
		rec.guard = newGuard(s.cfg.RequestTimeout, func() { _ = out.SetWriteDeadline(time.Unix(1, 0)) })
	}
	return func() {
		// The server reads what is left of the body and sends what is left in
		// its buffer after the handler.
		soon := time.Now().Add(rec.stall)
		_ = out.SetWriteDeadline(soon)
		if r.ProtoMajor == 1 && r.ContentLength != 0 {
			_ = out.SetReadDeadline(soon)
		}
	}
}

// guard calls cut when something takes longer than allowed. A nil guard allows
// everything.
type guard struct {
	timer *time.Timer
	limit time.Duration
	cut   func()

	mu    sync.Mutex
	since time.Time // zero: nothing is under way
}

func newGuard(limit time.Duration, cut func()) *guard {
	g := &guard{limit: limit, cut: cut}
	g.timer = time.AfterFunc(limit, g.fire)
	g.timer.Stop()
	return g
}

// enter begins what leave ends: cut is called in between or not at all.
func (g *guard) enter() {
	if g == nil {
		return
	}
	g.mu.Lock()
	g.since = time.Now()
	g.mu.Unlock()
	g.timer.Reset(g.limit)
}

func (g *guard) leave() {
	if g == nil {
		return
	}
	g.mu.Lock()
	g.since = time.Time{}
	g.mu.Unlock()
	g.timer.Stop()
}

// fire may come late, when the timer has been stopped and begun again.
func (g *guard) fire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.since.IsZero() && time.Since(g.since) >= g.limit {
		g.cut()
	}
}
