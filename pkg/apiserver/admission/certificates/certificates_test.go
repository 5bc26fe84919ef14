package certificates_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/certificates"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
)

func csr(t *testing.T, signer string, groups ...string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "ann", Organization: groups}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: signer, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}}
}

func TestApprovingAndSigningArePermissions(t *testing.T) {
	may := authz.Func(func(_ context.Context, u *request.User, info *request.Info) (authz.Decision, string) {
		if info.Resource == "signers" && info.Group == "certificates.k8s.io" && slices.Contains(u.Groups, info.Verb+" "+info.Name) {
			return authz.Allow, ""
		}
		return authz.NoOpinion, ""
	})
	signed := func(c *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
		out := c.DeepCopy()
		out.Status.Certificate = []byte("x")
		return out
	}
	old := csr(t, "example.com/wheels")
	for name, row := range map[string]struct {
		sub   string
		new   *certificatesv1.CertificateSigningRequest
		right string
		want  string
	}{
		"approve, by name":        {"approval", old, "approve example.com/wheels", ""},
		"approve, by domain":      {"approval", old, "approve example.com/*", ""},
		"approve another's":       {"approval", old, "approve example.com/doors", `user not permitted to approve requests with signerName "example.com/wheels"`},
		"approve as who may sign": {"approval", old, "sign example.com/wheels", "not permitted to approve"},
		"sign":                    {"status", signed(old), "sign example.com/*", ""},
		"sign as who may approve": {"status", signed(old), "approve example.com/*", `user not permitted to sign requests with signerName "example.com/wheels"`},
		"change nothing":          {"status", old, "", ""},
		"label it":                {"", signed(old), "", ""},
	} {
		a := &admission.Attributes{Operation: admission.Update, Resource: certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"), Subresource: row.sub, Old: old, Object: row.new,
			User: &request.User{Name: "ann", Groups: []string{row.right}}}
		h := admission.Host{Authorizer: may}
		err := admission.Chain{certificates.Approval(h), certificates.Signing(h)}.Admit(t.Context(), a, nil)
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
}

func TestNobodyAsksToBeAnAdministrator(t *testing.T) {
	for name, row := range map[string]struct {
		csr  *certificatesv1.CertificateSigningRequest
		want string
	}{
		"a user":           {csr(t, certificatesv1.KubeAPIServerClientSignerName, "staff"), ""},
		"an administrator": {csr(t, certificatesv1.KubeAPIServerClientSignerName, "staff", "system:masters"), "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"},
		"another signer's": {csr(t, "example.com/wheels", "system:masters"), ""},
		"no request":       {&certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientSignerName}}, "failed to parse CSR"},
	} {
		a := &admission.Attributes{Operation: admission.Create, Resource: certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"), Object: row.csr, User: &request.User{Name: "ann"}}
		err := admission.Chain{certificates.SubjectRestriction(admission.Host{})}.Admit(t.Context(), a, nil)
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
}
