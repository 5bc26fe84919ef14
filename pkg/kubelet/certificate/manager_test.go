package certificate_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/client/csr"
	"podium/pkg/kubelet/certificate"
)

// world is an API with a signer, and a directory of certificates.
type world struct {
	t       *testing.T
	api     *clienttest.Server
	client  *client.Client
	store   certificate.Store
	ca      *x509.Certificate
	key     crypto.Signer
	life    time.Duration
	names   atomic.Pointer[[]string] // DNS names to ask for
	verdict atomic.Value             // the approver's decision on new requests
}

func newWorld(t *testing.T) *world {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now(), NotAfter: time.Now().Add(1e6 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	w := &world{t: t, api: clienttest.New(), store: certificate.Store{Dir: filepath.Join(t.TempDir(), "pki"), Name: "kubelet-client"}, ca: ca, key: key, life: 20 * time.Minute}
	w.client = w.api.Client(t)
	w.names.Store(&[]string{})
	w.verdict.Store(certificatesv1.CertificateApproved)
	return w
}

func (w *world) ask() *csr.Ask {
	return &csr.Ask{Prefix: "csr-", Signer: certificatesv1.KubeletServingSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth},
		Template: x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}}, DNSNames: *w.names.Load()}}
}

func (w *world) manager(initial *tls.Certificate) *certificate.Manager {
	return certificate.New(certificate.Config{
		Store: w.store, Initial: initial, Ask: w.ask, Client: func() *client.Client { return w.client }, Which: "client", Log: slog.New(slog.DiscardHandler),
	})
}

func (w *world) requests() []*certificatesv1.CertificateSigningRequest {
	w.t.Helper()
	list, err := client.For[*certificatesv1.CertificateSigningRequest](w.client).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// decide is the approver and the signer: it handles all pending requests once.
func (w *world) decide() {
	for _, r := range w.requests() {
		verdict := w.verdict.Load().(certificatesv1.RequestConditionType)
		if len(r.Status.Conditions) > 0 || verdict == "" {
			continue
		}
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: verdict, Status: corev1.ConditionTrue, Reason: "Test"}}
		if verdict == certificatesv1.CertificateApproved {
			parsed, err := csr.Parse(r.Spec.Request)
			if err != nil {
				w.t.Fatal(err)
			}
			r.Status.Certificate = w.sign(parsed.Subject, parsed.DNSNames, parsed.PublicKey)
		}
		if _, err := client.For[*certificatesv1.CertificateSigningRequest](w.client).UpdateStatus(context.Background(), r); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) sign(subject pkix.Name, names []string, public crypto.PublicKey) []byte {
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: subject, DNSNames: names, NotBefore: time.Now(), NotAfter: time.Now().Add(w.life)}
	der, err := x509.CreateCertificate(rand.Reader, template, w.ca, public, w.key)
	if err != nil {
		w.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// signing runs the signer until ctx ends.
func (w *world) signing(ctx context.Context) {
	for ctx.Err() == nil {
		w.decide()
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
		}
	}
}

func serial(cert *tls.Certificate) string {
	if cert == nil {
		return "none"
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return err.Error()
	}
	return leaf.SerialNumber.String()
}

// run calls f while a manager runs.
func (w *world) run(m *certificate.Manager, f func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- m.Run(ctx) }()
	go func() { w.signing(ctx); done <- nil }()
	f()
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	}
}

func TestTheNextCertificateComesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.manager(nil)
		if m.Current() != nil || m.Left() != 0 {
			t.Fatal("a certificate out of nothing")
		}
		w.run(m, func() {
			time.Sleep(5 * time.Second)
			first := serial(m.Current())
			if first == "none" {
				t.Fatal("no certificate")
			}
			time.Sleep(w.life * 69 / 100)
			if serial(m.Current()) != first {
				t.Error("renewed before 70 % of its life")
			}
			time.Sleep(w.life * 22 / 100)
			second := serial(m.Current())
			if second == first || m.Current() == nil {
				t.Error("not renewed at 90 % of its life")
			}
			for range 10 { // one restart after another
				time.Sleep(w.life)
				if m.Current() == nil {
					t.Fatal("a time without a certificate")
				}
			}
		})
		files, err := os.ReadDir(w.store.Dir)
		if err != nil || len(files) != 3 { // present, previous, link
			t.Errorf("%v, %v", files, err)
		}
		for _, f := range files {
			if info, err := os.Stat(filepath.Join(w.store.Dir, f.Name())); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v %v", f.Name(), info.Mode(), err)
			}
		}
		if again := w.manager(nil); serial(again.Current()) != serial(m.Current()) {
			t.Error("the next kubelet starts with another certificate")
		}
	})
}

func TestNewNamesWantANewCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.manager(nil)
		w.run(m, func() {
			time.Sleep(5 * time.Second)
			w.names.Store(&[]string{"a.example"})
			m.Poke()
			time.Sleep(5 * time.Second)
			leaf, err := x509.ParseCertificate(m.Current().Certificate[0])
			if err != nil || len(leaf.DNSNames) != 1 {
				t.Errorf("%v, %v", leaf.DNSNames, err)
			}
			m.Poke()
			time.Sleep(5 * time.Minute)
			if n := len(w.requests()); n != 2 {
				t.Errorf("%d requests", n)
			}
		})
	})
}

func TestDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.verdict.Store(certificatesv1.CertificateDenied)
		m := w.manager(nil)
		w.run(m, func() {
			time.Sleep(20 * time.Second)
			if n := len(w.requests()); n < 2 || n > 4 {
				t.Errorf("%d requests in 20 s of refusals: each is another one, ever more slowly", n)
			}
			w.verdict.Store(certificatesv1.CertificateApproved)
			time.Sleep(5 * time.Minute)
			if m.Current() == nil {
				t.Error("no certificate after the approver changed its mind")
			}
		})
	})
}

// A process that is killed at any point continues with the same request.
func TestKilledAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		obtain := func(d time.Duration) (*certificate.Manager, error) {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			m := w.manager(nil)
			return m, m.Obtain(ctx)
		}
		// Killed before the request reaches the API: the key is stored.
		w.api.Before = func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }
		if _, err := obtain(time.Second); err == nil {
			t.Fatal("a certificate without a server")
		}
		w.api.Before = nil
		// Killed twice while the request is pending.
		for range 2 {
			if _, err := obtain(time.Minute); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		if n := len(w.requests()); n != 1 {
			t.Fatalf("%d requests of one kubelet", n)
		}
		w.decide()
		// Killed after the new file was written and before the link was replaced.
		if err := os.Symlink("kubelet-client-2000-01-01-00-00-00.pem", filepath.Join(w.store.Dir, "kubelet-client-updated.pem")); err != nil {
			t.Fatal(err)
		}
		m, err := obtain(time.Minute)
		if err != nil || m.Current() == nil {
			t.Fatal(err)
		}
		if n := len(w.requests()); n != 1 {
			t.Errorf("%d requests of one kubelet", n)
		}
		// Killed before the key's file was removed: no second certificate for one key.
		key, err := x509.MarshalPKCS8PrivateKey(m.Current().PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(w.store.Dir, "kubelet-client.key.tmp"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600); err != nil {
			t.Fatal(err)
		}
		if next, err := w.store.Key(); err != nil || next.Public().(*ecdsa.PublicKey).Equal(m.Current().PrivateKey.(crypto.Signer).Public()) {
			t.Errorf("the key of the present certificate is used again: %v", err)
		}
		// A damaged file does not prevent the start.
		if err := os.WriteFile(w.store.Path(), []byte("half a cert"), 0o600); err != nil {
			t.Fatal(err)
		}
		if w.manager(nil).Current() != nil {
			t.Error("a damaged certificate is used")
		}
		w.run(w.manager(nil), func() { time.Sleep(10 * time.Second) })
		if w.manager(nil).Current() == nil {
			t.Error("request certificate failed")
		}
	})
}

func TestCertificateRequestOfAnotherKeyIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := w.manager(nil).Obtain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		// Another client creates a request of that name with another key.
		r := w.requests()[0]
		other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, other)
		if err != nil {
			t.Fatal(err)
		}
		r.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
		if _, err := client.For[*certificatesv1.CertificateSigningRequest](w.client).Update(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		err = w.manager(nil).Obtain(t.Context())
		if !errors.Is(err, csr.ErrRefused) || !strings.Contains(err.Error(), "belongs to another requester") {
			t.Error(err)
		}
		w.run(w.manager(nil), func() { time.Sleep(5 * time.Second) })
		if w.manager(nil).Current() == nil {
			t.Error("no certificate of another name")
		}
	})
}

// For any input, ParsePair returns a pair or an error.
func FuzzParsePair(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if cert, err := certificate.ParsePair(text); err == nil && (len(cert.Certificate) == 0 || cert.PrivateKey == nil) {
			t.Error("half a pair without an error")
		}
	})
}
