package cli_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/cli"
	"podium/pkg/client/kubeconfig"
)

// front is an API server behind answer, which may answer a request itself.
type front struct {
	t      *testing.T
	config string // kubeconfig
	mu     sync.Mutex
	answer func(w http.ResponseWriter, r *http.Request) bool // called with mu held; nil: none
}

func newFront(t *testing.T) *front {
	t.Helper()
	address, stop := serve(t)
	t.Cleanup(stop)
	f := &front{t: t, config: filepath.Join(t.TempDir(), "kubeconfig")}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
	proxy.FlushInterval = -1 // watches
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		answered := f.answer != nil && f.answer(w, r)
		f.mu.Unlock()
		if !answered {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	if err := kubeconfig.New("test", kubeconfig.Cluster{Server: server.URL}, kubeconfig.User{Token: "secret"}).Write(f.config, 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

// intercept sets answer.
func (f *front) intercept(answer func(w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// run runs podium and returns its output and exit code.
func (f *front) run(args ...string) (out, errs string, code int) {
	f.t.Helper()
	var stdout, stderr bytes.Buffer
	code = cli.Main(f.t.Context(), cli.IO{In: strings.NewReader(""), Out: &stdout, Err: &stderr}, append([]string{"--kubeconfig", f.config}, args...))
	return stdout.String(), stderr.String(), code
}

// must runs podium, which must succeed.
func (f *front) must(args ...string) {
	f.t.Helper()
	if out, errs, code := f.run(args...); code != 0 {
		f.t.Fatalf("podium %v: exit code %d\n%s%s", args, code, out, errs)
	}
}

// refuse answers with a Status.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "it is " + string(reason),
	})
	return true
}
