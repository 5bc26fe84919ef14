package simulation

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/scheme"
)

// wire is the connection of one life of a daemon to the API servers, with injected faults.
type wire struct {
	w    *world
	life *life
	next *http.Transport
}

func (t *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.life.dead() {
		return nil, errDead
	}
	what := sort(r)
	if t.w.lie != nil {
		if resp := t.w.lie(t, r, what); resp != nil {
			return resp, nil
		}
	}
	pause(r.Context(), t.w.plan.delay(t.life.who, what))
	switch t.w.plan.pick(t.life.who, what, t.w.plan.ratesOf(r), unfit(r)...) {
	case crashBefore:
		t.life.die()
		return nil, errDead
	case lost:
		return nil, errReset
	case refused:
		return answer(t.w.scheme, r, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
	case broken:
		return answer(t.w.scheme, r, http.StatusInternalServerError, metav1.StatusReasonInternalError)
	case conflict:
		return answer(t.w.scheme, r, http.StatusConflict, metav1.StatusReasonConflict)
	case crashAfter:
		t.done(r)
		t.life.die()
		return nil, errDead
	case unheard:
		t.done(r)
		return nil, errReset
	}
	resp, err := t.next.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusForbidden {
		t.forbidden(r, resp)
	}
	if err == nil && isWatch(r) {
		resp.Body = &laggard{ReadCloser: resp.Body, t: t, what: what}
	}
	return resp, err
}

// rolesWithin is when a new cluster has its default roles at the latest.
const rolesWithin = 2 * time.Minute

// forbidden records a problem: a daemon lacks a permission. It is not a problem before there are
// roles, nor if an API server has not yet seen the pod on whose behalf a kubelet asks.
func (t *wire) forbidden(r *http.Request, resp *http.Response) {
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if err == nil && time.Since(t.w.began) > rolesWithin && bytes.Contains(body, []byte(" cannot ")) && !bytes.Contains(body, []byte("no relationship found")) {
		t.w.problem("%s may not %s %s: %s", t.life.who, r.Method, r.URL.Path, body)
	}
}

// done sends a request whose response is lost.
func (t *wire) done(r *http.Request) {
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" }

func (p *plan) ratesOf(r *http.Request) map[fault]int {
	if r.Method == http.MethodGet {
		return p.rates.read
	}
	return p.rates.request
}

// unfit returns the faults that would be wrong answers: a 409 to a POST means that the object
// exists, to a DELETE that it is another object.
func unfit(r *http.Request) []fault {
	if r.Method == http.MethodPost || r.Method == http.MethodDelete {
		return []fault{conflict}
	}
	return nil
}

// sort returns the sort of a request: the method and the resource, without names.
func sort(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	what := parts[0]
	if len(parts) > 2 {
		what += "/" + parts[2]
	}
	method := r.Method
	switch {
	case isWatch(r):
		method = "WATCH"
	case method == http.MethodGet && len(parts) == 1:
		method = "LIST"
	}
	return method + " " + what
}

// answer returns a response with a Status that no server has sent.
func answer(s *scheme.Scheme, r *http.Request, code int, reason metav1.StatusReason) (*http.Response, error) {
	status := &metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "the simulation says so"}
	body, err := s.Encode(status, scheme.JSON)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	h := http.Header{"Content-Type": {scheme.JSON}}
	if code == http.StatusTooManyRequests {
		h.Set("Retry-After", "1")
	}
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}, nil
}

// laggard is a watch whose events arrive late, or that breaks in the middle of one.
type laggard struct {
	io.ReadCloser
	t    *wire
	what string
	cut  bool
}

func (l *laggard) Read(p []byte) (int, error) {
	if l.cut {
		return 0, errReset
	}
	n, err := l.ReadCloser.Read(p)
	late, cut := l.t.w.plan.lag(l.t.life.who, l.what)
	pause(l.t.life.ctx, late)
	if cut && err == nil {
		l.cut = true
		l.Close()
		return n / 2, nil
	}
	return n, err
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
