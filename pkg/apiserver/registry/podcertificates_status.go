package registry

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/mail"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Sizes in bytes, which bound the work of parsing.
const (
	maxStub  = 10 << 10
	maxChain = 100 << 10
)

// validateStub validates a certificate signing request in DER, of which signers use
// the public key. Its signature proves that the kubelet has the private key.
func validateStub(der []byte, path *field.Path) field.ErrorList {
	if len(der) > maxStub {
		return field.ErrorList{field.TooLong(path, "", maxStub)}
	}
	stub, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "must be a valid PKCS#10 CSR")}
	}
	switch key := stub.PublicKey.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() && key.Curve != elliptic.P384() && key.Curve != elliptic.P521() {
			return field.ErrorList{field.Invalid(path, "curve "+key.Curve.Params().Name, "elliptic public keys must use curve P256, P384, or P521")}
		}
	case *rsa.PublicKey:
		if bits := key.Size() * 8; bits != 3072 && bits != 4096 {
			return field.ErrorList{field.Invalid(path, fmt.Sprintf("%d-bit modulus", bits), "RSA keys must have modulus size 3072 or 4096")}
		}
	default:
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "unknown public key type; supported types are Ed25519, ECDSA, and RSA")}
	}
	if stub.CheckSignature() != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "invalid signature")}
	}
	return nil
}

// validatePodCertificateStatus checks that the status changes once, to a certificate
// that fits the request, or to a refusal without one.
func validatePodCertificateStatus(new, old *certificatesv1.PodCertificateRequest, now time.Time) field.ErrorList {
	path := field.NewPath("status")
	if errs := validatePodCertificateConditions(new.Status.Conditions, path.Child("conditions")); len(errs) > 0 {
		return errs
	}
	same := func(want certificatesv1.PodCertificateRequestStatus, text string) field.ErrorList {
		if apiequality.Semantic.DeepEqual(new.Status, want) {
			return nil
		}
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, text)}
	}
	switch {
	case len(old.Status.Conditions) > 0:
		return same(old.Status, "immutable after PodCertificateRequest is issued, denied, or failed")
	case len(new.Status.Conditions) == 0:
		return same(old.Status, `status is immutable unless transitioning to "Issued", "Denied", or "Failed"`)
	case !meta.IsStatusConditionTrue(new.Status.Conditions, certificatesv1.PodCertificateRequestConditionTypeIssued):
		return same(certificatesv1.PodCertificateRequestStatus{Conditions: new.Status.Conditions},
			"non-condition status fields must be empty when denying or failing the PodCertificateRequest")
	}
	leaf, errs := validateIssued(new.Status.CertificateChain, old.Spec.StubPKCS10Request, path.Child("certificateChain"))
	if len(errs) > 0 {
		return errs
	}
	return validateCertificateTimes(new, leaf, now, path)
}

// validatePodCertificateConditions requires at most one condition, which is True.
func validatePodCertificateConditions(conditions []metav1.Condition, path *field.Path) field.ErrorList {
	known := []string{certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied,
		certificatesv1.PodCertificateRequestConditionTypeFailed}
	var errs field.ErrorList
	for i, c := range conditions {
		if at := path.Index(i).Child("type"); c.Type != known[0] && c.Type != known[1] && c.Type != known[2] {
			errs = append(errs, field.NotSupported(at, c.Type, known))
			continue
		} else if i > 0 {
			errs = append(errs, field.Invalid(at, c.Type, `There may be at most one condition with type "Issued", "Denied", or "Failed"`))
		}
		if c.Status != metav1.ConditionTrue {
			errs = append(errs, field.NotSupported(path.Index(i).Child("status"), c.Status, []metav1.ConditionStatus{metav1.ConditionTrue}))
		}
	}
	return append(errs, metavalidation.ValidateConditions(conditions, path)...)
}

