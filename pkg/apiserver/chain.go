package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/budget"
	"podium/pkg/apiserver/cbor"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/daemon"
)

// Handler returns the handler that serves all requests. It needs Run, which
// keeps the watch cache current.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// serve runs a request through the chain: audit, authentication, impersonation,
// authorization, flow control, then the endpoint.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	growStack()
	began := s.cfg.Now()
	req := request.New(request.Parse(r), w.Header())
	req.Upgrade = s.remotes.Streams(r, &req.Info)
	rec := &recorder{ResponseWriter: w, began: began, req: req, stall: s.stall()}
	req.AuditID = auditID(r)
	h := w.Header()
	h["Audit-Id"] = []string{req.AuditID}
	h["Cache-Control"] = []string{"no-cache, private"}

	ctx := request.With(r.Context(), req)
	if !req.LongRunning() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout(r))
		defer cancel()
	}
	r = r.WithContext(ctx)
	defer s.finish(rec, r, req, began)
	if req.LongRunning() {
		defer s.unbounded(rec, r)()
	}
	if err := s.admit(rec, r, req); err != nil {
		wire.WriteError(rec, r, err)
	}
}

// auditID returns the request's audit ID: the one that the client sent, if it
// is at most 64 bytes, or a new one.
func auditID(r *http.Request) string {
	if id := r.Header.Get("Audit-Id"); id != "" && len(id) <= 64 {
		return id
	}
	return uuid.NewString()
}

// timeout returns the time limit of the request: the query parameter timeout,
// at most RequestTimeout.
func (s *Server) timeout(r *http.Request) time.Duration {
	if r.URL.RawQuery != "" {
		if d, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && d > 0 {
			return min(d, s.cfg.RequestTimeout)
		}
	}
	return s.cfg.RequestTimeout
}

// finish completes the audit record and the metrics of a request. It must be
// deferred: it recovers a panic of the handler and answers it with 500, or
// aborts the response if it has begun.
func (s *Server) finish(rec *recorder, r *http.Request, req *request.Request, began time.Time) {
	if p := recover(); p != nil {
		rec.trail.Panicked()
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(p)
		}
		s.cfg.Log.Error("panic while serving", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
		if rec.code != 0 {
			panic(http.ErrAbortHandler) // the response has begun: only aborting it shows that it is wrong
		}
		wire.WriteError(rec, r, apierrors.NewInternalError(fmt.Errorf("this request caused apiserver to panic. Look in the logs for details")))
	} else {
		rec.trail.Ended(rec.code)
	}
	s.metrics.observe(req, r, rec.code, rec.size, s.cfg.Now().Sub(began))
}

// admit authenticates and authorizes the request, then serves it. The error it
// returns has not been written yet.
func (s *Server) admit(rec *recorder, r *http.Request, req *request.Request) error {
	again := s.recheck(r, req)
	user, err := s.cfg.Authenticator.Authenticate(r)
	var unrecorded error
	if rec.trail, unrecorded = s.cfg.Audit.Begin(r, req, user, rec.began); unrecorded != nil {
		return apierrors.NewInternalError(unrecorded)
	}
	if user == nil {
		if err != nil {
			s.cfg.Log.Debug("unknown user", "path", r.URL.Path, "from", r.RemoteAddr, "err", err)
		}
		rec.Header().Set("WWW-Authenticate", `Bearer realm="kubernetes"`)
		return apierrors.NewUnauthorized("Unauthorized")
	}
	if req.Verb == "" {
		return methodNotAllowed(rec, r)
	}
	if user, req.Constraint, err = s.impersonated(r, user, &req.Info); err != nil {
		return err
	}
	req.User = user
	asked, decision, reason := s.authorize(r.Context(), user, &req.Info)
	rec.trail.Decided(decision == authz.Allow, reason)
	if decision != authz.Allow {
		return s.refusal(user, asked, reason)
	}
	r, stop := again.begin(r)
	defer stop()
	return s.work(rec, r, req)
}

