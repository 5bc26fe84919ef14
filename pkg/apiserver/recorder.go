package apiserver

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/audit"
	"podium/pkg/apiserver/flowcontrol"
	"podium/pkg/apiserver/request"
)

// The deadlines of clients. http.Server sets a deadline on the connection that
// ends a request which is neither read nor answered in time. The recorder
// extends it while the client makes progress, and ends a watch whose client
// does not read.
const (
	stallTimeout = 30 * time.Second // time in which a client must read one piece of a response
	pieceSize    = 128 << 10
	smallAnswer  = 32 << 10 // a response for which the connection's deadline suffices
	rearmAfter   = time.Second
)

// recorder is a ResponseWriter that records the status code and size for
// metrics and audit, and enforces that the client reads the response.
type recorder struct {
	http.ResponseWriter
	req   *request.Request
	code  int
	size  int64
	began time.Time
	trail *audit.Trail // nil: the request is not recorded for the audit
	place flowcontrol.Place

	stall time.Duration // time in which the client must read one piece; 0: no limit
	armed time.Time     // when the write deadline was last set
	guard *guard        // set for watches only
}

// Note records the error status of the request for the audit. wire.WriteError
// calls it.
func (w *recorder) Note(status *metav1.Status) { w.trail.Failed(status) }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(code int) {
	w.begin(code)
	w.ResponseWriter.WriteHeader(code)
}

// begin records the status code on its first call, and releases the memory and
// seat that the request holds.
func (w *recorder) begin(code int) {
	if w.code != 0 {
		return
	}
	w.code = code
	w.place.FreeSeat()
	w.req.Release()
	w.trail.Started(code, w.Header())
}

// Write implements http.ResponseWriter. It writes in pieces and gives the
// client time for each.
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

// rearm extends the write deadline for the next piece of a response of at least
// size bytes. It does nothing for a watch, whose guard costs less than setting
// a deadline.
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

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush implements http.Flusher.
func (w *recorder) Flush() { _ = w.FlushError() }

// FlushError is Flush with an error if the connection is gone.
func (w *recorder) FlushError() error {
	w.guard.enter()
	defer w.guard.leave()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker. The recorder then counts as answered with
// 101.
func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.begin(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// unbounded removes the connection's deadlines for a long-running request. The
// caller must call end when the request ends: it sets deadlines for what
// http.Server does after the handler.
func (s *Server) unbounded(rec *recorder, r *http.Request) (end func()) {
	out := http.NewResponseController(rec.ResponseWriter)
	if out.SetWriteDeadline(time.Time{}) != nil {
		return func() {} // the writer does not support deadlines
	}
	_ = out.SetReadDeadline(time.Time{})
	if rec.req.Verb == "watch" {
		rec.guard = newGuard(s.cfg.RequestTimeout, func() { _ = out.SetWriteDeadline(time.Unix(1, 0)) })
	}
	return func() {
		// http.Server drains the body and flushes its buffer after the handler
		// returns.
		soon := time.Now().Add(rec.stall)
		_ = out.SetWriteDeadline(soon)
		if r.ProtoMajor == 1 && r.ContentLength != 0 {
			_ = out.SetReadDeadline(soon)
		}
	}
}

// guard calls cut if the time between enter and leave exceeds limit. A nil
// guard does nothing.
type guard struct {
	timer *time.Timer
	limit time.Duration
	cut   func()

	mu    sync.Mutex
	since time.Time // when enter was called; zero after leave
}

// newGuard returns a stopped guard. cut is called in a goroutine of its own.
func newGuard(limit time.Duration, cut func()) *guard {
	g := &guard{limit: limit, cut: cut}
	g.timer = time.AfterFunc(limit, g.fire)
	g.timer.Stop()
	return g
}

// enter starts the time that leave stops. cut is not called after leave has
// returned.
func (g *guard) enter() {
	if g == nil {
		return
	}
	g.mu.Lock()
	g.since = time.Now()
	g.mu.Unlock()
	g.timer.Reset(g.limit)
}

// leave stops the time that enter started.
func (g *guard) leave() {
	if g == nil {
		return
	}
	g.mu.Lock()
	g.since = time.Time{}
	g.mu.Unlock()
	g.timer.Stop()
}

// fire checks the time under the lock, since the timer may fire after leave has
// stopped it or enter has reset it.
func (g *guard) fire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.since.IsZero() && time.Since(g.since) >= g.limit {
		g.cut()
	}
}