// validateIssued validates a chain in PEM and returns its first certificate, which
// must be for the key of the request.
func validateIssued(chain string, stub []byte, path *field.Path) (*x509.Certificate, field.ErrorList) {
	bad := func(value any, text string) (*x509.Certificate, field.ErrorList) {
		return nil, field.ErrorList{field.Invalid(path, value, text)}
	}
	if len(chain) > maxChain {
		return nil, field.ErrorList{field.TooLong(path, "", maxChain)}
	}
	var leaf *x509.Certificate
	for rest := []byte(chain); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return bad(chain, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil && leaf == nil:
			return bad(chain, "leaf certificate does not parse as valid X.509")
		case err != nil:
			return bad(chain, "intermediate certificate does not parse as valid X.509")
		case leaf == nil:
			leaf = cert
		}
	}
	if leaf == nil {
		return bad(chain, "issued certificate chain must contain at least one certificate")
	}
	request, err := x509.ParseCertificateRequest(stub)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(field.NewPath("spec", "stubPKCS10Request"), field.OmitValueType{}, "must be a valid PKCS#10 CSR")}
	}
	if key, ok := request.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !key.Equal(leaf.PublicKey) {
		return bad(chain, "leaf certificate was not issued to the requested public key")
	}
	return leaf, validateLeafNames(leaf, path)
}

func validateLeafNames(leaf *x509.Certificate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range leaf.DNSNames {
		switch {
		case name == "":
			errs = append(errs, field.Invalid(path, name, "leaf certificate should not contain empty DNSName"))
		case strings.Contains(name, ".."):
			errs = append(errs, field.Invalid(path, name, "leaf certificate's DNSName should not contain '..'"))
		case strings.HasPrefix(name, "."), strings.HasSuffix(name, "."):
			errs = append(errs, field.Invalid(path, name, "leaf certificate's DNSName should not start or end with '.'"))
		}
	}
	for _, address := range leaf.EmailAddresses {
		if _, err := mail.ParseAddress(address); err != nil {
			errs = append(errs, field.Invalid(path, address, "leaf certificate should not contain invalid EmailAddress"))
		}
	}
	return errs
}

// validateCertificateTimes compares the times in the status with those of the
// certificate, its lifetime with the request, and its start with now.
func validateCertificateTimes(r *certificatesv1.PodCertificateRequest, leaf *x509.Certificate, now time.Time, path *field.Path) field.ErrorList {
	const skew, margin = 5 * time.Minute, 10 * time.Minute
	s := &r.Status
	var errs field.ErrorList
	for _, t := range []struct {
		name, text string
		at         *metav1.Time
	}{
		{"notBefore", "must be present and consistent with the issued certificate", s.NotBefore},
		{"notAfter", "must be present and consistent with the issued certificate", s.NotAfter},
		{"beginRefreshAt", "must be present and in the range [notbefore+10min, notafter-10min]", s.BeginRefreshAt},
	} {
		if t.at == nil {
			errs = append(errs, field.Required(path.Child(t.name), t.text))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	bad := func(name string, value any, text string) field.ErrorList {
		return field.ErrorList{field.Invalid(path.Child(name), value, text)}
	}
	lifetime, most := leaf.NotAfter.Sub(leaf.NotBefore), *r.Spec.MaxExpirationSeconds
	switch {
	case !s.NotBefore.Time.Equal(leaf.NotBefore):
		return bad("notBefore", s.NotBefore.Time, "must be set to the NotBefore time encoded in the leaf certificate")
	case now.Sub(leaf.NotBefore).Abs() >= skew:
		return bad("notBefore", s.NotBefore.Time, "must be set to within 5 minutes of kube-apiserver's current time")
	case !s.NotAfter.Time.Equal(leaf.NotAfter):
		return bad("notAfter", s.NotAfter.Time, "must be set to the NotAfter time encoded in the leaf certificate")
	case lifetime < minPodCertificate:
		return bad("certificateChain", lifetime.String(), "leaf certificate lifetime must be >= 1 hour")
	case lifetime > time.Duration(most)*time.Second:
		return bad("certificateChain", lifetime.String(), fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%v)", most))
	case s.BeginRefreshAt.Time.Before(leaf.NotBefore.Add(margin)):
		return bad("beginRefreshAt", s.BeginRefreshAt.Time, "must be at least 10 minutes after status.notBefore")
	case s.BeginRefreshAt.Time.After(leaf.NotAfter.Add(-margin)):
		return bad("beginRefreshAt", s.BeginRefreshAt.Time, "must be at least 10 minutes before status.notAfter")
	}
	return nil
}
