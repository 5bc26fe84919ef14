package apiserver_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/authn"
	"podium/pkg/client/certfile"
	"podium/pkg/client/revocation"
	"podium/pkg/cluster/pki"
	"podium/pkg/storage/memory"
)

// After a certificate is revoked, within seconds no request and no open
// connection works with it; other clients are unaffected.
func TestALeakedCertificateIsCutOff(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.OpenAuthority(dir, "ca", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "ca.crl")
	if _, err := ca.Revoke(list); err != nil {
		t.Fatal(err)
	}
	caFile, _ := pki.Files(dir, "ca")
	pool, err := certfile.NewPool(caFile)
	if err != nil {
		t.Fatal(err)
	}
	revoked, err := authn.RevocationFile(list, caFile, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	issue := func(name string, id pki.Identity) tls.Certificate {
		if err := ca.Issue(dir, name, id); err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(pki.Files(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	serving := issue("server", pki.Identity{Name: "server", Hosts: []string{"127.0.0.1"}})
	leaked := issue("leaked", pki.Identity{Name: "ann", Groups: []string{"system:masters"}})
	fine := issue("fine", pki.Identity{Name: "ann", Groups: []string{"system:masters"}})

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	open := &revocation.Connections{}
	start(t, func(cfg *apiserver.Config) {
		cfg.Listener, cfg.Authenticator = l, nil
		cfg.TLS = &tls.Config{Certificates: []tls.Certificate{serving}, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"}}
		cfg.Authn = apiserver.Authentication{
			Anonymous: true, Connections: open,
			Requests: []authn.Authenticator{authn.Certificates(authn.CertificateConfig{Roots: pool.Get, Revoked: revoked.List})},
			Run:      []func(context.Context){func(ctx context.Context) { open.Run(ctx, revoked.List) }},
		}
	})
	client := func(cert tls.Certificate) *http.Client {
		tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool.Get(), Certificates: []tls.Certificate{cert}}}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr}
	}
	thief, ann := client(leaked), client(fine)
	url := "https://" + l.Addr().String() + cms
	watch := func(c *http.Client) <-chan error {
		resp, err := c.Get(url + "?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan")
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(err, resp)
		}
		t.Cleanup(func() { resp.Body.Close() })
		ended := make(chan error, 1)
		lines := bufio.NewScanner(resp.Body)
		if !lines.Scan() {
			t.Fatal("the watch does not begin")
		}
		go func() {
			for lines.Scan() {
				continue
			}
			ended <- fmt.Errorf("watch: %w", lines.Err())
		}()
		return ended
	}
	theirs, ours := watch(thief), watch(ann)

	leaf, err := x509.ParseCertificate(leaked.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Revoke(list, leaf.SerialNumber); err != nil {
		t.Fatal(err)
	}
	select {
	case <-theirs:
	case <-time.After(20 * time.Second):
		t.Fatal("what was open with the leaked certificate goes on")
	}
	if resp, err := thief.Get(url); err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the leaked certificate: %v %v", resp, err)
	}
	if resp, err := ann.Get(url); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the other one: %v %v", resp, err)
	}
	select {
	case err := <-ours:
		t.Errorf("the other one's watch has ended: %v", err)
	default:
	}
}

// A certificate that is revoked on one control plane is refused by the others.
// Deleting or forging the published list changes nothing.
func TestARevocationReachesOtherServers(t *testing.T) {
	ca, err := pki.OpenAuthority(t.TempDir(), "ca", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	caFile := filepath.Join(t.TempDir(), "ca.crt")
	if err := pki.WriteBundle(caFile, ca); err != nil {
		t.Fatal(err)
	}
	store := memory.New()
	lists, known := []string{}, []*authn.Revocations{}
	var first *world
	for i := range 2 {
		list := filepath.Join(t.TempDir(), "ca.crl")
		if _, err := ca.Revoke(list); err != nil {
			t.Fatal(err)
		}
		r, err := authn.RevocationFile(list, caFile, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		w := start(t, func(cfg *apiserver.Config) {
			cfg.Store, cfg.Authn.Revocations, cfg.Identity = store, r, fmt.Sprint("server-", i)
		})
		lists, known = append(lists, list), append(known, r)
		if first == nil {
			first = w
		}
	}
	revoked := func(server int, serial int64) bool {
		chain := []*x509.Certificate{{RawIssuer: ca.Cert.RawSubject, SerialNumber: big.NewInt(serial)}}
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if known[server].List().Any(chain) {
				return true
			}
		}
		return false
	}
	for i, serial := range []int64{7, 9} { // each at a different server
		if _, err := ca.Revoke(lists[i], big.NewInt(serial)); err != nil {
			t.Fatal(err)
		}
		for server := range known {
			if !revoked(server, serial) {
				t.Errorf("server %d accepts number %d, revoked on server %d", server, serial, i)
			}
		}
	}
	const path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
	whole := func() bool {
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			rec := first.do("GET", path, "", "")
			var m corev1.ConfigMap
			if rec.Code == http.StatusOK && json.Unmarshal(rec.Body.Bytes(), &m) == nil {
				list, err := revocation.Parse([]byte(m.Data[revocation.Key]), []*x509.Certificate{ca.Cert})
				if err == nil && len(list.Entries()) == 2 {
					return true
				}
			}
		}
		return false
	}
	if !whole() {
		t.Fatal("what is published lacks something")
	}
	first.do("DELETE", path, "", "")
	if !whole() {
		t.Error("deleted, it is not published again")
	}
	first.do("PATCH", path, mergeType, `{"data":{"client-crl-file":"-----BEGIN X-----\n-----END X-----\n"}}`)
	if !whole() || !revoked(0, 9) || !revoked(1, 7) {
		t.Error("a forged list is in force")
	}
}
