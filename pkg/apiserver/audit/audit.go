package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// Config configures an Auditor.
type Config struct {
	Policy   *Policy
	Scheme   *scheme.Scheme // decodes bodies
	Backends []BackendConfig
	Now      func() time.Time      // optional: time.Now
	Registry prometheus.Registerer // optional
	Log      *slog.Logger
}

// Auditor records requests. It is safe for concurrent use. A nil *Auditor
// records nothing.
type Auditor struct {
	policy  *Policy
	now     func() time.Time
	queues  []*queue
	metrics *metrics

	suppressor *suppressor
}

// New returns an Auditor. In mode batch, events are written only while Run
// runs.
func New(cfg Config) *Auditor {
	a := &Auditor{policy: cfg.Policy, now: cfg.Now, metrics: newMetrics(cfg.Registry), suppressor: newSuppressor()}
	if a.now == nil {
		a.now = time.Now
	}
	for _, b := range cfg.Backends {
		a.queues = append(a.queues, newQueue(b, &bodies{cfg.Scheme}, a.metrics, cfg.Log.With("audit", b.Name)))
	}
	return a
}

// Run writes queued events to the backends. It blocks until ctx ends and the
// queues are empty, for at most a few seconds more, and returns ctx's error.
func (a *Auditor) Run(ctx context.Context) error {
	writing, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var all sync.WaitGroup
	for _, q := range a.queues {
		all.Go(func() { q.run(writing) })
	}
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		a.reportSuppressed()
	}
	end()
	all.Wait()
	return ctx.Err()
}

// Trail is the record of one request in progress. The methods of a nil *Trail
// do nothing.
type Trail struct {
	a        *Auditor
	decision decision
	req      *request.Request
	event    Event // the fields that all stages have in common
	closed   bool  // bodies must not be recorded

	mu       sync.Mutex
	code     int
	status   *metav1.Status // of a failed request
	response *body
}

// ErrRejected is returned in mode blocking-strict for a request that must be
// refused because it could not be recorded.
var ErrRejected = errors.New("failed to store audit event")

// Begin starts the record of a request; user is nil if it is not authenticated.
// Call it before any other decision about the request. It returns a nil Trail
// if the request is not recorded, and ErrRejected if it must be refused. If the
// policy asks for bodies, it replaces r.Body by a reader that copies what is
// read.
func (a *Auditor) Begin(r *http.Request, req *request.Request, user *request.User, began time.Time) (*Trail, error) {
	if a == nil {
		return nil, nil
	}
	d := a.policy.decide(user, &req.Info)
	a.metrics.level(d.level)
	if d.level == LevelNone {
		return nil, nil
	}
	if unauthenticated(user) && !a.suppressor.admit(began) {
		a.metrics.suppressed.Inc()
		return nil, nil
	}
	t := &Trail{a: a, decision: d, req: req, closed: !req.IsResource || confidential(&req.Info)}
	if confidential(&req.Info) {
		t.decision.level = LevelMetadata
	}
	t.event = Event{
		Level: t.decision.level, AuditID: req.AuditID, RequestURI: shorten(requestURI(r), maxText), User: user, Info: &req.Info,
		UserAgent: shorten(r.UserAgent(), maxUserAgent), Received: began, omitManagedFields: d.omitManagedFields,
		from: from{forwarded: addressHeader(r, "X-Forwarded-For"), real: addressHeader(r, "X-Real-Ip"), remote: r.RemoteAddr},
	}
	t.watchBodies(r)
	if user == nil {
		return t, nil // as upstream: recorded when the response starts
	}
	return t, t.send(StageRequestReceived)
}

// watchBodies arranges for the bodies to be copied if the policy asks for them.
// Streams have none.
func (t *Trail) watchBodies(r *http.Request) {
	if t.closed || t.req.LongRunning() || t.decision.level == LevelMetadata {
		return
	}
	if r.Body != nil && r.Body != http.NoBody {
		t.event.request = &body{media: r.Header.Get("Content-Type")}
		r.Body = reader{r.Body, t.event.request}
	}
	if t.decision.level == LevelRequestResponse {
		t.response = &body{}
		r.Header.Del("Accept-Encoding") // so that the copy is not compressed
	}
}

// Decided records the authorizer's decision.
func (t *Trail) Decided(allowed bool, reason string) {
	if t == nil {
		return
	}
	t.event.Decision, t.event.Reason = "forbid", reason
	if allowed {
		t.event.Decision = "allow"
	}
}

// Failed records the error Status of the response.
func (t *Trail) Failed(status *metav1.Status) {
	if t == nil {
		return
	}
	known := *status
	if t.closed && t.req.IsResource { // the message may quote the request's body
		known = metav1.Status{Status: status.Status, Reason: status.Reason, Code: status.Code}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status = &known
}

// Started records that the response begins. For a long-running request this is
// a stage of its own.
func (t *Trail) Started(code int, h http.Header) {
	if t == nil {
		return
	}
	t.mu.Lock()
	if t.response != nil {
		t.response.media = h.Get("Content-Type")
	}
	first := t.code == 0
	t.code = code
	t.mu.Unlock()
	if first && t.req.LongRunning() {
		t.send(StageResponseStarted)
	}
}

// Sent copies a piece of the response body if the policy asks for it.
func (t *Trail) Sent(p []byte) {
	if t != nil && t.response != nil {
		t.response.keep(p)
	}
}

// Ended records that the response is complete; code is 0 if nothing was
// written.
func (t *Trail) Ended(code int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.code = code
	if code == 0 {
		t.code, t.status = http.StatusOK, &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusOK, Message: "Connection closed early"}
	}
	t.mu.Unlock()
	if t.event.User == nil {
		t.send(StageResponseStarted) // as upstream for unauthenticated requests
		return
	}
	t.event.response = t.response
	t.send(StageResponseComplete)
}

// Panicked records that the handler panicked.
func (t *Trail) Panicked() {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.status = &metav1.Status{
		Code: http.StatusInternalServerError, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError,
		Message: "APIServer panic'd", // without the panic's value, which may contain anything
	}
	t.mu.Unlock()
	t.send(StagePanic)
}

// send queues the event of a stage, unless the policy omits that stage.
func (t *Trail) send(stage Stage) error {
	if t.decision.omits(stage) {
		return nil
	}
	ev := &t.event
	if stage != StageResponseComplete { // the last stage: nothing changes the event after it
		early := t.event
		ev = &early
	}
	ev.Stage, ev.At = stage, t.a.now()
	if u := t.req.User; u != nil && u != ev.User {
		ev.Impersonated, ev.Constraint = u, t.req.Constraint
	}
	if stage == StageRequestReceived {
		ev.request = nil
	} else {
		ev.Object, ev.Annotations = t.req.Reference(), t.req.Annotations()
	}
	t.mu.Lock()
	ev.Code, ev.Status = t.code, t.status
	t.mu.Unlock()
	return t.a.queue(ev)
}

// queue passes an event to the backends. It returns an error, ErrRejected, only
// if a backend in mode blocking-strict could not store the event of the first
// stage.
func (a *Auditor) queue(e *Event) error {
	a.metrics.events.Inc()
	var errs []error
	for _, q := range a.queues {
		if err := q.send(e); err != nil && q.strict && e.Stage == StageRequestReceived {
			errs = append(errs, fmt.Errorf("%w: %w", ErrRejected, err))
		}
	}
	if len(errs) > 0 {
		a.metrics.rejected.Inc()
	}
	return errors.Join(errs...)
}
