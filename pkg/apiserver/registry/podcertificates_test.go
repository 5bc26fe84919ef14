package registry_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

func TestPodCertificateSpec(t *testing.T) {
	s := readSamples(t)
	s.each(t, "PodCertificateRequest", []judged{
		{name: "Empty", patch: `{spec: {podName: "", podUID: "", signerName: "", stubPKCS10Request: ""}}`, want: []string{
			"spec.signerName: Required value",
			`spec.podName: Invalid value: ""`,
			`spec.podUID: Invalid value: "": must not be empty`,
			"spec.stubPKCS10Request: Invalid value: must be a valid PKCS#10 CSR"}},
		{name: "Hour", patch: `{spec: {maxExpirationSeconds: 3600}}`},
		{name: "LessThanAnHour", patch: `{spec: {maxExpirationSeconds: 3599}}`, want: []string{
			"spec.maxExpirationSeconds: Invalid value: 3599: must be in the range [3600, 7862400]"}},
		{name: "TwoDaysOfUpstreamsSigner", patch: `{spec: {signerName: kubernetes.io/s, maxExpirationSeconds: 172800}}`, want: []string{
			"spec.maxExpirationSeconds: Invalid value: 172800: must be in the range [3600, 86400]"}},
		{name: "TwoDays", patch: `{spec: {maxExpirationSeconds: 172800}}`},
		{name: "AnnotationWithoutDomain", patch: `{spec: {unverifiedUserAnnotations: {a: b}}}`, want: []string{
			`spec.unverifiedUserAnnotations: Invalid value: "a": must be a domain-prefixed key (such as "acme.io/foo")`}},
		{name: "Annotation", patch: `{spec: {unverifiedUserAnnotations: {example.com/a: b}}}`},
		{name: "UpdateSpec", patch: `{spec: {podName: q}}`, want: []string{"spec: Invalid value: " + `{"signerName":"example.com/s","podName":"q","podUID":"u","serviceAccountName":"s","serviceAccountUID":"u","nodeName":"m","nodeUID":"u","maxExpirationSeconds":86400,"stubPKCS10Request":"MH8wMwIBADAAMCowBQYDK2VwAyEAY7fzDMYAmAvIuyiPsxTOoquDbde7Oomn3eChW66qFi+gADAFBgMrZXADQQCIHF9XMnOCTV9v0/1BeG5NBdxItYVib4d98R4mUaUwygapiTQHRB07MGyEcAmLsTiIC7AV+KaD618nfUL3FnAE"}: field is immutable`}},
	})
}

// issue returns a request with a new key, and the status with a certificate for it that
// change has changed.
func issue(t *testing.T, now time.Time, change func(*x509.Certificate)) (*certificatesv1.PodCertificateRequest, certificatesv1.PodCertificateRequestStatus) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.Add(2 * time.Hour)}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	at := func(offset time.Duration) *metav1.Time { return &metav1.Time{Time: template.NotBefore.Add(offset)} }
	return &certificatesv1.PodCertificateRequest{Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: "example.com/s", StubPKCS10Request: stub, MaxExpirationSeconds: new(int32(7200)),
		}}, certificatesv1.PodCertificateRequestStatus{
			Conditions: []metav1.Condition{decided("Issued")}, NotBefore: at(0), NotAfter: &metav1.Time{Time: template.NotAfter}, BeginRefreshAt: at(time.Hour),
			CertificateChain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		}
}

func decided(kind string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "R", LastTransitionTime: metav1.NewTime(today)}
}

