package kubelet

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/client/csr"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/scheme"
)

// door is an API that signs requests of the holder of a token and accepts the
// certificates that it has signed.
type door struct {
	*httptest.Server
	t      *testing.T
	scheme *scheme.Scheme
	ca     *x509.Certificate
	key    crypto.Signer
	life   time.Duration

	mu       sync.Mutex
	requests map[string]*certificatesv1.CertificateSigningRequest
	by       []string // the credentials of the requests
	refusal  *apierrors.StatusError
}

func newDoor(t *testing.T) *door {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	d := &door{t: t, scheme: scheme.New(), key: key, life: time.Hour, requests: map[string]*certificatesv1.CertificateSigningRequest{}}
	d.ca = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, d.ca, d.ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if d.ca, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(d.ca)
	d.Server = httptest.NewUnstartedServer(http.HandlerFunc(d.serve))
	d.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: roots}
	d.StartTLS()
	t.Cleanup(d.Close)
	return d
}

func (d *door) serve(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	who := r.Header.Get("Authorization")
	if len(r.TLS.VerifiedChains) > 0 {
		who = r.TLS.VerifiedChains[0][0].Subject.CommonName
	}
	if d.refusal != nil {
		d.answer(w, int(d.refusal.ErrStatus.Code), &d.refusal.ErrStatus)
		return
	}
	if r.Method == http.MethodGet {
		d.answer(w, 200, d.requests[filepath.Base(r.URL.Path)])
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		d.t.Error(err)
	}
	obj, _, err := d.scheme.Decode(body, scheme.Protobuf, nil)
	if err != nil {
		d.t.Error(err)
		return
	}
	request := obj.(*certificatesv1.CertificateSigningRequest)
	d.requests[request.Name] = request
	d.by = append(d.by, who)
	request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue}}
	parsed, err := csr.Parse(request.Spec.Request)
	if err != nil {
		d.t.Error(err)
		return
	}
	request.Status.Certificate = d.sign(parsed.Subject, parsed.PublicKey)
	d.answer(w, 201, request)
}

func (d *door) sign(subject pkix.Name, public crypto.PublicKey) []byte {
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(d.life), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, d.ca, public, d.key)
	if err != nil {
		d.t.Error(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (d *door) answer(w http.ResponseWriter, code int, obj runtime.Object) {
	data, err := d.scheme.Encode(obj, scheme.Protobuf)
	if err != nil {
		d.t.Error(err)
	}
	w.Header().Set("Content-Type", scheme.Protobuf)
	w.WriteHeader(code)
	w.Write(data)
}

// bootstrap writes a bootstrap kubeconfig with a token.
func (d *door) bootstrap(path string) {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: d.Certificate().Raw})
	config := kubeconfig.New("boot", kubeconfig.Cluster{Server: d.URL, CertificateAuthorityData: ca}, kubeconfig.User{Token: "abcdef.0123456789abcdef"})
	if err := config.Write(path, 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func TestAMachineJoinsAndStaysANode(t *testing.T) {
	d := newDoor(t)
	dir := t.TempDir()
	c := credentials{kubeconfig: filepath.Join(dir, "kubelet.conf"), bootstrap: filepath.Join(dir, "boot.conf"), certDir: filepath.Join(dir, "pki"), rotate: true}
	identify := func() (*identity, error) {
		return c.identify(t.Context(), "a", prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	}
	if _, err := identify(); err == nil || !strings.Contains(err.Error(), "boot.conf") {
		t.Fatalf("without any credential: %v", err)
	}
	d.bootstrap(c.bootstrap)
	id, err := identify()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Bearer abcdef.0123456789abcdef"}, d.by); diff != "" {
		t.Error(diff)
	}
	leaf, err := x509.ParseCertificate(id.keep.Current().Certificate[0])
	if err != nil || leaf.Subject.CommonName != "system:node:a" {
		t.Errorf("%v, %v", leaf.Subject, err)
	}
	for _, file := range []string{c.kubeconfig, c.store("kubelet-client").Path()} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", file, info, err)
		}
	}
	if text, err := os.ReadFile(c.kubeconfig); err != nil || strings.Contains(string(text), "abcdef") || !strings.Contains(string(text), "kubelet-client-current.pem") {
		t.Errorf("the kubeconfig that is left: %s, %v", text, err)
	}

	// Neither the next start nor a renewal needs the bootstrap credential.
	if err := os.Remove(c.bootstrap); err != nil {
		t.Fatal(err)
	}
	if id, err = identify(); err != nil {
		t.Fatal(err)
	}
	if err := id.keep.Obtain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := d.by[len(d.by)-1]; len(d.by) != 2 || got != "system:node:a" {
		t.Errorf("renewed by %v", d.by)
	}

	// A machine whose certificate has expired bootstraps again if its credential permits.
	d.life = -time.Minute
	template := pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}}
	key, err := c.store("kubelet-client").Key()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.store("kubelet-client").Save(d.sign(template, key.Public()), key, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	d.life = time.Hour
	if _, err := identify(); err == nil || !strings.Contains(err.Error(), "--bootstrap-kubeconfig") {
		t.Errorf("with a certificate of the past: %v", err)
	}
	d.bootstrap(c.bootstrap)
	if _, err := identify(); err != nil || d.by[len(d.by)-1] != "Bearer abcdef.0123456789abcdef" {
		t.Errorf("%v, asked by %v", err, d.by)
	}
	// A new hostname means another node.
	if _, err := c.identify(t.Context(), "b", prometheus.NewRegistry(), slog.New(slog.DiscardHandler)); err != nil || len(d.by) != 4 {
		t.Errorf("%v, asked by %v", err, d.by)
	}
}

func TestRejectedBootstrapCredential(t *testing.T) {
	for want, refusal := range map[string]*apierrors.StatusError{
		"podium token create":      apierrors.NewUnauthorized("Unauthorized"),
		"system:node-bootstrapper": apierrors.NewForbidden(certificatesv1.Resource("certificatesigningrequests"), "", nil),
	} {
		d := newDoor(t)
		d.refusal = refusal
		dir := t.TempDir()
		c := credentials{kubeconfig: filepath.Join(dir, "kubelet.conf"), bootstrap: filepath.Join(dir, "boot.conf"), certDir: filepath.Join(dir, "pki")}
		d.bootstrap(c.bootstrap)
		_, err := c.identify(t.Context(), "a", prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "0123456789") {
			t.Errorf("%v, want something about %s and not the token", err, want)
		}
	}
}

func TestAServingCertificateNamesTheNode(t *testing.T) {
	if servingAsk(nil) != nil {
		t.Error("asked for nobody")
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	if servingAsk(n) != nil {
		t.Error("asked for a node without an address")
	}
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "a"}, {Type: corev1.NodeInternalDNS, Address: "a.internal"},
		{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::1"},
	}
	ask := servingAsk(n)
	want := x509.CertificateRequest{Subject: nodeSubject("a"), DNSNames: []string{"a", "a.internal"}, IPAddresses: []net.IP{net.ParseIP("192.0.2.1"), net.ParseIP("2001:db8::1")}}
	if diff := cmp.Diff(want, ask.Template); diff != "" || ask.Signer != "kubernetes.io/kubelet-serving" {
		t.Errorf("%s\n%s", ask.Signer, diff)
	}
}
