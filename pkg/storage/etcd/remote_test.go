package etcd_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podium/pkg/storage/etcd"
	"podium/test/freeport"
)

func TestOpenErrors(t *testing.T) {
	nobody := "http://" + freeport.Address(t)
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for name, row := range map[string]struct {
		cfg  etcd.Config
		want string
	}{
		"no server":    {etcd.Config{}, "no etcd server is named"},
		"nobody there": {etcd.Config{Servers: []string{nobody}}, nobody},
		"no CA file":   {etcd.Config{Servers: []string{nobody}, CAFile: missing}, missing},
		"no key file":  {etcd.Config{Servers: []string{nobody}, CertFile: missing, KeyFile: missing}, missing},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		row.cfg.Log = slog.New(slog.DiscardHandler)
		_, err := etcd.Open(ctx, row.cfg)
		cancel()
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v, want %q in it", name, err, row.want)
		}
	}
}

func TestACallFailsInTimeWhenTheServerIsGone(t *testing.T) {
	server := ours(t)
	s := open(t, server.url)
	server.stop()
	began := time.Now()
	if _, err := s.Revision(context.Background()); err == nil {
		t.Error("a dead server has a revision")
	}
	if d := time.Since(began); d > 7*time.Second {
		t.Errorf("without a deadline it took %v", d)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.Create(ctx, "/registry/a", []byte("x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("create: %v, want that the deadline has passed", err)
	}
}

func TestClientCertificates(t *testing.T) {
	dir := t.TempDir()
	ca := newCA(t, dir)
	ca.issue("server", x509.ExtKeyUsageServerAuth)
	ca.issue("client", x509.ExtKeyUsageClientAuth)
	file := func(name string) string { return filepath.Join(dir, name) }

	plain := ours(t)
	plain.stop()
	for i, a := range plain.args {
		if strings.Contains(a, "client-urls") {
			plain.args[i] = strings.Replace(a, "http://", "https://", 1)
		}
	}
	plain.args = append(plain.args, "--cert-file="+file("server.pem"), "--key-file="+file("server-key.pem"),
		"--trusted-ca-file="+file("ca.pem"), "--client-cert-auth")
	plain.url = strings.Replace(plain.url, "http://", "https://", 1)
	cfg := etcd.Config{Servers: []string{plain.url}, CAFile: file("ca.pem"),
		CertFile: file("client.pem"), KeyFile: file("client-key.pem"), Log: slog.New(slog.DiscardHandler)}
	plain.config = cfg
	plain.start()

	s, err := etcd.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Create(t.Context(), "/registry/a", []byte("x")); err != nil {
		t.Error(err)
	}
	cfg.CertFile, cfg.KeyFile = "", ""
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := etcd.Open(ctx, cfg); err == nil {
		t.Error("connected without a client certificate")
	}
}

// authority signs the certificates of a test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(t *testing.T, dir string) *authority {
	a := &authority{t: t, dir: dir}
	a.cert = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour)}
	a.key = a.write("ca", a.cert)
	return a
}

func (a *authority) issue(name string, usage x509.ExtKeyUsage) {
	a.write(name, &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{usage, x509.ExtKeyUsageClientAuth},
		KeyUsage: x509.KeyUsageDigitalSignature, NotAfter: time.Now().Add(time.Hour)})
}

func (a *authority) write(name string, cert *x509.Certificate) *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	signer := a.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".pem":     {Type: "CERTIFICATE", Bytes: der},
		name + "-key.pem": {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return key
}