func TestPodCertificateStatus(t *testing.T) {
	type status = certificatesv1.PodCertificateRequestStatus
	const final = "status: Invalid value: immutable after PodCertificateRequest is issued, denied, or failed"
	other, _ := issue(t, time.Now().UTC().Truncate(time.Second), nil)
	for name, row := range map[string]struct {
		reason string
		cert   func(*x509.Certificate)
		change func(old *certificatesv1.PodCertificateRequest, next *status)
		want   []string
	}{
		"issued": {reason: "the certificate fits the request"},
		"denied": {reason: "a signer may refuse", change: func(_ *certificatesv1.PodCertificateRequest, s *status) {
			*s = status{Conditions: []metav1.Condition{decided("Denied")}}
		}},
		"denied with a certificate": {reason: "it would be used", change: func(_ *certificatesv1.PodCertificateRequest, s *status) { s.Conditions[0].Type = "Failed" },
			want: []string{"status: Invalid value: non-condition status fields must be empty when denying or failing the PodCertificateRequest"}},
		"not decided": {reason: "a certificate without a decision", change: func(_ *certificatesv1.PodCertificateRequest, s *status) { s.Conditions = nil },
			want: []string{`status: Invalid value: status is immutable unless transitioning to "Issued", "Denied", or "Failed"`}},
		"two decisions": {reason: "only one can be true", change: func(_ *certificatesv1.PodCertificateRequest, s *status) {
			s.Conditions = append(s.Conditions, decided("Denied"))
		}, want: []string{`status.conditions[1].type: Invalid value: "Denied": There may be at most one condition with type "Issued", "Denied", or "Failed"`}},
		"another decision": {reason: "kubelets do not know it", change: func(_ *certificatesv1.PodCertificateRequest, s *status) { s.Conditions[0].Type = "Maybe" },
			want: []string{`status.conditions[0].type: Unsupported value: "Maybe": supported values: "Issued", "Denied", "Failed"`}},
		"again": {reason: "decided once", change: func(old *certificatesv1.PodCertificateRequest, _ *status) {
			old.Status.Conditions = []metav1.Condition{decided("Denied")}
		}, want: []string{final}},
		"another key": {reason: "the pod has no such key", change: func(old *certificatesv1.PodCertificateRequest, _ *status) {
			old.Spec.StubPKCS10Request = other.Spec.StubPKCS10Request
		}, want: []string{"leaf certificate was not issued to the requested public key"}},
		"an hour ago": {reason: "its times are those of the server", cert: func(c *x509.Certificate) { c.NotBefore = c.NotBefore.Add(-time.Hour) },
			change: func(old *certificatesv1.PodCertificateRequest, _ *status) { *old.Spec.MaxExpirationSeconds = 86400 },
			want:   []string{"must be set to within 5 minutes of kube-apiserver's current time"}},
		"too long": {reason: "the request limits it", change: func(old *certificatesv1.PodCertificateRequest, _ *status) { *old.Spec.MaxExpirationSeconds = 3600 },
			want: []string{"leaf certificate lifetime must be <= spec.maxExpirationSeconds (3600)"}},
		"refresh at the end": {reason: "the kubelet needs time", change: func(_ *certificatesv1.PodCertificateRequest, s *status) { s.BeginRefreshAt = s.NotAfter },
			want: []string{"must be at least 10 minutes before status.notAfter"}},
		"no times": {reason: "kubelets read them", change: func(_ *certificatesv1.PodCertificateRequest, s *status) {
			s.NotBefore, s.NotAfter, s.BeginRefreshAt = nil, nil, nil
		}, want: []string{"status.notBefore: Required value", "status.notAfter: Required value", "status.beginRefreshAt: Required value"}},
		"no certificate": {reason: "nothing to mount", change: func(_ *certificatesv1.PodCertificateRequest, s *status) { s.CertificateChain = "text" },
			want: []string{"issued certificate chain must contain at least one certificate"}},
		"a key instead": {reason: "not a certificate", change: func(_ *certificatesv1.PodCertificateRequest, s *status) {
			s.CertificateChain += string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte{1}}))
		}, want: []string{"issued certificate chain must consist entirely of CERTIFICATE PEM blocks"}},
		"a name with dots": {reason: "clients would not accept it", cert: func(c *x509.Certificate) { c.DNSNames = []string{".example.com"} },
			want: []string{"leaf certificate's DNSName should not start or end with '.'"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := readSamples(t)
			old, next := issue(t, today.UTC().Truncate(time.Second), row.cert)
			if row.change != nil {
				row.change(old, &next)
			}
			new := old.DeepCopy()
			new.Status = next
			errs := s.judge(t, s.kinds["podcertificaterequests"], "status", new, old)
			if len(errs) != len(row.want) {
				t.Fatalf("%s: %v", row.reason, errs)
			}
			for i, text := range texts(errs) {
				if !strings.Contains(text, row.want[i]) {
					t.Errorf("%s: got %q, want %q", row.reason, text, row.want[i])
				}
			}
		})
	}
}

// A stub is checked for its key and its size before it is trusted.
func TestPodCertificateStub(t *testing.T) {
	s := readSamples(t)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	forged := append([]byte(nil), good...)
	forged[len(forged)-1] ^= 1
	for name, row := range map[string]struct {
		stub []byte
		want string
	}{
		"good":   {good, ""},
		"forged": {forged, "invalid signature"},
		"large":  {make([]byte, 11<<10), "Too long"},
	} {
		k, obj := s.make(t, "PodCertificateRequest", "")
		obj.(*certificatesv1.PodCertificateRequest).Spec.StubPKCS10Request = row.stub
		errs := s.judge(t, k, "", obj, nil)
		if (len(errs) == 0) != (row.want == "") || len(errs) > 0 && !strings.Contains(errs[0].Error(), row.want) {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

// mayOnlySign allows a user to sign for the named signer only.
type mayOnlySign struct {
	registry.Access
	name string
}

func (s mayOnlySign) Authorize(_ context.Context, _ *request.User, info *request.Info) (authz.Decision, string) {
	if info.Verb == "sign" && info.Resource == "signers" && info.Name == s.name {
		return authz.Allow, ""
	}
	return authz.NoOpinion, ""
}

// Only who may sign for the signer may write the status.
func TestPodCertificatesNeedTheRightToSign(t *testing.T) {
	for name, row := range map[string]struct {
		may     string
		user    *request.User
		allowed bool
	}{
		"the signer":        {"example.com/s", &request.User{Name: "u"}, true},
		"its domain":        {"example.com/*", &request.User{Name: "u"}, true},
		"another signer":    {"example.com/t", &request.User{Name: "u"}, false},
		"the server itself": {"", nil, true},
	} {
		s := scheme.New()
		kinds := registry.Kinds(s, registry.Config{Now: func() time.Time { return today }, Access: mayOnlySign{name: row.may}})
		for _, k := range kinds {
			if k.Resource != "podcertificaterequests" {
				continue
			}
			old, next := issue(t, today.UTC().Truncate(time.Second), nil)
			new := old.DeepCopy()
			new.Status = next
			err := subresource(t, k, "status").PreparePart(request.With(t.Context(), &request.Request{User: row.user}), new, old)
			if (err == nil) != row.allowed {
				t.Errorf("%s: %v", name, err)
			}
			if diff := cmp.Diff(next, new.Status); diff != "" {
				t.Error(diff)
			}
		}
	}
}