// work serves an authorized request once flow control admits it. It reads the
// body before it takes a seat; see fetchBody.
func (s *Server) work(rec *recorder, r *http.Request, req *request.Request) error {
	place := &rec.place
	err := s.flow.Begin(place, req)
	place.SetHeaders(rec.Header())
	if err != nil {
		s.metrics.dropped(req)
		return err
	}
	defer place.End()
	defer req.Release()
	s.limits.give(req, place.Ordinary())
	if err := s.fetchBody(rec, r, req); err != nil {
		return err
	}
	if err := place.TakeSeat(r.Context(), s.width(r, req)); err != nil {
		s.metrics.dropped(req)
		return err
	}
	s.page(rec, r, req)
	return nil
}

// authorize decides on info and, if info would run a process through a GET, on
// the corresponding create. asked is the one that was decided last.
func (s *Server) authorize(ctx context.Context, user *request.User, info *request.Info) (asked *request.Info, d authz.Decision, reason string) {
	d, reason = s.cfg.Authorizer.Authorize(ctx, user, info)
	if run := running(info); run != nil && d == authz.Allow {
		info = run
		d, reason = s.cfg.Authorizer.Authorize(ctx, user, info)
	}
	return info, d, reason
}

// methodNotAllowed returns the 405 error for an unsupported method. It is not
// subject to authorization, so no rule can allow such a request.
func methodNotAllowed(w http.ResponseWriter, r *http.Request) error {
	allow := "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"
	if request.KnownMethod(r.Method) { // a path below /watch/
		allow = "GET, HEAD"
	}
	w.Header().Set("Allow", allow)
	return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", schema.GroupResource{}, "", "", 0, false)
}

// fetchBody reads the body before the request takes a seat, so that a slow
// client does not occupy one.
func (s *Server) fetchBody(rec *recorder, r *http.Request, req *request.Request) error {
	if !req.IsResource || req.LongRunning() || r.ContentLength == 0 {
		return nil
	}
	size := r.ContentLength
	if size < 0 {
		size = wire.MaxBody
	}
	if size > budget.SmallBody && size <= wire.MaxBody {
		release, err := s.limits.bodies.Acquire(r.Context(), req.Flow, size)
		if err != nil {
			return err
		}
		req.Hold(release)
	}
	return wire.FetchBody(rec, r)
}

// page dispatches a request that has passed the chain to its handler.
func (s *Server) page(w http.ResponseWriter, r *http.Request, req *request.Request) {
	if remote := s.remotes.Serving(&req.Info); remote != nil {
		remote.ServeHTTP(w, r)
		return
	}
	switch segment := firstSegment(r.URL.Path); {
	case req.IsResource:
		cbor.Serve(w, r, s.api)
	case s.disco.Serves(r.URL.Path):
		s.disco.ServeHTTP(w, r)
	case segment == "healthz" || segment == "livez" || segment == "readyz":
		s.pages.ServeHTTP(w, r)
	case r.URL.Path == rolesPath:
		s.serveRoles(w, r, req)
	case segment == "debug" && s.cfg.Profiling && serveProfile(w, r, req):
	case strings.HasPrefix(r.URL.Path, fairnessPath):
		s.serveFairness(w, r)
	case r.URL.Path == "/metrics":
		daemon.MetricsHandler(s.cfg.Registry).ServeHTTP(w, r)
	case r.URL.Path == "/version" || r.URL.Path == "/version/":
		serveVersion(w, r)
	case r.URL.Path == request.SnapshotPath && s.cfg.Snapshot != nil:
		s.serveSnapshot(w, r)
	case segment == "openapi" && s.openapi != nil:
		s.openapi.ServeHTTP(w, r)
	case s.cfg.Authn.servesIssuer(r.URL.Path):
		s.serveIssuer(w, r)
	case r.URL.Path == "/":
		s.serveIndex(w, r)
	default:
		wire.WriteError(w, r, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "", 0, false))
	}
}

// firstSegment returns the part of path between its first and second slash.
func firstSegment(path string) string {
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			return path[1:i]
		}
	}
	return path[min(1, len(path)):]
}
