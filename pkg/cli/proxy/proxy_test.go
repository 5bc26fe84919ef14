package proxy_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podium/pkg/cli/proxy"
)

func defaults(t *testing.T) *proxy.Filter {
	t.Helper()
	parse := func(text string) proxy.Expressions {
		e, err := proxy.ParseExpressions(text)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	return &proxy.Filter{
		AcceptHosts: parse(proxy.DefaultAcceptHosts), AcceptPaths: parse(proxy.DefaultAcceptPaths),
		RejectPaths: parse(proxy.DefaultRejectPaths), RejectMethods: parse(proxy.DefaultRejectMethods),
	}
}

func TestDefaultFilter(t *testing.T) {
	for _, row := range []struct {
		reason, method, host, path string
		want                       bool
	}{
		{"reads are accepted", "GET", "localhost:8001", "/api/v1/pods", true},
		{"writes are accepted", "DELETE", "127.0.0.1:8001", "/apis/apps/v1/deployments", true},
		{"a host without a port is accepted", "GET", "localhost", "/", true},
		{"IPv6's loopback is accepted", "GET", "[::1]:8001", "/", true},
		{"a DNS name that a web site points to this machine is refused", "GET", "evil.example:8001", "/api", false},
		{"exec runs commands", "POST", "localhost:8001", "/api/v1/namespaces/a/pods/b/exec", false},
		{"attach types into them", "GET", "localhost:8001", "/api/v1/namespaces/a/pods/b/attach", false},
	} {
		if got := defaults(t).Accepts(row.method, row.host, row.path); got != row.want {
			t.Errorf("%s: %s %s%s: %v, want %v", row.reason, row.method, row.host, row.path, got, row.want)
		}
	}
	if _, err := proxy.ParseExpressions("^a$,["); err == nil {
		t.Error("an expression that does not compile is no error")
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The API gets the path without the prefix, also escaped; a prefix of the API itself
// stays.
func TestPrefixes(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "page.html"), []byte("page"), 0o600); err != nil {
		t.Fatal(err)
	}
	api := tripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusTeapot, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("api " + r.URL.EscapedPath()))}, nil
	})
	for _, row := range []struct {
		reason, prefix, path string
		code                 int
		want                 string
	}{
		{"the default", "/", "/api/v1/x?y=z", http.StatusTeapot, "api /api/v1/x"},
		{"a prefix is stripped", "/k8s", "/k8s/api/v1", http.StatusTeapot, "api /api/v1"},
		{"escapes stay", "/k8s/", "/k8s/a%2Fb", http.StatusTeapot, "api /a%2Fb"},
		{"a part of the API", "/apis/apps/", "/apis/apps/v1", http.StatusTeapot, "api /apis/apps/v1"},
		{"outside the prefix is nothing", "/k8s/", "/api", http.StatusNotFound, ""},
		{"files", "/", "/static/page.html", http.StatusOK, "page"},
		{"files below the API's prefix", "/", "/static/none", http.StatusNotFound, ""},
		{"an escaped exec is refused", "/", "/api/v1/namespaces/a/pods/b/ex%65c", http.StatusForbidden, ""},
	} {
		h := proxy.NewHandler(proxy.Config{API: api, APIPrefix: row.prefix, Filter: defaults(t), Files: dir, FilesPrefix: "static", Log: log.New(io.Discard, "", 0)})
		r := httptest.NewRequest(http.MethodGet, row.path, nil)
		r.Host = "localhost:1"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != row.code || (row.want != "" && w.Body.String() != row.want) {
			t.Errorf("%s: GET %s: %d %q, want %d %q", row.reason, row.path, w.Code, w.Body, row.code, row.want)
		}
	}
}
