package server

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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
	// Authorize decides over a user, by the node subresource the path belongs
	// to ("proxy", "log", "stats", "metrics", "pods", "healthz"). nil: nobody.
	Authorize func(user User, verb, subresource string) bool
	Registry  *prometheus.Registry // for /metrics; nil: 404
	Health    http.Handler         // /healthz and below; nil: plain "ok"
	RootDir   string               // for file system statistics
	Log       *slog.Logger         // nil: discarded
	Now       func() time.Time     // nil: time.Now
}

// New is the handler to be served over TLS with client certificates verified
// (r.TLS.VerifiedChains); without one a request is answered 401.
func New(cfg Config) http.Handler { return http.NotFoundHandler() }
