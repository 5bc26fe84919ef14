package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"podium/pkg/client/revocation"
	"podium/pkg/cluster/pki"
)

// A revoked certificate is refused, and its open connections are closed.
func TestRevokedCertificatesAreRefused(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.OpenAuthority(dir, "ca", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	pair := func(name string, id pki.Identity) (tls.Certificate, *big.Int) {
		if err := ca.Issue(dir, name, id); err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(pki.Files(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		cert, err := pki.ReadCertificate(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		return pair, cert.SerialNumber
	}
	pair("server", pki.Identity{Name: "server", Hosts: []string{"127.0.0.1"}})
	leaked, serial := pair("leaked", pki.Identity{Name: "ann", Groups: []string{"system:masters"}})
	fine, _ := pair("fine", pki.Identity{Name: "ann", Groups: []string{"system:masters"}})
	certFile, keyFile := pki.Files(dir, "server")
	caFile, _ := pki.Files(dir, "ca")
	cfg, err := (&Serving{CertFile: certFile, KeyFile: keyFile, ClientCA: caFile}).TLS()
	if err != nil {
		t.Fatal(err)
	}

	var list atomic.Pointer[revocation.List]
	var known atomic.Bool
	open := &revocation.Connections{}
	pages := http.NewServeMux()
	pages.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	pages.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	guarded := (&Access{}).Guard(pages, api(t, "nobody"), func() (*revocation.List, bool) { return list.Load(), known.Load() }, slog.New(slog.DiscardHandler))
	addr, stop := serveLocal(t, ServeConfig{TLS: cfg, Handler: guarded, Connections: open})
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go open.Run(ctx, list.Load)

	client := func(cert tls.Certificate) *http.Client {
		roots := x509.NewCertPool()
		roots.AddCert(ca.Cert)
		tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}}}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr}
	}
	get := func(c *http.Client, path string) *http.Response {
		t.Helper()
		resp, err := c.Get("https://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	thief, ann := client(leaked), client(fine)
	if code := get(thief, "/page").StatusCode; code != http.StatusUnauthorized {
		t.Errorf("while it is not known what is revoked, a certificate gets %d", code)
	}
	known.Store(true)
	stream := get(thief, "/stream")
	if stream.StatusCode != http.StatusOK {
		t.Fatalf("before its revocation the certificate gets %d", stream.StatusCode)
	}
	file := filepath.Join(dir, "ca.crl")
	if _, err := ca.Revoke(file, serial); err != nil {
		t.Fatal(err)
	}
	list.Store(readList(t, file, ca.Cert))
	if _, err := io.ReadAll(stream.Body); err == nil {
		t.Error("what was open with the certificate has ended in good order")
	}
	if code := get(thief, "/page").StatusCode; code != http.StatusUnauthorized {
		t.Errorf("the revoked certificate gets %d", code)
	}
	if code := get(ann, "/page").StatusCode; code != http.StatusOK {
		t.Errorf("another one of the same user gets %d", code)
	}
}

func readList(t *testing.T, file string, ca *x509.Certificate) *revocation.List {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	list, err := revocation.Parse(data, []*x509.Certificate{ca})
	if err != nil {
		t.Fatal(err)
	}
	return list
}
