package csrcleaner

import (
	"context"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client/csr"
	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

const (
	decidedFor = time.Hour      // since the condition was written
	pendingFor = 24 * time.Hour // since the request was created
)

// Spec describes the cleaner of certificate signing requests.
func Spec() controller.Spec {
	return controller.Spec{Name: "certificatesigningrequest-cleaner-controller", Account: "certificate-controller", Workers: 1, New: build}
}

type reconciler struct {
	*loop.Loop
	requests *informer.Informer[*certificatesv1.CertificateSigningRequest]
	writer   controller.Writer[*certificatesv1.CertificateSigningRequest]
}

func build(c controller.Context) (controller.Runner, error) {
	r := &reconciler{requests: informers.For[*certificatesv1.CertificateSigningRequest](c.Informers)}
	r.Loop = c.NewLoop("csr_cleaner", 0, r.reconcile, r.requests)
	r.writer = controller.NewWriter(c, r.Loop, r.requests)
	loop.WakeOn(r.Loop, r.requests, loop.Self)
	return r, nil
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	request, ok := r.requests.Get("", key.Name)
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
	_, err := r.writer.Delete(ctx, key, request, metav1.DeleteOptions{})
	return loop.Done, err
}

// due returns when a request is to be deleted. ends is false for an approved request that
// its signer has not signed yet.
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
