package apiserver_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"podium/pkg/apiserver"
)

func TestSnapshot(t *testing.T) {
	from := func(r io.Reader, err error) func(*apiserver.Config) {
		return func(c *apiserver.Config) {
			c.Snapshot = func(context.Context) (io.ReadCloser, error) { return io.NopCloser(r), err }
		}
	}
	t.Run("streamed", func(t *testing.T) {
		rec := start(t, from(strings.NewReader("the database"), nil)).do("GET", "/snapshot", "", "")
		if rec.Code != http.StatusOK || rec.Body.String() != "the database" {
			t.Errorf("%d: %s", rec.Code, rec.Body)
		}
	})
	t.Run("for administrators", func(t *testing.T) {
		rec := start(t, from(strings.NewReader("the database"), nil)).do("GET", "/snapshot", "", "", "X-User", "jane")
		if rec.Code != http.StatusForbidden || strings.Contains(rec.Body.String(), "database") {
			t.Errorf("%d: %s", rec.Code, rec.Body)
		}
	})
	t.Run("no store that can", func(t *testing.T) {
		if rec := start(t).do("GET", "/snapshot", "", ""); rec.Code != http.StatusNotFound {
			t.Errorf("%d: %s", rec.Code, rec.Body)
		}
	})
	t.Run("does not begin", func(t *testing.T) {
		if rec := start(t, from(nil, errors.New("no leader"))).do("GET", "/snapshot", "", ""); rec.Code != http.StatusInternalServerError {
			t.Errorf("%d: %s", rec.Code, rec.Body)
		}
	})
	t.Run("breaks off", func(t *testing.T) {
		defer func() {
			if p := recover(); p != http.ErrAbortHandler {
				t.Errorf("the connection is not cut off, half a copy passes for a whole one: %v", p)
			}
		}()
		start(t, from(io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errors.New("gone"))), nil)).do("GET", "/snapshot", "", "")
	})
}
