package certrotation_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/client"
	"podium/pkg/client/certfile"
)

// With certificates that are valid for an hour, everything keeps working when they are renewed.
// If they cannot be signed for longer than that, everything stops, and recovers by itself with the
// signer.
func TestCertificateExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		stop := c.control()
		c.join()
		c.until("everything works", c.works)
		first, firstServing := c.client.Current(), c.serving.Current()
		c.keepsWorking(5 * life)
		if c.client.Current() == first || c.serving.Current() == firstServing {
			t.Error("the first certificates are still in use after five of their lives")
		}

		stop()
		last := c.client.Current()
		time.Sleep(life + time.Hour)
		if c.client.Current() != nil || c.serving.Current() != nil {
			t.Error("a certificate whose time is over is shown")
		}
		if c.works() == nil {
			t.Error("it works without a certificate")
		}
		stale := c.with(func() *tls.Certificate { return last })
		if _, err := client.For[*corev1.Node](stale).Get(t.Context(), nodeName); !apierrors.IsUnauthorized(err) {
			t.Errorf("a certificate whose time is over: %v", err)
		}

		c.control()
		c.until("it works again", c.works)
		c.keepsWorking(2 * life)
	})
}

// The CA is replaced while everything runs: first all trust the new one, too; then it signs; when
// the last certificate of the old one has been replaced, the old one is no longer trusted.
func TestAuthorityRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.control()
		c.join()
		c.until("everything works", c.works)
		c.keepsWorking(life)

		c.authority("new")
		c.trust("old", "new")
		c.keepsWorking(life)
		old := c.own["admin"].Load()

		c.signBy("new")
		c.keepsWorking(2 * life)
		text, err := os.ReadFile(c.file("new.crt"))
		c.must(err)
		roots, err := certfile.ParsePool(text, "new.crt")
		c.must(err)
		for name, cert := range map[string]*tls.Certificate{"client": c.client.Current(), "serving": c.serving.Current()} {
			leaf, err := x509.ParseCertificate(cert.Certificate[0])
			c.must(err)
			if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: time.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
				t.Errorf("the node's %s certificate is not the new authority's: %v", name, err)
			}
		}

		c.trust("new")
		time.Sleep(time.Minute)
		c.keepsWorking(2 * life)
		former := c.with(func() *tls.Certificate { return old })
		if _, err := client.For[*corev1.Node](former).Get(t.Context(), nodeName); !apierrors.IsUnauthorized(err) {
			t.Errorf("a certificate of the authority that is gone: %v", err)
		}
	})
}
