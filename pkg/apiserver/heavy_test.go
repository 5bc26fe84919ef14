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

// slowReader is a client that reads 8 MB of an answer, and no more until it is released.
type slowReader struct {
	*httptest.ResponseRecorder
	written            int
	most, all, release chan struct{} // most: it has got 8 MB; all: it is offered more
}

func (r *slowReader) Write(p []byte) (int, error) {
	before := r.written
	r.written += len(p)
	if before < 8<<20 && r.written >= 8<<20 {
		close(r.all)
		<-r.release
	}
	if before < 8000<<10 && r.written >= 8000<<10 {
		close(r.most)
	}
	return r.ResponseRecorder.Write(p)
}

// One user gets few large lists at a time: others wait before their last part. The lists of others, and small
// requests, do not wait.
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
			defer func() {
				if p := recover(); p != nil && p != http.ErrAbortHandler { // its client is gone
					panic(p)
				}
			}()
			w.handler.ServeHTTP(rec, r)
		}()
		return func() { cancel(); <-done }
	}
	release := make(chan struct{})
	defer close(release)
	slow := func(user string) *slowReader {
		r := &slowReader{httptest.NewRecorder(), 0, make(chan struct{}), make(chan struct{}), release}
		t.Cleanup(ask(r, user, cms))
		return r
	}
	for range max(1, runtime.GOMAXPROCS(0)/2) {
		<-slow("mallory").all
	}
	next := slow("mallory")
	<-next.most
	<-slow("alice").all
	if rec := w.do("GET", cms+"/c0", "", "", "X-User", "mallory"); rec.Code != http.StatusOK {
		t.Errorf("a small request: %d", rec.Code)
	}
	select {
	case <-next.all:
		t.Error("too many large lists of one user are sent at a time")
	default:
	}
}
