package csrsigning

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/client"
	"podium/pkg/client/csr"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
)

// Config is what the controller needs.
type Config struct {
	kit.Kit
	// Authorities has the present authority of each signer; the files may
	// change. Requests for a signer that is not in it stay as they are.
	Authorities map[string]func() *tls.Certificate
	Longest     time.Duration // life of a certificate
}

// Controller is the signer. Its keys are certificate signing requests.
type Controller struct {
	cfg      Config
	requests client.Resource[*certificatesv1.CertificateSigningRequest]
	loop     *loop.Loop
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg Config) *Controller {
	c := &Controller{cfg: cfg, requests: client.For[*certificatesv1.CertificateSigningRequest](cfg.Client)}
	c.loop = cfg.Loop("certificate_signer", 0, c.reconcile, cfg.Views.CSRs)
	loop.WakeOn(c.loop, cfg.Views.CSRs, loop.Self)
	return c
}

// Run signs until ctx ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

func signers() []string {
	return []string{
		certificatesv1.KubeAPIServerClientSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName,
	}
}

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	request, ok := c.cfg.Views.CSRs.Get("", key.Name)
	if !ok || !ours(request) {
		return loop.Done, nil
	}
	authority := c.cfg.Authorities[request.Spec.SignerName]
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
		life := lifetime(request.Spec.ExpirationSeconds, c.cfg.Longest)
		if next.Status.Certificate, err = sign(authority(), parsed, request.Spec.Usages, life, time.Now()); err != nil {
			return loop.Done, fmt.Errorf("sign %s: %w", request.Name, err)
		}
	}
	got, err := c.requests.UpdateStatus(ctx, next)
	if apierrors.IsNotFound(err) {
		return loop.Done, nil
	}
	if err != nil {
		return loop.Done, fmt.Errorf("write %s: %w", request.Name, err)
	}
	c.loop.Wrote(key, c.cfg.Views.CSRs, got.ResourceVersion)
	return loop.Done, nil
}

// ours says that a request is approved and waits for a signer of ours.
func ours(c *certificatesv1.CertificateSigningRequest) bool {
	return slices.Contains(signers(), c.Spec.SignerName) && len(c.Status.Certificate) == 0 &&
		csr.Is(c, certificatesv1.CertificateApproved) && !csr.Is(c, certificatesv1.CertificateDenied) && !csr.Is(c, certificatesv1.CertificateFailed)
}
