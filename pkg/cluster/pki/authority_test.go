package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"podium/pkg/cluster/pki"
)

func TestIssuedCertificatesServeAndIdentify(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.OpenAuthority(dir, "ca", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	id := pki.Identity{Name: "system:node:a", Groups: []string{"system:nodes"}, Hosts: []string{"a", "127.0.0.1"}, Both: true}
	if err := ca.Issue(dir, "kubelet", id); err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := pki.Files(dir, "kubelet")
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if cert.Subject.CommonName != id.Name || cert.Subject.Organization[0] != "system:nodes" {
		t.Errorf("subject is %v", cert.Subject)
	}
	if err := cert.VerifyHostname("127.0.0.1"); err != nil {
		t.Error(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots}); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(keyFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v, %v; want mode 0600", info, err)
	}
}

func TestIssueKeepsWhatFitsAndReplacesTheRest(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	clock := func() time.Time { return now }
	id := pki.Identity{Name: "x", Hosts: []string{"x"}}
	serial := func() string {
		t.Helper()
		ca, err := pki.OpenAuthority(dir, "ca", clock)
		if err != nil {
			t.Fatal(err)
		}
		if err := ca.Issue(dir, "x", id); err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "x.crt"), filepath.Join(dir, "x.key"))
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return cert.SerialNumber.String()
	}
	first := serial()
	if again := serial(); again != first {
		t.Error("a certificate that fits was replaced")
	}
	id.Hosts = []string{"x", "10.0.0.1"}
	second := serial()
	if second == first {
		t.Error("a certificate without the new address was kept")
	}
	now = now.Add(300 * 24 * time.Hour)
	if third := serial(); third == second {
		t.Error("a certificate near its end was kept")
	}
}

func TestSigningKeyIsStable(t *testing.T) {
	dir := t.TempDir()
	read := func() string {
		if err := pki.SigningKey(dir, "sa"); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, "sa.pub"))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	first := read()
	if second := read(); first != second {
		t.Error("the key pair changed between two calls")
	}
}

func TestADamagedAuthorityIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("garbage"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.OpenAuthority(dir, "ca", time.Now); err == nil {
		t.Error("a damaged authority was silently replaced: every certificate of the cluster would be void")
	}
}

// TestAuthorityWhoseKeyIsElsewhereIsKept checks that no second authority takes
// the name of one whose key was moved away: clients do not trust what another one signs.
func TestAuthorityWhoseKeyIsElsewhereIsKept(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.OpenAuthority(dir, "ca", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	id := pki.Identity{Name: "ann"}
	if err := ca.Issue(dir, "ann", id); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	before, err := pki.ReadCertificate(dir, "ann")
	if err != nil {
		t.Fatal(err)
	}
	keyless, err := pki.OpenAuthority(dir, "ca", time.Now)
	if err != nil || !keyless.Cert.Equal(ca.Cert) {
		t.Fatalf("opened %v, %v; want the present certificate", keyless, err)
	}
	if err := keyless.Issue(dir, "ann", id); err != nil {
		t.Errorf("a certificate that needs no renewal: %v", err)
	}
	_, derived := keyless.Derive(dir, "kubelet-ca")
	_, revoked := keyless.Revoke(filepath.Join(dir, "ca.crl"))
	for what, err := range map[string]error{"renew": keyless.Renew(dir, "ann", id), "derive": derived, "revoke": revoked} {
		if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "ca.key")+", and no other key can sign") {
			t.Errorf("%s: %v; want an error that names the missing key", what, err)
		}
	}
	if after, err := pki.ReadCertificate(dir, "ann"); err != nil || !after.Equal(before) {
		t.Errorf("the certificate changed: %v", err)
	}
	if got, err := pki.ReadCertificate(dir, "ca"); err != nil || !got.Equal(ca.Cert) {
		t.Errorf("the authority was replaced: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ca.key")); err == nil {
		t.Error("another key was made")
	}
}

// With a server certificate that is valid for client authentication, the holder
// of the server's key could log in as its common name.
func TestUsagesAreOnlyThoseNeeded(t *testing.T) {
	server, client := x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	dir := t.TempDir()
	ca, err := pki.OpenAuthority(dir, "ca", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		id   pki.Identity
		want []x509.ExtKeyUsage
	}{
		"server": {pki.Identity{Name: "kube-apiserver", Hosts: []string{"localhost"}}, []x509.ExtKeyUsage{server}},
		"client": {pki.Identity{Name: "ann"}, []x509.ExtKeyUsage{client}},
		"member": {pki.Identity{Name: "etcd", Hosts: []string{"localhost"}, Both: true}, []x509.ExtKeyUsage{client, server}},
	} {
		if err := ca.Issue(dir, name, row.id); err != nil {
			t.Fatal(err)
		}
		cert, err := pki.ReadCertificate(dir, name)
		if err != nil || !slices.Equal(cert.ExtKeyUsage, row.want) {
			t.Errorf("%s: usages %v, %v; want %v", name, cert.ExtKeyUsage, err, row.want)
		}
	}
}

func TestIssueReplacesACertificateOfOtherUsages(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.OpenAuthority(dir, "ca", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	id := pki.Identity{Name: "kube-apiserver", Hosts: []string{"localhost"}, Both: true}
	for _, both := range []bool{true, false} {
		id.Both = both
		if err := ca.Issue(dir, "apiserver", id); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := pki.ReadCertificate(dir, "apiserver")
	if err != nil || slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth) {
		t.Errorf("a renewal keeps the usages of the old certificate: %v, %v", cert.ExtKeyUsage, err)
	}
}

// Control planes are upgraded one after the other, and each must derive the
// same CA.
func TestDerivedAuthoritiesVerifyEachOther(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	ca, err := pki.OpenAuthority(one, "ca", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	first, err := ca.Derive(one, "kubelet-ca")
	if err != nil {
		t.Fatal(err)
	}
	second, err := ca.Derive(two, "kubelet-ca")
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Issue(two, "kubelet", pki.Identity{Name: "system:node:a", Hosts: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	cert, err := pki.ReadCertificate(two, "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(first.Cert)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: "a"}); err != nil {
		t.Error(err)
	}
	if ca.Signed(cert) || !first.Signed(cert) {
		t.Error("the cluster's authority is the signer")
	}
	other, err := ca.Derive(t.TempDir(), "another")
	if err != nil || other.Signed(cert) {
		t.Errorf("two names lead to the same key (%v)", err)
	}
	again, err := ca.Derive(one, "kubelet-ca")
	if err != nil || !again.Cert.Equal(first.Cert) {
		t.Errorf("an authority that is there was replaced (%v)", err)
	}
}
