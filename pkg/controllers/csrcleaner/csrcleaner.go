package csrcleaner

import (
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/csr"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
)

const (
	decidedFor = time.Hour      // since the condition was written
	pendingFor = 24 * time.Hour // since the request was made
)

// Controller is the cleaner. Its keys are certificate signing requests.
type Controller struct {
	cfg      kit.Kit
	requests client.Resource[*certificatesv1.CertificateSigningRequest]
	loop     *loop.Loop
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg kit.Kit) *Controller {
	c := &Controller{cfg: cfg, requests: client.For[*certificatesv1.CertificateSigningRequest](cfg.Client)}
	c.loop = cfg.Loop("csr_cleaner", 0, c.reconcile, cfg.Views.CSRs)
	loop.WakeOn(c.loop, cfg.Views.CSRs, loop.Self)
	return c
}

// Run cleans until ctx ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	request, ok := c.cfg.Views.CSRs.Get("", key.Name)
	if !ok {
		return loop.Done, nil
	}
	end, ends := due(request)
	if !ends {
		return loop.Done, nil
	}
	if left := time.Until(end); left > 0 {
		return loop.After(left), nil
	}
	uid := request.UID
	err := c.requests.Delete(ctx, request.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return loop.Done, fmt.Errorf("delete %s: %w", request.Name, err)
	}
	return loop.Done, nil
}

// due is when a request has had its time. One that is approved and waits for
// its signer has no end.
func due(c *certificatesv1.CertificateSigningRequest) (end time.Time, ends bool) {
	earliest := func(at time.Time) {
		if !ends || at.Before(end) {
			end, ends = at, true
		}
	}
	if len(c.Status.Conditions) == 0 {
		earliest(c.CreationTimestamp.Add(pendingFor))
	}
	issued := len(c.Status.Certificate) > 0
	for _, cond := range c.Status.Conditions {
		over := cond.Type == certificatesv1.CertificateDenied || cond.Type == certificatesv1.CertificateFailed ||
			cond.Type == certificatesv1.CertificateApproved && issued
		if over && !cond.LastUpdateTime.IsZero() {
			earliest(cond.LastUpdateTime.Add(decidedFor))
		}
	}
	if issued && csr.Is(c, certificatesv1.CertificateApproved) {
		if chain, err := csr.ParseChain(c.Status.Certificate); err == nil {
			earliest(chain[0].NotAfter)
		}
	}
	return end, ends
}
