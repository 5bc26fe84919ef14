package registry_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// pkcs10 is a request that its own key has signed, and a certificate of that key.
func pkcs10(t *testing.T, subject pkix.Name) (request, certificate []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: subject, NotAfter: today.Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
}

func newCSR(t *testing.T, change ...func(*certificatesv1.CertificateSigningRequest)) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	text, _ := pkcs10(t, pkix.Name{CommonName: "ann"})
	c := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "x", CreationTimestamp: metav1.NewTime(today.Add(-time.Hour))},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: text, SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func condition(t certificatesv1.RequestConditionType) certificatesv1.CertificateSigningRequestCondition {
	at := metav1.NewTime(today)
	return certificatesv1.CertificateSigningRequestCondition{Type: t, Status: corev1.ConditionTrue, LastUpdateTime: at, LastTransitionTime: at}
}

func TestCSRIsTheRequesters(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["certificatesigningrequests"]
	req := request.New(request.Info{}, http.Header{})
	req.User = &request.User{Name: "ann", UID: "7", Groups: []string{"staff"}, Extra: map[string][]string{"k": {"v"}}}
	c := newCSR(t, func(c *certificatesv1.CertificateSigningRequest) {
		c.Spec.Username, c.Spec.Groups = "kubernetes-admin", []string{"system:masters"}
		c.Spec.Extra = map[string]certificatesv1.ExtraValue{"a": {"b"}}
		c.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{condition(certificatesv1.CertificateApproved)}
	})
	if err := k.Prepare(request.With(t.Context(), req), nil, c, nil); err != nil {
		t.Fatal(err)
	}
	want := certificatesv1.CertificateSigningRequest{ObjectMeta: c.ObjectMeta, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: c.Spec.Request, SignerName: c.Spec.SignerName, Usages: c.Spec.Usages,
		Username: "ann", UID: "7", Groups: []string{"staff"}, Extra: map[string]certificatesv1.ExtraValue{"k": {"v"}},
	}}
	if diff := cmp.Diff(want, *c); diff != "" {
		t.Error(diff)
	}
	next := c.DeepCopy()
	next.Spec.Username, next.Labels = "bob", map[string]string{"a": "b"}
	if err := k.Prepare(request.With(t.Context(), req), nil, next, c); err != nil || next.Spec.Username != "ann" || next.Labels["a"] != "b" {
		t.Errorf("after an update: %v, %+v", err, next)
	}
}

func TestCSRValidation(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["certificatesigningrequests"]
	for name, row := range map[string]struct {
		change func(*certificatesv1.CertificateSigningRequest)
		want   []string
	}{
		"good":           {func(c *certificatesv1.CertificateSigningRequest) { c.Spec.ExpirationSeconds = new(int32(600)) }, nil},
		"another signer": {func(c *certificatesv1.CertificateSigningRequest) { c.Spec.SignerName = "example.com/a.b" }, nil},
		"short":          {func(c *certificatesv1.CertificateSigningRequest) { c.Spec.ExpirationSeconds = new(int32(599)) }, []string{`spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)`}},
		"no usages":      {func(c *certificatesv1.CertificateSigningRequest) { c.Spec.Usages = nil }, []string{`spec.usages: Required value: usages must be provided`}},
		"a usage twice": {func(c *certificatesv1.CertificateSigningRequest) {
			c.Spec.Usages = append(c.Spec.Usages, c.Spec.Usages...)
		}, []string{`spec.usages[1]: Duplicate value: "client auth"`}},
		"no signer":      {func(c *certificatesv1.CertificateSigningRequest) { c.Spec.SignerName = "" }, []string{`spec.signerName: Required value`}},
		"the legacy one": {func(c *certificatesv1.CertificateSigningRequest) { c.Spec.SignerName = "kubernetes.io/legacy-unknown" }, []string{`spec.signerName: Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not allowed via this API version`}},
		"a bare signer":  {func(c *certificatesv1.CertificateSigningRequest) { c.Spec.SignerName = "me" }, []string{`spec.signerName: Invalid value: "me": must be a fully qualified domain and path of the form 'example.com/signer-name'`}},
		"a short domain": {func(c *certificatesv1.CertificateSigningRequest) { c.Spec.SignerName = "me/you" }, []string{`spec.signerName: Invalid value: "me/you": should be a domain with at least two segments separated by dots`}},
		"no PEM":         {func(c *certificatesv1.CertificateSigningRequest) { c.Spec.Request = []byte("x") }, []string{`spec.request: Invalid value: "eA==": PEM block type must be CERTIFICATE REQUEST`}},
	} {
		if diff := cmp.Diff(row.want, texts(k.Validate(newCSR(t, row.change), nil))); diff != "" {
			t.Errorf("%s\n%s", name, diff)
		}
	}
	forged := newCSR(t)
	block, _ := pem.Decode(forged.Spec.Request)
	block.Bytes[len(block.Bytes)-1] ^= 1
	forged.Spec.Request = pem.EncodeToMemory(block)
	if errs := k.Validate(forged, nil); len(errs) != 1 || errs[0].Field != "spec.request" {
		t.Errorf("with another's signature: %v", errs)
	}
	unknown := newCSR(t, func(c *certificatesv1.CertificateSigningRequest) { c.Spec.Usages = []certificatesv1.KeyUsage{"fun"} })
	if errs := k.Validate(unknown, nil); len(errs) != 1 || errs[0].Type != field.ErrorTypeNotSupported {
		t.Errorf("an unknown usage: %v", errs)
	}
}

