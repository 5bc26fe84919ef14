package apiserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/audit"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/daemon"
)

// Handler is the whole server: the chain and behind it every page.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// serve takes a request through the chain: note it, know its user, allow it,
// find it a place, answer it.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	began := s.cfg.Now()
	rec := &recorder{ResponseWriter: w, began: began}
	req := request.New(request.Parse(r), w.Header())
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
	if err := s.admit(rec, r, req); err != nil {
		wire.WriteError(rec, r, err)
	}
}

// auditID is the request's number in logs: the client's own, or a new one.
func auditID(r *http.Request) string {
	if id := r.Header.Get("Audit-Id"); id != "" && len(id) <= 64 {
		return id
	}
	return uuid.NewString()
}

// timeout is how long the request may take.
func (s *Server) timeout(r *http.Request) time.Duration {
	if r.URL.RawQuery != "" {
		if d, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && d > 0 {
			return min(d, s.cfg.RequestTimeout)
		}
	}
	return s.cfg.RequestTimeout
}

// finish ends every request, also one whose handler panicked.
func (s *Server) finish(rec *recorder, r *http.Request, req *request.Request, began time.Time) {
	if p := recover(); p != nil {
		rec.trail.Panicked()
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(p)
		}
		s.cfg.Log.Error("panic while serving", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
		if rec.code != 0 {
			panic(http.ErrAbortHandler) // the answer has begun: only cutting it off shows that it is wrong
		}
		wire.WriteError(rec, r, apierrors.NewInternalError(fmt.Errorf("this request caused apiserver to panic. Look in the logs for details")))
	} else {
		rec.trail.Ended(rec.code)
	}
	s.metrics.observe(req, r, rec.code, rec.size, s.cfg.Now().Sub(began))
}

// admit lets the request through to its page, or returns why not.
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
	if user, err = s.impersonated(r, user); err != nil {
		return err
	}
	req.User = user
	asked, decision, reason := s.authorize(r.Context(), user, &req.Info)
	rec.trail.Decided(decision == authz.Allow, reason)
	if decision != authz.Allow {
		return s.refusal(user, asked, reason)
	}
	done, err := s.flow.Begin(req)
	if err != nil {
		s.metrics.dropped(req)
		return err
	}
	defer done()
	r, stop := again.begin(r)
	defer stop()
	s.page(rec, r, req)
	return nil
}

// authorize asks for what the request does. asked is what was decided on last.
func (s *Server) authorize(ctx context.Context, user *request.User, info *request.Info) (asked *request.Info, d authz.Decision, reason string) {
	d, reason = s.cfg.Authorizer.Authorize(ctx, user, info)
	if run := running(info); run != nil && d == authz.Allow {
		info = run
		d, reason = s.cfg.Authorizer.Authorize(ctx, user, info)
	}
	return info, d, reason
}

// methodNotAllowed is the answer to a method that has no meaning here: it is
// never authorized, so that no rule can allow it.
func methodNotAllowed(w http.ResponseWriter, r *http.Request) error {
	allow := "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"
	if request.KnownMethod(r.Method) { // a path below /watch/
		allow = "GET, HEAD"
	}
	w.Header().Set("Allow", allow)
	return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", schema.GroupResource{}, "", "", 0, false)
}

// page answers a request that has come through the chain.
func (s *Server) page(w http.ResponseWriter, r *http.Request, req *request.Request) {
	switch segment := firstSegment(r.URL.Path); {
	case req.IsResource:
		s.api.ServeHTTP(w, r)
	case s.disco.Serves(r.URL.Path):
		s.disco.ServeHTTP(w, r)
	case segment == "healthz" || segment == "livez" || segment == "readyz":
		s.pages.ServeHTTP(w, r)
	case r.URL.Path == rolesPath:
		s.serveRoles(w, r, req)
	case segment == "debug" && s.cfg.Profiling && serveProfile(w, r, req):
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

func firstSegment(path string) string {
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			return path[1:i]
		}
	}
	return path[min(1, len(path)):]
}

// recorder notes what was answered.
type recorder struct {
	http.ResponseWriter
	code  int
	size  int64
	began time.Time
	trail *audit.Trail // nil: the request is not recorded for the audit
}

// Note is told why the request failed.
func (w *recorder) Note(status *metav1.Status) { w.trail.Failed(status) }

func (w *recorder) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
		w.trail.Started(code, w.Header())
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *recorder) Write(p []byte) (int, error) {
	if w.code == 0 {
		w.code = http.StatusOK
		w.trail.Started(w.code, w.Header())
	}
	w.size += int64(len(p))
	w.trail.Sent(p)
	return w.ResponseWriter.Write(p)
}

// Unwrap and what follows let streams through to the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) Flush() { _ = w.FlushError() }

// FlushError is Flush, and says when the connection is gone.
func (w *recorder) FlushError() error { return http.NewResponseController(w.ResponseWriter).Flush() }

func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && w.code == 0 {
		w.code = http.StatusSwitchingProtocols
		w.trail.Started(w.code, w.Header())
	}
	return conn, rw, err
}
