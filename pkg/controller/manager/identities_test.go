package manager

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/scheme"
)

// accounts is an API with at most one service account, of which only the last token is
// valid.
type accounts struct {
	mu     sync.Mutex
	exists bool
	tokens int
	log    []string
}

func (a *accounts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	bearer := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	a.log = append(a.log, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+bearer))
	w.Header().Set("Content-Type", "application/json")
	answer := func(code int, obj any) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(obj)
	}
	status := func(code int, reason metav1.StatusReason) {
		answer(code, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason})
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/token") && !a.exists:
		status(http.StatusNotFound, metav1.StatusReasonNotFound)
	case strings.HasSuffix(r.URL.Path, "/token"):
		a.tokens++
		answer(http.StatusCreated, authenticationv1.TokenRequest{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
			Status:   authenticationv1.TokenRequestStatus{Token: fmt.Sprint("token-", a.tokens)},
		})
	case strings.HasSuffix(r.URL.Path, "/serviceaccounts"):
		a.exists = true
		answer(http.StatusCreated, corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}})
	case bearer != fmt.Sprint("token-", a.tokens) || !a.exists:
		status(http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
	default:
		answer(http.StatusOK, corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}})
	}
}

// A controller uses a token of its own account, which is created if absent. A rejected
// token is replaced.
func TestControllerActsAsItsServiceAccount(t *testing.T) {
	api := &accounts{}
	server := httptest.NewServer(api)
	defer server.Close()
	base := client.Config{Servers: []string{server.URL}}
	newClient := func(c client.Config) (*client.Client, error) { return client.New(scheme.New(), c) }
	daemon, err := newClient(base)
	if err != nil {
		t.Fatal(err)
	}
	own, err := identities(daemon, base, newClient)("robot")
	if err != nil {
		t.Fatal(err)
	}
	get := func() {
		t.Helper()
		if _, err := client.For[*corev1.Node](own).Get(t.Context(), "n"); err != nil {
			t.Error(err)
		}
	}
	get()
	get()
	api.mu.Lock()
	api.exists = false // this invalidates its tokens
	api.mu.Unlock()
	get()
	const account = "/api/v1/namespaces/kube-system/serviceaccounts"
	want := []string{
		"POST " + account + "/robot/token", "POST " + account, "POST " + account + "/robot/token",
		"GET /api/v1/nodes/n token-1",
		"GET /api/v1/nodes/n token-1",
		"GET /api/v1/nodes/n token-1",
		"POST " + account + "/robot/token", "POST " + account, "POST " + account + "/robot/token",
		"GET /api/v1/nodes/n token-2",
	}
	if diff := cmp.Diff(want, api.log); diff != "" {
		t.Error(diff)
	}
}
