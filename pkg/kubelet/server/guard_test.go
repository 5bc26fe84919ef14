package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client/access"
)

// may allows the user named in a header what the name says, such as "get proxy".
type may struct{ asked []string }

func (m *may) Authenticate(r *http.Request) (*access.User, error) {
	name := r.Header.Get("User")
	if name == "" {
		return nil, access.ErrUnknown
	}
	return &access.User{Name: name}, nil
}

func (m *may) MayResource(_ context.Context, u *access.User, what authorizationv1.ResourceAttributes) (bool, error) {
	if u.Name == "broken" {
		return false, errors.New("connection refused")
	}
	m.asked = append(m.asked, what.Verb+" "+what.Resource+"/"+what.Subresource+" "+what.Name)
	return u.Name == what.Verb+" "+what.Subresource, nil
}

func TestWhatAPageNeeds(t *testing.T) {
	for _, row := range []struct {
		method, path, user string
		code               int
		asked              string
	}{
		{"GET", "/pods", "", 401, ""},
		{"GET", "/healthz", "", 401, ""},
		{"GET", "/no/such/page", "", 401, ""},
		{"GET", "/pods", "broken", 500, ""},
		{"GET", "/pods", "get pods", 200, "get nodes/pods n"},
		{"GET", "/pods", "get proxy", 200, "get nodes/pods n, get nodes/proxy n"},
		{"GET", "/pods", "get metrics", 403, "get nodes/pods n, get nodes/proxy n"},
		{"GET", "/healthz", "get healthz", 200, "get nodes/healthz n"},
		{"GET", "/livez/x", "get proxy", 200, "get nodes/healthz n, get nodes/proxy n"},
		{"GET", "/metrics", "get metrics", 200, "get nodes/metrics n"},
		{"GET", "/metrics", "get proxy", 403, "get nodes/metrics n"},
		{"GET", "/stats/summary", "get log", 403, "get nodes/stats n"},
		{"GET", "/containerLogs/ns/p/c", "get proxy", 404, "get nodes/proxy n"},
		{"GET", "/exec/ns/p/c?stdout=1", "get proxy", 403, "create nodes/proxy n"},
		{"POST", "/exec/ns/p/c?stdout=1", "create proxy", 400, "create nodes/proxy n"},
		{"POST", "/portForward/ns/p", "get proxy", 403, "create nodes/proxy n"},
		{"POST", "/checkpoint/ns/p/c", "create checkpoint", 404, "create nodes/checkpoint n"},
		{"POST", "/checkpoint/ns/p/c", "create proxy", 403, "create nodes/checkpoint n"}, // it copies memory
		{"GET", "/configz", "get configz", 200, "get nodes/configz n"},
		{"GET", "/configz", "get pods", 403, "get nodes/configz n, get nodes/proxy n"},
		{"GET", "/logs/", "get proxy", 403, "get nodes/log n"},
		{"GET", "/logs/syslog", "get log", 405, "get nodes/log n"}, // disabled
		{"GET", "/no/such/page", "get proxy", 404, "get nodes/proxy n"},
		{"DELETE", "/pods", "get proxy", 403, "delete nodes/proxy n"},
	} {
		m := &may{}
		h := New(Config{NodeName: "n", Access: m, Settings: map[string]any{"maxPods": 110}, Registry: prometheus.NewRegistry(), Pods: func() []*corev1.Pod { return nil }})
		r := httptest.NewRequest(row.method, row.path, nil)
		if row.user != "" {
			r.Header.Set("User", row.user)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := strings.Join(m.asked, ", "); w.Code != row.code || got != row.asked {
			t.Errorf("%s %s as %q: %d %q, asked %q; want %d, %q", row.method, row.path, row.user, w.Code, w.Body, got, row.code, row.asked)
		}
	}
	w := httptest.NewRecorder()
	New(Config{}).ServeHTTP(w, httptest.NewRequest("GET", "/pods", nil))
	if w.Code != 401 {
		t.Errorf("without anybody to ask: %d", w.Code)
	}
}
