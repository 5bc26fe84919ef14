package flowcontrol

import (
	"context"
	"net/http"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/apiserver/request"
)

// Place is a request's entry among those in flight. The zero value holds nothing. It
// is used by one goroutine, must not be copied, and must stay in memory until End.
type Place struct {
	f       *Limiter
	req     *request.Request
	schema  *schema
	flow    flow
	counted bool // among the user's requests in flight

	granted chan struct{} // closed when a waiting request is dispatched

	// Guarded by the level's lock between admit and free.
	level            *level // nil: it has no seat
	queue            *queue
	next, prev       *Place // of the requests that the queue has dispatched
	width            int
	due              float64 // the level's virtual time at the arrival
	arrived, started time.Time
}

// Begin counts a request as in flight until End, and sets r.Flow. It does not block.
// It returns a 429 error if the user has too many requests in flight, including those
// whose body or response is in transfer; then there is nothing to End.
func (f *Limiter) Begin(p *Place, r *request.Request) error {
	p.f, p.req, p.schema = f, r, f.classify(r)
	p.flow.level, p.flow.kind = p.schema.level.name, write
	p.flow.user, p.flow.ordinary = identity(r)
	switch {
	case r.LongRunning():
		p.flow.kind = longRunning
	case r.ReadOnly():
		p.flow.kind = read
	}
	r.Flow = p.flow.user
	share := f.share(p.flow)
	if share == 0 || p.schema.level.name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
		return nil
	}
	if p.counted = f.take(p.flow, share); !p.counted {
		return p.reject(queueFull)
	}
	return nil
}

// The response headers that name the objects which classified the request, in
// canonical form.
var headers = [2]string{
	http.CanonicalHeaderKey(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID),
	http.CanonicalHeaderKey(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID),
}

// SetHeaders tells the client how the request was classified. Streams are not
// classified.
func (p *Place) SetHeaders(h http.Header) {
	for i, name := range headers {
		if uid := p.schema.uids[i]; uid != nil && p.seats() {
			h[name] = uid
		}
	}
}

// Ordinary reports whether the request's user is neither a node nor part of the
// control plane.
func (p *Place) Ordinary() bool { return p.flow.ordinary }

// seats reports whether the request needs seats: streams do not, nor do watches
// without priorities.
func (p *Place) seats() bool {
	return p.flow.kind != longRunning || p.req.Verb == "watch" && !p.f.cfg.Plain
}

// TakeSeat takes width seats of the request's level. It blocks while the request
// waits for its turn, at most for a quarter of the time until its deadline. It returns
// a 429 error if it gets no seat.
func (p *Place) TakeSeat(ctx context.Context, width int) error {
	if !p.seats() {
		return nil
	}
	p.width = max(width, 1)
	s, now := p.schema, p.f.cfg.Now()
	s.series.estimated.Observe(float64(p.width))
	if why := s.level.admit(p, s.flow(p.req), now); why != admitted {
		return p.reject(why)
	}
	if p.granted != nil {
		if err := p.wait(ctx, now); err != nil {
			return err
		}
		now = p.started
	}
	s.series.wait.executed.Observe(now.Sub(p.arrived).Seconds())
	if p.flow.kind != longRunning {
		p.f.counts[p.flow.kind].Add(1)
	}
	return nil
}

// wait blocks until the request is dispatched, or has waited for too long.
func (p *Place) wait(ctx context.Context, now time.Time) error {
	limit := p.f.cfg.Wait
	if deadline, ok := ctx.Deadline(); ok {
		limit = deadline.Sub(now) / 4
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	why := timeOut
	select {
	case <-p.granted:
		return nil
	case <-timer.C:
	case <-ctx.Done():
		why = cancelled
	}
	now = p.f.cfg.Now()
	if !p.schema.level.abandon(p, why, now) {
		return nil
	}
	p.schema.series.wait.rejected.Observe(now.Sub(p.arrived).Seconds())
	return p.reject(why)
}

// FreeSeat releases the seats, if the request holds any. Call it once the response is
// computed: its transfer needs no seat. It may be called more than once.
func (p *Place) FreeSeat() {
	l := p.level
	if l == nil {
		return
	}
	now := p.f.cfg.Now()
	p.level = nil
	l.free(p, now)
	p.schema.series.ended(p.width, now.Sub(p.started), p.req.ReadOnly())
	if p.flow.kind != longRunning {
		p.f.counts[p.flow.kind].Add(-1)
	}
}

// End releases the seats and the place. Call it exactly once after a Begin without
// error, when the request has ended.
func (p *Place) End() {
	p.FreeSeat()
	if p.counted {
		p.counted = false
		p.f.leave(p.flow)
	}
}

// reject counts a rejected request and returns its 429 error.
func (p *Place) reject(why reason) error {
	p.schema.series.rejected[why].Inc()
	return apierrors.NewTooManyRequests("Too many requests, please try again later.", 1)
}