// changed returns what a subresource makes of new, and its validation errors.
func changed(t *testing.T, k *registry.Kind, sub string, new, old scheme.Object) []string {
	t.Helper()
	s := subresource(t, k, sub)
	if err := s.PreparePart(context.Background(), new, old); err != nil {
		t.Fatal(err)
	}
	return texts(s.ValidatePart(new, old))
}

func TestCSRSubresourcesKeepTheirOwn(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["certificatesigningrequests"]
	_, cert := pkcs10(t, pkix.Name{CommonName: "ann"})
	with := func(conds ...certificatesv1.RequestConditionType) func(*certificatesv1.CertificateSigningRequest) {
		return func(c *certificatesv1.CertificateSigningRequest) {
			for _, cond := range conds {
				c.Status.Conditions = append(c.Status.Conditions, condition(cond))
			}
		}
	}
	issued := func(c *certificatesv1.CertificateSigningRequest) { c.Status.Certificate = cert }
	junk := func(c *certificatesv1.CertificateSigningRequest) { c.Status.Certificate = []byte("junk") }
	type list = []func(*certificatesv1.CertificateSigningRequest)
	for name, row := range map[string]struct {
		sub      string
		old, new list
		want     []string
		state    string
	}{
		"approve":                    {"approval", nil, list{with("Approved")}, nil, "Approved"},
		"approve and slip a cert in": {"approval", nil, list{with("Approved"), issued}, nil, "Approved"},
		"approve and deny": {"approval", nil, list{with("Approved", "Denied")}, []string{
			`status.conditions[1].type: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive`}, ""},
		"take it back":     {"approval", list{with("Approved")}, nil, []string{`status.conditions: Forbidden: updates may not remove a condition of type "Approved"`}, ""},
		"sign":             {"status", list{with("Approved")}, list{with("Approved"), issued}, nil, "Approved,Issued"},
		"fail":             {"status", list{with("Approved")}, list{with("Approved", "Failed")}, nil, "Approved,Failed"},
		"sign and approve": {"status", nil, list{with("Approved"), issued}, []string{`status.conditions: Forbidden: updates may not add a condition of type "Approved"`}, ""},
		"sign nonsense":    {"status", list{with("Approved")}, list{with("Approved"), junk}, []string{`status.certificate: Invalid value: "<certificate data>": must contain at least one CERTIFICATE PEM block`}, ""},
		"twice the same":   {"approval", nil, list{with("Odd", "Odd")}, []string{`status.conditions[1].type: Duplicate value: "Odd"`}, ""},
		"sign what is signed": {"status", list{with("Approved"), issued}, list{with("Approved"), issued, func(c *certificatesv1.CertificateSigningRequest) {
			c.Status.Certificate = append(c.Status.Certificate, cert...)
		}}, []string{`status.certificate: Forbidden: updates may not modify existing certificate content`}, ""},
	} {
		base := newCSR(t)
		old, next := base.DeepCopy(), base.DeepCopy()
		for _, f := range row.old {
			f(old)
		}
		for _, f := range row.new {
			f(next)
		}
		next.Spec.Username = "somebody else"
		next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: "Timeless", Status: corev1.ConditionFalse})
		got := changed(t, k, row.sub, next, old)
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s\n%s", name, diff)
		}
		if next.Spec.Username != "" {
			t.Errorf("%s: the spec was changed", name)
		}
		if state := k.Row(next, today)[5]; row.want == nil && state != row.state {
			t.Errorf("%s: shown as %v, want %s", name, state, row.state)
		}
		for _, c := range next.Status.Conditions {
			if c.LastUpdateTime.Time != today || c.LastTransitionTime.Time != today {
				t.Errorf("%s: a condition without times: %+v", name, c)
			}
		}
	}
}

func TestCSRRow(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["certificatesigningrequests"]
	c := newCSR(t, func(c *certificatesv1.CertificateSigningRequest) {
		c.Spec.Username, c.Spec.ExpirationSeconds = "ann", new(int32(86400))
	})
	if diff := cmp.Diff([]any{"x", "60m", "kubernetes.io/kube-apiserver-client", "ann", "24h", "Pending"}, k.Row(c, today)); diff != "" {
		t.Error(diff)
	}
	if names := k.ValidateName(strings.Repeat("A_", 3), false); len(names) > 0 {
		t.Errorf("any name will do: %v", names)
	}
}
