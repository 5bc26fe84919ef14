package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/client/streams"
	"podium/pkg/daemon"
	"podium/pkg/kubelet/stats"
)

// User is who a verified client certificate names.
type User struct {
	Name   string   // common name
	Groups []string // organizations
}

// Config is what the handlers work with.
type Config struct {
	NodeName string
	// Pods lists every pod the kubelet knows, each with its present status
	// (container ids are taken from it). The objects are not modified.
	Pods    func() []*corev1.Pod
	Runtime runtimeapi.RuntimeServiceClient
	// Authorize decides over a user, by verb ("get", "create", ...) and the
	// node subresource the path belongs to: "proxy", "log", "stats",
	// "metrics" or "pods". nil: nobody gets anything but health.
	Authorize func(user User, verb, subresource string) bool
	// Streaming is how the runtime's streaming server is reached; nil: by TCP.
	Streaming http.RoundTripper

	Health   http.Handler         // /healthz, /livez, /readyz, for everyone; nil: plain "ok"
	Registry *prometheus.Registry // for /metrics; nil: 404
	NodeLogs fs.FS                // for /logs/, e.g. of os.OpenRoot("/var/log"); nil: 404
	LogsDir  string               // --pod-logs-dir: containers' logs are below it
	RootDir  string               // --root-dir: whose file system the statistics tell of
	ProcDir  string               // "": /proc
	Log      *slog.Logger         // nil: discarded
	Now      func() time.Time     // nil: time.Now
}

// server has the handlers.
type server struct {
	Config
	stats *stats.Collector
}

// New is the handler to be served over TLS, with client certificates verified
// against the cluster's CA: a request without one gets health and 401.
func New(cfg Config) http.Handler {
	if cfg.Authorize == nil {
		cfg.Authorize = func(User, string, string) bool { return false }
	}
	if cfg.Streaming == nil {
		cfg.Streaming = &http.Transport{DisableKeepAlives: true} // a connection a stream; no proxy: it is this machine
	}
	if cfg.Health == nil {
		cfg.Health = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	}
	if cfg.ProcDir == "" {
		cfg.ProcDir = "/proc"
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &server{Config: cfg, stats: &stats.Collector{
		NodeName: cfg.NodeName, Runtime: cfg.Runtime, Pods: cfg.Pods, Now: cfg.Now,
		Machine: stats.Machine{Proc: cfg.ProcDir, RootDir: cfg.RootDir},
	}}
	return s.routes()
}

// routes are upstream's paths.
func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"/healthz", "/healthz/", "/livez", "/livez/", "/readyz", "/readyz/"} {
		mux.Handle(path, s.Health)
	}
	handle := func(pattern, subresource string, h func(w http.ResponseWriter, r *http.Request) error) {
		mux.Handle(pattern, s.guard(subresource, h))
	}
	handle("GET /pods", "pods", s.pods)
	handle("GET /runningpods/{$}", "pods", s.runningPods)
	handle("GET /containerLogs/{namespace}/{pod}/{container}", "proxy", s.containerLogs)
	for _, method := range []string{"GET", "POST"} {
		handle(method+" /exec/{namespace}/{pod}/{container}", "proxy", s.exec)
		handle(method+" /exec/{namespace}/{pod}/{uid}/{container}", "proxy", s.exec)
		handle(method+" /attach/{namespace}/{pod}/{container}", "proxy", s.attach)
		handle(method+" /attach/{namespace}/{pod}/{uid}/{container}", "proxy", s.attach)
		handle(method+" /portForward/{namespace}/{pod}", "proxy", s.portForward)
		handle(method+" /portForward/{namespace}/{pod}/{uid}", "proxy", s.portForward)
	}
	handle("GET /stats/summary", "stats", s.summary)
	handle("GET /metrics/resource", "metrics", s.resourceMetrics)
	handle("GET /metrics/cadvisor", "metrics", s.containerMetrics)
	if s.Registry != nil {
		metrics := daemon.MetricsHandler(s.Registry)
		handle("GET /metrics", "metrics", func(w http.ResponseWriter, r *http.Request) error {
			metrics.ServeHTTP(w, r)
			return nil
		})
	}
	if s.NodeLogs != nil {
		files := http.StripPrefix("/logs/", http.FileServerFS(s.NodeLogs))
		handle("GET /logs/", "log", func(w http.ResponseWriter, r *http.Request) error {
			files.ServeHTTP(w, r)
			return nil
		})
	}
	return mux
}

// guard lets those through who may, and answers with a handler's error.
func (s *server) guard(subresource string, h func(w http.ResponseWriter, r *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, ok := identify(r)
		if !ok {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		verb := verbOf(r.Method)
		if !s.Authorize(user, verb, subresource) {
			http.Error(w, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource=%s)", user.Name, verb, subresource), http.StatusForbidden)
			return
		}
		if err := h(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

// identify reads the user from the certificate that TLS has verified.
func identify(r *http.Request) (User, bool) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return User{}, false
	}
	subject := r.TLS.VerifiedChains[0][0].Subject
	return User{Name: subject.CommonName, Groups: subject.Organization}, subject.CommonName != ""
}

func verbOf(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodDelete:
		return "delete"
	case http.MethodPatch:
		return "patch"
	}
	return "get"
}

// failure is an error with its status code.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

func failf(code int, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

// fail answers in plain text, as clients of a kubelet expect.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	code := http.StatusInternalServerError
	var f *failure
	var bad *streams.RequestError
	switch {
	case errors.As(err, &f):
		code = f.code
	case errors.As(err, &bad):
		code = http.StatusBadRequest
	}
	s.Log.Debug("request failed", "path", r.URL.Path, "code", code, "err", err)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	fmt.Fprint(w, err.Error())
}

func writeJSON(w http.ResponseWriter, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(data)
	return nil
}
