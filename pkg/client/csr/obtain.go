package csr

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/backoff"
	"podium/pkg/client"
)

// Ask describes the certificate to request.
type Ask struct {
	Prefix   string // of the request's name
	Signer   string
	Usages   []certificatesv1.KeyUsage
	Template x509.CertificateRequest // subject and alternative names
}

// ErrRefused means that no certificate will be issued for this key: the request was
// denied, failed, was deleted, or does not match.
var ErrRefused = errors.New("refused")

// Back-off between reads of a request: short at first, since a controller approves
// most requests, then longer, since manual approval takes time.
const (
	firstLook = 50 * time.Millisecond
	lastLook  = 10 * time.Second
)

// Obtain creates a certificate signing request for key and blocks until it is issued,
// refused (ErrRefused) or ctx ends. It returns the certificate chain in PEM. The name
// of the request follows from ask and key, so that a caller that restarts resumes the
// existing request.
func Obtain(ctx context.Context, c *client.Client, ask Ask, key crypto.Signer) ([]byte, error) {
	requests := client.For[*certificatesv1.CertificateSigningRequest](c)
	name, err := nameOf(ask, key)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &ask.Template, key)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	request, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: der}), SignerName: ask.Signer, Usages: ask.Usages,
		},
	})
	if apierrors.IsAlreadyExists(err) {
		request, err = requests.Get(ctx, name)
	}
	if err != nil {
		return nil, fmt.Errorf("ask for a certificate of %s: %w", ask.Signer, err)
	}
	for look := (backoff.Backoff{Initial: firstLook, Max: lastLook}); ; {
		text, err := issued(request, ask, key)
		if text != nil || err != nil {
			return text, err
		}
		if err := look.Wait(ctx); err != nil {
			return nil, fmt.Errorf("certificate signing request %s waits to be approved and signed: %w", name, err)
		}
		again, err := requests.Get(ctx, name)
		switch {
		case err == nil:
			request = again
		case apierrors.IsNotFound(err):
			return nil, fmt.Errorf("certificate signing request %s was deleted: %w", name, ErrRefused)
		case ctx.Err() == nil && (apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err)):
			return nil, fmt.Errorf("look after certificate signing request %s: %w", name, err)
		}
	}
}

// nameOf returns a name that is unique to the request's content and key.
func nameOf(ask Ask, key crypto.Signer) (string, error) {
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", fmt.Errorf("encode the public key: %w", err)
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%v\n%s\n%q\n%v\n", ask.Signer, ask.Usages, ask.Template.Subject, ask.Template.DNSNames, ask.Template.IPAddresses)
	sum.Write(public)
	return ask.Prefix + hex.EncodeToString(sum.Sum(nil)[:16]), nil
}

// issued returns the certificate of an approved request, nil if it is still pending.
func issued(request *certificatesv1.CertificateSigningRequest, ask Ask, key crypto.Signer) ([]byte, error) {
	if parsed, err := Parse(request.Spec.Request); err != nil || request.Spec.SignerName != ask.Signer || !ownedBy(key, parsed.PublicKey) {
		return nil, fmt.Errorf("certificate signing request %s belongs to another requester: %w", request.Name, ErrRefused)
	}
	for _, cond := range request.Status.Conditions {
		if cond.Type == certificatesv1.CertificateDenied || cond.Type == certificatesv1.CertificateFailed {
			return nil, fmt.Errorf("certificate signing request %s: %s: %s %s: %w", request.Name, cond.Type, cond.Reason, cond.Message, ErrRefused)
		}
	}
	if len(request.Status.Certificate) == 0 || !Is(request, certificatesv1.CertificateApproved) {
		return nil, nil
	}
	chain, err := ParseChain(request.Status.Certificate)
	if err != nil {
		return nil, fmt.Errorf("certificate signing request %s: %v: %w", request.Name, err, ErrRefused)
	}
	if !ownedBy(key, chain[0].PublicKey) || time.Now().After(chain[0].NotAfter) {
		return nil, fmt.Errorf("certificate signing request %s has a certificate of another key or of the past: %w", request.Name, ErrRefused)
	}
	return request.Status.Certificate, nil
}

func ownedBy(key crypto.Signer, public crypto.PublicKey) bool {
	own, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && own.Equal(public)
}

// Fits reports whether a certificate has exactly the subject and the alternative
// names of want.
func Fits(cert *x509.Certificate, want *x509.CertificateRequest) bool {
	return cert.Subject.CommonName == want.Subject.CommonName &&
		same(cert.Subject.Organization, want.Subject.Organization, strings.Clone) &&
		same(cert.DNSNames, want.DNSNames, strings.ToLower) &&
		same(cert.IPAddresses, want.IPAddresses, net.IP.String)
}

// same reports whether a and b are equal as sets of text(element).
func same[T any](a, b []T, text func(T) string) bool {
	set := func(list []T) []string {
		out := make([]string, len(list))
		for i := range list {
			out[i] = text(list[i])
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	return slices.Equal(set(a), set(b))
}
