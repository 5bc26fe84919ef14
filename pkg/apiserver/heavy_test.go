package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"podium/pkg/apiserver"
)

// slowReader is a client that reads nothing of an answer until it is released.
type slowReader struct {
	*httptest.ResponseRecorder
	begins, release chan struct{}
}

func (r *slowReader) Write(p []byte) (int, error) {
	select {
	case <-r.begins:
	default:
		close(r.begins)
	}
	<-r.release
	return r.ResponseRecorder.Write(p)
}

// One user gets few large lists at a time; the lists of others, and small requests, do not wait.
func TestLargeListsTakeTurns(t *testing.T) {
	w := start(t, allowEverybody, func(c *apiserver.Config) {
		c.MaxReads, c.MaxWrites, c.RequestTimeout = 400, 200, time.Minute
	})
	for i := range 10 {
		must[any](w, 201, "POST", cms, jsonType, fmt.Sprintf(`{"metadata":{"name":"c%d"},"data":{"a":"%s"}}`, i, strings.Repeat("x", 900<<10)), "X-User", "mallory")
	}
	ask := func(rec http.ResponseWriter, user, path string) context.CancelFunc {
		ctx, cancel := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, "GET", path, http.NoBody)
		r.Header.Set("X-User", user)
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.handler.ServeHTTP(rec, r)
		}()
		return func() { cancel(); <-done }
	}
	release := make(chan struct{})
	defer close(release)
	slow := func(user string) *slowReader {
		r := &slowReader{httptest.NewRecorder(), make(chan struct{}), release}
		t.Cleanup(ask(r, user, cms))
		return r
	}
	for range max(1, runtime.GOMAXPROCS(0)/2) {
		<-slow("mallory").begins
	}
	next := slow("mallory")
	<-slow("alice").begins
	if rec := w.do("GET", cms+"/c0", "", "", "X-User", "mallory"); rec.Code != http.StatusOK {
		t.Errorf("a small request: %d", rec.Code)
	}
	select {
	case <-next.begins:
		t.Error("too many large lists of one user are sent at a time")
	default:
	}
}
