package client_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"podium/pkg/client"
	"podium/pkg/scheme"
)

// The CA file may change while a daemon runs.
func TestAuthoritiesAreAskedForAtEachConnection(t *testing.T) {
	var major atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		major.Store(int32(r.ProtoMajor))
		w.Write([]byte("ok"))
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	roots := &atomic.Pointer[x509.CertPool]{}
	roots.Store(x509.NewCertPool())
	c, err := client.New(scheme.New(), client.Config{Servers: []string{s.URL}, TLS: &tls.Config{MinVersion: tls.VersionTLS12}, Roots: roots.Load})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdle()
	if _, _, err := c.Do(t.Context(), client.Request{Path: "/x"}); err == nil {
		t.Fatal("a server of an unknown authority is believed")
	}
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	roots.Store(pool)
	if body, _, err := c.Do(t.Context(), client.Request{Path: "/x"}); err != nil || string(body) != "ok" || major.Load() != 2 {
		t.Errorf("%s, %v, over HTTP/%d", body, err, major.Load())
	}
}
