package webhook

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	registration "k8s.io/api/admissionregistration/v1"

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
)

// transport is an in-memory service, for use in a synctest bubble.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func says(code int, body io.Reader) (*http.Response, error) {
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Header: http.Header{}, Body: io.NopCloser(body)}, nil
}

func service(t *testing.T, b Bounds, to transport) *Service {
	t.Helper()
	s, err := New(client.Config{
		Servers: []string{"https://hook.test/ask"}, Transport: to, Token: func() (string, error) { return "secret", nil },
	}, b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Post retries or not depending on the failure.
func TestTries(t *testing.T) {
	for name, row := range map[string]struct {
		answer transport
		tries  int
		took   time.Duration // at least
		fails  bool
	}{
		"answers":     {answer: func(*http.Request) (*http.Response, error) { return says(201, bytes.NewBufferString("yes")) }, tries: 1},
		"is not here": {answer: func(*http.Request) (*http.Response, error) { return nil, errors.New("nobody") }, tries: 3, took: 2500 * time.Millisecond, fails: true},
		"has trouble": {answer: func(*http.Request) (*http.Response, error) { return says(503, http.NoBody) }, tries: 3, took: 2500 * time.Millisecond, fails: true},
		"is busy":     {answer: func(*http.Request) (*http.Response, error) { return says(429, http.NoBody) }, tries: 3, took: 2500 * time.Millisecond, fails: true},
		"refuses":     {answer: func(*http.Request) (*http.Response, error) { return says(403, http.NoBody) }, tries: 1, fails: true},
		"redirects": {answer: func(*http.Request) (*http.Response, error) {
			resp, err := says(307, http.NoBody)
			resp.Header.Set("Location", "https://elsewhere.test")
			return resp, err
		}, tries: 3, fails: true},
		"has no end": {answer: func(*http.Request) (*http.Response, error) { return says(200, endless{}) }, tries: 1, fails: true},
		"hangs": {answer: func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, tries: 1, took: 10 * time.Second, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				s := service(t, Bounds{Within: 10 * time.Second, Tries: 3, Pause: time.Second}, func(r *http.Request) (*http.Response, error) {
					tries++
					if r.URL.Host != "hook.test" || r.Header.Get("Authorization") != "Bearer secret" {
						t.Errorf("%s was asked, with %q", r.URL, r.Header.Get("Authorization"))
					}
					question, err := io.ReadAll(r.Body)
					if err != nil || string(question) != "who?" {
						t.Errorf("asked %q: %v", question, err)
					}
					return row.answer(r)
				})
				began := time.Now()
				answer, err := s.Post(t.Context(), []byte("who?"))
				took := time.Since(began)
				if (err != nil) != row.fails || !row.fails && string(answer) != "yes" {
					t.Errorf("%.20q, %v", answer, err)
				}
				if tries != row.tries || took < row.took || took > 10*time.Second {
					t.Errorf("%d tries in %v, want %d in %v at least", tries, took, row.tries, row.took)
				}
			})
		})
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// The number of calls that wait for an unresponsive service is limited.
func TestQuestionsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := service(t, Bounds{Within: 10 * time.Second, Tries: 1, AtOnce: 2}, func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		var refused atomic.Int32
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if _, err := s.Post(t.Context(), nil); errors.Is(err, ErrBusy) {
					refused.Add(1)
				}
			})
		}
		all.Wait()
		if refused.Load() != 3 {
			t.Errorf("%d of 5 were refused, want 3", refused.Load())
		}
	})
}

func TestNew(t *testing.T) {
	for _, servers := range [][]string{nil, {"https://a", "https://b"}} {
		if _, err := New(client.Config{Servers: servers}, Bounds{}); err == nil {
			t.Errorf("a service at %q", servers)
		}
	}
}

func TestPathOfHook(t *testing.T) {
	for given, want := range map[string]string{
		"https://hook.test":              "https://hook.test/",
		"https://hook.test//ask?x=1":     "https://hook.test/ask?x=1",
		"https://hook.test:8443/a/./b/?": "https://hook.test:8443/a/b?",
	} {
		h, err := NewHook(&registration.WebhookClientConfig{URL: &given}, nil, nil)
		if err != nil || h.url.String() != want {
			t.Errorf("%s is asked at %v, %v; want %s", given, h.url.String(), err, want)
		}
	}
}

// A service is reached directly: a proxy of its kubeconfig would be ignored.
func TestLoadRefusesProxies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	cluster := kubeconfig.Cluster{Server: "https://hook.test", ProxyURL: "http://proxy.test"}
	if err := kubeconfig.New("hook", cluster, kubeconfig.User{}).Write(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "proxy-url") {
		t.Errorf("Load: %v", err)
	}
}
