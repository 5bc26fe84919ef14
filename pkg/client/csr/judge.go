package csr

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

// User name prefix and group of kubelets.
const (
	NodePrefix = "system:node:"
	NodeGroup  = "system:nodes"
)

// Is reports whether a request has a condition of type t that is true.
func Is(c *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(c.Status.Conditions, func(cond certificatesv1.CertificateSigningRequestCondition) bool {
		return cond.Type == t && (cond.Status == corev1.ConditionTrue || cond.Status == "")
	})
}

// CheckSigner returns an error that says why a request breaks the rules of its
// kubernetes.io signer, or nil if it follows them.
// https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#kubernetes-signers
func CheckSigner(signer string, r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch signer {
	case certificatesv1.KubeAPIServerClientSignerName:
		return checkClient(usages)
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		return checkKubeletClient(r, usages)
	case certificatesv1.KubeletServingSignerName:
		return checkKubeletServing(r, usages)
	}
	return fmt.Errorf("unrecognized signerName: %q", signer)
}

func checkClient(usages []certificatesv1.KeyUsage) error {
	for _, u := range usages {
		switch u {
		case certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment:
		default:
			return fmt.Errorf("invalid usage for client certificate: %s", u)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("missing required usage for client certificate: %s", certificatesv1.UsageClientAuth)
	}
	return nil
}

func checkKubeletClient(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !ofNodes(r):
		return errOrganization
	case len(r.DNSNames) > 0:
		return errors.New("DNS subjectAltNames are not allowed")
	case len(r.EmailAddresses) > 0:
		return errEmail
	case len(r.IPAddresses) > 0:
		return errors.New("IP subjectAltNames are not allowed")
	case len(r.URIs) > 0:
		return errURI
	case !ofNode(r):
		return errCommonName
	}
	return checkUsages(usages, certificatesv1.UsageClientAuth)
}

func checkKubeletServing(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !ofNodes(r):
		return errOrganization
	case len(r.DNSNames) == 0 && len(r.IPAddresses) == 0:
		return errors.New("DNS or IP subjectAltName is required")
	case len(r.EmailAddresses) > 0:
		return errEmail
	case len(r.URIs) > 0:
		return errURI
	case !ofNode(r):
		return errCommonName
	}
	return checkUsages(usages, certificatesv1.UsageServerAuth)
}

// The texts are upstream's: they become the condition's message.
var (
	errOrganization = errors.New("subject organization is not system:nodes")
	//lint:ignore ST1005 upstream's text ends so
	errCommonName = errors.New("subject common name does not begin with system:node:")
	//lint:ignore ST1005 upstream's text begins so
	errEmail = errors.New("Email subjectAltNames are not allowed")
	errURI   = errors.New("URI subjectAltNames are not allowed")
)

func ofNodes(r *x509.CertificateRequest) bool {
	return slices.Equal(r.Subject.Organization, []string{NodeGroup})
}

func ofNode(r *x509.CertificateRequest) bool {
	return strings.HasPrefix(r.Subject.CommonName, NodePrefix)
}

// checkUsages requires exactly the usages of purpose. Key encipherment is optional
// because it applies to RSA keys only.
func checkUsages(usages []certificatesv1.KeyUsage, purpose certificatesv1.KeyUsage) error {
	want := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, purpose}
	have := slices.Sorted(slices.Values(usages))
	short := slices.Sorted(slices.Values([]certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, purpose}))
	slices.Sort(want)
	if !slices.Equal(slices.Compact(have), want) && !slices.Equal(slices.Compact(have), short) {
		return fmt.Errorf("usages did not match %v", want)
	}
	return nil
}
