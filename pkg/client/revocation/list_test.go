package revocation_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"podium/pkg/client/revocation"
)

// authority signs certificates and revokes them.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, key: key}
	a.cert = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, // not for lists, as in many clusters
	})
	return a
}

func (a *authority) sign(template *x509.Certificate) *x509.Certificate {
	a.t.Helper()
	a.next++
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(a.next), time.Unix(0, 0), time.Unix(1<<37, 0)
	parent := a.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, a.key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

func (a *authority) issue(name string) *x509.Certificate {
	return a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// list returns a revocation list in PEM form.
func (a *authority) list(revoked ...*x509.Certificate) []byte {
	a.t.Helper()
	template := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Unix(0, 0), NextUpdate: time.Unix(1, 0)}
	for _, cert := range revoked {
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: cert.SerialNumber, RevocationTime: time.Unix(cert.SerialNumber.Int64(), 0)})
	}
	issuer := *a.cert
	issuer.KeyUsage |= x509.KeyUsageCRLSign
	der, err := x509.CreateRevocationList(rand.Reader, template, &issuer, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

func (a *authority) parse(data []byte) *revocation.List {
	a.t.Helper()
	l, err := revocation.Parse(data, []*x509.Certificate{a.cert})
	if err != nil {
		a.t.Fatal(err)
	}
	return l
}

func TestParse(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	forged := newAuthority(t, "ours")
	for name, tc := range map[string]struct {
		data []byte
		ok   bool
	}{
		"ours":               {ours.list(), true},
		"nothing":            {nil, true},
		"of nobody we trust": {theirs.list(), false},
		"of our name only":   {forged.list(), false},
		"a certificate":      {ours.pem(), false},
		"garbage in PEM":     {pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: []byte("x")}), false},
	} {
		if _, err := revocation.Parse(tc.data, []*x509.Certificate{ours.cert}); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A user who can write the ConfigMap can neither revoke a certificate nor hide a
// revocation.
func TestForgedListsDoNotHideOthers(t *testing.T) {
	ours, forged := newAuthority(t, "ours"), newAuthority(t, "ours")
	bad, good := ours.issue("bad"), ours.issue("good")
	l, err := revocation.Parse(append(append(forged.list(good), ours.list(bad)...), ours.pem()...), []*x509.Certificate{ours.cert})
	if err == nil {
		t.Error("no word of the forged list")
	}
	if !l.Any([]*x509.Certificate{bad}) || l.Any([]*x509.Certificate{good}) {
		t.Error("the forged list counts, or the true one does not")
	}
}

// Two control planes may revoke independently of each other.
func TestMergeIsAUnion(t *testing.T) {
	a := newAuthority(t, "ca")
	certs := []*x509.Certificate{a.issue("a"), a.issue("b"), a.issue("c")}
	ab, bc := a.parse(a.list(certs[0], certs[1])), a.parse(a.list(certs[1], certs[2]))
	all := revocation.Merge(ab, bc)
	for _, cert := range certs {
		if !all.Any([]*x509.Certificate{cert}) {
			t.Errorf("%s is not revoked", cert.Subject.CommonName)
		}
	}
	if all.Covers(nil) != true || !all.Covers(ab) || ab.Covers(all) || (*revocation.List)(nil).Covers(ab) {
		t.Error("Covers is wrong")
	}
	if revocation.Merge(all, bc) != all || revocation.Merge(nil, ab) != ab || revocation.Merge(ab, nil) != ab {
		t.Error("a union that adds nothing is a new list")
	}
	if again := a.parse(all.PEM()); !again.Covers(all) || string(again.PEM()) != string(all.PEM()) {
		t.Error("PEM loses something")
	}
	// A longer list replaces shorter ones: the published data does not grow with each revocation.
	whole := revocation.Merge(all, a.parse(a.list(append(certs, a.issue("d"))...)))
	if blocks := countBlocks(whole.PEM()); blocks != 1 {
		t.Errorf("%d lists, want the one that has all", blocks)
	}
	entries := whole.Entries()
	if len(entries) != 4 || entries[0].Serial.Cmp(certs[0].SerialNumber) != 0 || entries[0].Issuer != "ca" || entries[0].Since.Unix() != certs[0].SerialNumber.Int64() {
		t.Errorf("entries %v", entries)
	}
}

func countBlocks(data []byte) (n int) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return n
		}
		n++
	}
}

func FuzzParse(f *testing.F) {
	a := newAuthority(f, "ours")
	f.Add(a.list(a.cert))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, _ := revocation.Parse(data, []*x509.Certificate{a.cert})
		l.Any([]*x509.Certificate{a.cert})
		again, err := revocation.Parse(l.PEM(), []*x509.Certificate{a.cert})
		if err != nil || !again.Covers(l) {
			t.Fatalf("what was written cannot be read: %v", err)
		}
	})
}
