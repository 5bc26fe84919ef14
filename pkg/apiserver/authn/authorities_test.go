package authn_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"podium/pkg/apiserver/authn"
	"podium/pkg/client/certfile"
)

// Rotating the client CA does not interrupt the server's clients.
func TestAuthoritiesAreRotatedWithoutDowntime(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		old, young := newAuthority(t, "kubernetes"), newAuthority(t, "kubernetes") // the same name, as after a renewal
		file := filepath.Join(dir, "ca.crt")
		bundle := func(authorities ...*authority) {
			var text []byte
			for _, a := range authorities {
				text = append(text, a.pem()...)
			}
			keyFiles{t: t}.write(file, text)
			time.Sleep(2 * time.Second) // until the server has read the file again
		}
		bundle(old)
		pool, err := certfile.NewPool(file)
		if err != nil {
			t.Fatal(err)
		}
		check := authn.Certificates(authn.CertificateConfig{Roots: pool.Get})
		const life = 365 * 24 * time.Hour
		first, second := old.issue(pkix.Name{CommonName: "ann"}, life), young.issue(pkix.Name{CommonName: "ann"}, life)
		step := func(what string, wantFirst, wantSecond bool) {
			t.Helper()
			for cert, want := range map[*x509.Certificate]bool{first: wantFirst, second: wantSecond} {
				if user, err := check.Authenticate(shown(cert)); (user != nil) != want || (err == nil) != want {
					t.Errorf("%s: %v, %v", what, user, err)
				}
			}
		}
		step("one authority", true, false)
		bundle(old, young)
		step("both authorities", true, true)
		bundle(young)
		step("the old one is gone", false, true)
		keyFiles{t: t}.write(file, []byte("half a certificate"))
		time.Sleep(2 * time.Second)
		step("a broken file", false, true)
		time.Sleep(life)
		step("its time is over", false, false)
	})
}
