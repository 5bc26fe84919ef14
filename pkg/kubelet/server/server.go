package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/client/access"
	"podium/pkg/client/streams"
	"podium/pkg/daemon"
	"podium/pkg/kubelet/stats"
)

// Access authenticates clients and authorizes requests; *access.Delegate implements it.
type Access interface {
	// Authenticate returns the user of a request, or an error.
	Authenticate(r *http.Request) (*access.User, error)
	// MayResource reports whether a user may access an object of the API, here a
	// subresource of the node.
	MayResource(ctx context.Context, u *access.User, what authorizationv1.ResourceAttributes) (bool, error)
}

// Config holds the dependencies of the handlers.
type Config struct {
	NodeName string
	// Pods returns every pod of the kubelet with its latest status, from which
	// the container ids are taken. The server does not modify the pods.
	Pods    func() []*corev1.Pod
	Runtime runtimeapi.RuntimeServiceClient
	Volume  func(pod types.UID, volume string) (stats.Filesystem, bool) // statistics of volumes; nil: none
	Access  Access                                                      // nil: every request is rejected
	// Settings is the configuration for /configz; nil: 404.
	Settings map[string]any
	// Streaming reaches the runtime's streaming server; nil: by TCP.
	Streaming http.RoundTripper

	Health   http.Handler         // /healthz, /livez, /readyz, without authorization; nil: plain "ok"
	Registry *prometheus.Registry // for /metrics; nil: 404
	Probes   *prometheus.Registry // for /metrics/probes; nil: 404
	NodeLogs fs.FS                // for /logs/, e.g. logs.FS of /var/log; nil: 405
	Profiles http.Handler         // for daemon.ProfilesPath; nil: 404
	LogQuery http.Handler         // for /logs/?query=…; nil: the parameter has no meaning
	LogsDir  string               // --pod-logs-dir: the directory of containers' logs
	RootDir  string               // --root-dir: the statistics report its file system; checkpoints are below it
	ProcDir  string               // "": /proc
	Log      *slog.Logger         // nil: discarded
	Now      func() time.Time     // nil: time.Now
}

// server implements the handlers.
type server struct {
	Config
	stats *stats.Collector
}

// New returns the handler to serve over TLS. It authorizes every request.
func New(cfg Config) http.Handler {
	if cfg.Access == nil {
		cfg.Access = denyAll{}
	}
	if cfg.Streaming == nil {
		cfg.Streaming = &http.Transport{DisableKeepAlives: true} // one connection per stream; no proxy, since the server is local
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
		NodeName: cfg.NodeName, Runtime: cfg.Runtime, Pods: cfg.Pods, Now: cfg.Now, Volume: cfg.Volume,
		Machine: stats.Machine{Proc: cfg.ProcDir, RootDir: cfg.RootDir},
	}}
	return s.routes()
}

// routes registers upstream's paths with the subresources of nodes that they need.
// Access to the subresource proxy includes most of the others.
func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, need need, h func(w http.ResponseWriter, r *http.Request) error) {
		mux.Handle(pattern, s.guard(need, h))
	}
	page := func(h http.Handler) func(w http.ResponseWriter, r *http.Request) error {
		return func(w http.ResponseWriter, r *http.Request) error {
			h.ServeHTTP(w, r)
			return nil
		}
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		handle(path, need{"healthz", "proxy"}, page(s.Health))
		handle(path+"/", need{"healthz", "proxy"}, page(s.Health))
	}
	handle("GET /pods", need{"pods", "proxy"}, s.pods)
	handle("GET /runningpods/{$}", need{"pods", "proxy"}, s.runningPods)
	handle("GET /containerLogs/{namespace}/{pod}/{container}", need{"proxy"}, s.containerLogs)
	handle("POST /checkpoint/{namespace}/{pod}/{container}", need{"checkpoint"}, s.checkpoint)
	for _, method := range []string{"GET", "POST"} {
		handle(method+" /exec/{namespace}/{pod}/{container}", need{"proxy"}, s.exec)
		handle(method+" /exec/{namespace}/{pod}/{uid}/{container}", need{"proxy"}, s.exec)
		handle(method+" /attach/{namespace}/{pod}/{container}", need{"proxy"}, s.attach)
		handle(method+" /attach/{namespace}/{pod}/{uid}/{container}", need{"proxy"}, s.attach)
		handle(method+" /portForward/{namespace}/{pod}", need{"proxy"}, s.portForward)
		handle(method+" /portForward/{namespace}/{pod}/{uid}", need{"proxy"}, s.portForward)
	}
	if s.Settings != nil {
		handle("GET /configz", need{"configz", "proxy"}, func(w http.ResponseWriter, _ *http.Request) error {
			return writeJSON(w, map[string]any{"kubeletconfig": s.Settings})
		})
	}
	handle("GET /stats/summary", need{"stats"}, s.summary)
	handle("GET /metrics/resource", need{"metrics"}, s.resourceMetrics)
	handle("GET /metrics/cadvisor", need{"metrics"}, s.containerMetrics)
	if s.Registry != nil {
		handle("GET /metrics", need{"metrics"}, page(daemon.MetricsHandler(s.Registry)))
	}
	if s.Probes != nil {
		handle("GET /metrics/probes", need{"metrics"}, page(daemon.MetricsHandler(s.Probes)))
	}
	if s.Profiles != nil {
		handle(daemon.ProfilesPath, need{"proxy"}, page(s.Profiles))
	}
	nodeLogs := http.Handler(http.HandlerFunc(logsDisabled))
	if s.NodeLogs != nil {
		nodeLogs = s.queries(http.StripPrefix("/logs/", http.FileServerFS(s.NodeLogs)))
	}
	handle("GET /logs/", need{"log"}, page(nodeLogs))
	mux.Handle("/", s.guard(need{"proxy"}, page(http.NotFoundHandler()))) // unauthorized clients do not learn which paths exist
	return mux
}

// verbOf returns the API verb of a request. Exec, attach and port-forward need
// create even as GET requests (WebSocket), so that read access is not enough.
func verbOf(r *http.Request) string {
	for _, stream := range []string{"/exec/", "/attach/", "/portForward/"} {
		if strings.HasPrefix(r.URL.Path, stream) {
			return "create"
		}
	}
	switch r.Method {
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

// failure is an error with an HTTP status code.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

func failf(code int, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

// fail writes the error as plain text, as clients of a kubelet expect.
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
