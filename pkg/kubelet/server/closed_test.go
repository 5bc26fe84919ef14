package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client/access"
	"podium/pkg/daemon"
)

// anyone authorizes every request, as for an administrator.
type anyone struct{}

func (anyone) Authenticate(*http.Request) (*access.User, error) {
	return &access.User{Name: "admin"}, nil
}

func (anyone) MayResource(context.Context, *access.User, authorizationv1.ResourceAttributes) (bool, error) {
	return true, nil
}

// With profiles, the server has their pages, for those with access to all pages.
func TestProfiles(t *testing.T) {
	for _, tc := range []struct {
		access Access
		code   int
	}{{anyone{}, http.StatusOK}, {nil, http.StatusUnauthorized}} {
		h := New(Config{Access: tc.access, Profiles: daemon.Profiles(), Pods: func() []*corev1.Pod { return nil }})
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline"} {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
			if rec.Code != tc.code {
				t.Errorf("%s: %d %.100s, want %d", path, rec.Code, rec.Body, tc.code)
			}
		}
	}
}

// By default the server has no debug pages. It does not run commands for a plain GET, not even
// for an administrator.
func TestNoDebugPages(t *testing.T) {
	h := New(Config{Access: anyone{}, Pods: func() []*corev1.Pod { return nil }})
	for _, tc := range []struct {
		reason, method, path string
		code                 int
	}{
		{"profiles show memory", "GET", "/debug/pprof/", 404},
		{"and a trace slows the node down", "GET", "/debug/pprof/profile?seconds=60", 404},
		{"flags may be changed by this", "PUT", "/debug/flags/v", 404},
		{"the configuration names files", "GET", "/configz", 404},
		{"a command by a link", "GET", "/run/ns/p/c?cmd=id", 404},
		{"or by a form", "POST", "/run/ns/p/c?cmd=id", 404},
		{"exec is a stream; a browser's GET starts nothing", "GET", "/exec/ns/p/c?command=id&output=1", 400},
		{"nor does its POST", "POST", "/exec/ns/p/c?command=id&output=1", 400},
		{"the runtime's own pages", "GET", "/cri/exec/x", 404},
		{"a checkpoint by a link", "GET", "/checkpoint/ns/p/c", 404},
		{"no logs of the node unless there are some", "GET", "/logs/", 405},
	} {
		r := httptest.NewRequest(tc.method, tc.path, nil)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if rec.Code != tc.code {
			t.Errorf("%s %s: %d %s, want %d; %s", tc.method, tc.path, rec.Code, rec.Body, tc.code, tc.reason)
		}
		if rec.Code == http.StatusOK {
			t.Errorf("%s %s is open", tc.method, tc.path)
		}
	}
}
