package csrsigning

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client/csr"
	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

// Options configure the signer.
type Options struct {
	// Authorities returns the current CA of each signer; the files may change. Requests
	// for a signer without a CA are not signed.
	Authorities map[string]func() *tls.Certificate
	// MaxDuration is the maximum lifetime of a certificate, and the lifetime if the
	// request does not set one.
	MaxDuration time.Duration
}

// Spec describes the signer. The controller is disabled without a CA.
func Spec(o Options) controller.Spec {
	s := controller.Spec{Name: "certificatesigningrequest-signing-controller", Account: "certificate-controller", Workers: 5}
	if len(o.Authorities) > 0 {
		s.New = o.build
	}
	return s
}

type reconciler struct {
	Options
	*loop.Loop
	requests *informer.Informer[*certificatesv1.CertificateSigningRequest]
	writer   controller.Writer[*certificatesv1.CertificateSigningRequest]
}

func (o Options) build(c controller.Context) (controller.Runner, error) {
	r := &reconciler{Options: o, requests: informers.For[*certificatesv1.CertificateSigningRequest](c.Informers)}
	r.Loop = c.NewLoop("certificate_signer", 0, r.reconcile, r.requests)
	r.writer = controller.NewWriter(c, r.Loop, r.requests)
	loop.WakeOn(r.Loop, r.requests, loop.Self)
	return r, nil
}

func signers() []string {
	return []string{
		certificatesv1.KubeAPIServerClientSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName,
	}
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	request, ok := r.requests.Get("", key.Name)
	if !ok || !signable(request) {
		return loop.Done, nil
	}
	authority := r.Authorities[request.Spec.SignerName]
	if authority == nil {
		return loop.Done, nil
	}
	next := request.DeepCopy()
	parsed, err := csr.Parse(request.Spec.Request)
	if err == nil {
		err = csr.CheckSigner(request.Spec.SignerName, parsed, request.Spec.Usages)
	}
	if err != nil {
		next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: err.Error(),
		})
	} else {
		lifetime := lifetime(request.Spec.ExpirationSeconds, r.MaxDuration)
		if next.Status.Certificate, err = sign(authority(), parsed, request.Spec.Usages, lifetime, time.Now()); err != nil {
			return loop.Done, fmt.Errorf("sign %s: %w", request.Name, err)
		}
	}
	_, err = r.writer.UpdateStatus(ctx, key, next)
	return loop.Done, err
}

// signable reports whether a request is approved and not yet signed, for one of signers.
func signable(c *certificatesv1.CertificateSigningRequest) bool {
	return slices.Contains(signers(), c.Spec.SignerName) && len(c.Status.Certificate) == 0 &&
		csr.Is(c, certificatesv1.CertificateApproved) && !csr.Is(c, certificatesv1.CertificateDenied) && !csr.Is(c, certificatesv1.CertificateFailed)
}
