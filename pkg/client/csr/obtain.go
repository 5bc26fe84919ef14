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

	"podium/pkg/client"
)

// Ask is what somebody wants a certificate for.
type Ask struct {
	Prefix   string // of the request's name
	Signer   string
	Usages   []certificatesv1.KeyUsage
	Template x509.CertificateRequest // subject and alternative names
}

// ErrRefused says that there will be no certificate for this key: the request
// was denied, has failed, or is not ours.
var ErrRefused = errors.New("refused")

// How often a request is looked at: soon at first, since it is mostly approved
// by a controller, and seldom later, since people need their time.
const (
	firstLook = 50 * time.Millisecond
	lastLook  = 10 * time.Second
)

// Obtain asks for a certificate of key and waits for it. The name of the
// request follows from what is asked and from the key, so that one who was
// interrupted takes up the request that is there.
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
	for look := firstLook; ; look = min(2*look, lastLook) {
		text, err := issued(request, ask, key)
		if text != nil || err != nil {
			return text, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("certificate signing request %s waits to be approved and signed: %w", name, ctx.Err())
		case <-time.After(look):
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

// nameOf tells requests for different things apart, and those for other keys.
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

// issued is the certificate of a request, nil while there is none.
func issued(request *certificatesv1.CertificateSigningRequest, ask Ask, key crypto.Signer) ([]byte, error) {
	if parsed, err := Parse(request.Spec.Request); err != nil || request.Spec.SignerName != ask.Signer || !ownedBy(key, parsed.PublicKey) {
		return nil, fmt.Errorf("certificate signing request %s is somebody else's: %w", request.Name, ErrRefused)
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

// Fits says whether a certificate names what a template asks for, no more and
// no less.
func Fits(cert *x509.Certificate, want *x509.CertificateRequest) bool {
	return cert.Subject.CommonName == want.Subject.CommonName &&
		same(cert.Subject.Organization, want.Subject.Organization, strings.Clone) &&
		same(cert.DNSNames, want.DNSNames, strings.ToLower) &&
		same(cert.IPAddresses, want.IPAddresses, net.IP.String)
}

// same compares two sets by what text makes of their elements.
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
