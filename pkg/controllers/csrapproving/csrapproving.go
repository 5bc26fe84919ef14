package csrapproving

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/client"
	"podium/pkg/client/access"
	"podium/pkg/client/csr"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
)

// again is when a request is looked at once more that lacks something which may
// change without an event for it: the requester's permission, the silence of a
// node of that name.
const again = 10 * time.Second

// Controller is the approver. Its keys are certificate signing requests.
type Controller struct {
	cfg      kit.Kit
	requests client.Resource[*certificatesv1.CertificateSigningRequest]
	reviews  access.Reviews
	loop     *loop.Loop
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg kit.Kit) *Controller {
	c := &Controller{
		cfg:      cfg,
		requests: client.For[*certificatesv1.CertificateSigningRequest](cfg.Client),
		reviews:  access.Reviews{Client: cfg.Client},
	}
	c.loop = cfg.Loop("certificate_approver", 0, c.reconcile,
		cfg.Views.CSRs, cfg.Views.Nodes, cfg.Views.Services, cfg.Views.EndpointSlices, cfg.Views.NodeLeases)
	loop.WakeOn(c.loop, cfg.Views.CSRs, loop.Self)
	loop.WakeOn(c.loop, cfg.Views.Nodes, func(n *corev1.Node) (keys []loop.Key) {
		for _, request := range cfg.Views.CSRsOf(csr.NodePrefix + n.Name) {
			if pending(request) {
				keys = append(keys, loop.KeyOf(request))
			}
		}
		return keys
	})
	return c
}

// Run approves until ctx ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

func pending(c *certificatesv1.CertificateSigningRequest) bool {
	return len(c.Status.Certificate) == 0 && !csr.Is(c, certificatesv1.CertificateApproved) && !csr.Is(c, certificatesv1.CertificateDenied)
}

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	request, ok := c.cfg.Views.CSRs.Get("", key.Name)
	if !ok || !pending(request) {
		return loop.Done, nil
	}
	parsed, err := csr.Parse(request.Spec.Request)
	if err != nil {
		return loop.Done, nil // nothing that we could approve
	}
	if name := servingOf(request, parsed); name != "" {
		return c.serving(ctx, key, request, parsed, name)
	}
	return c.client(ctx, key, request, parsed)
}

// serving decides on a serving certificate of the node called name.
func (c *Controller) serving(ctx context.Context, key loop.Key, request *certificatesv1.CertificateSigningRequest, parsed *x509.CertificateRequest, name string) (loop.Result, error) {
	node, ok := c.cfg.Views.Nodes.Get("", name)
	if !ok {
		return loop.Done, nil // its creation wakes us
	}
	all := surroundings{
		services: c.cfg.Views.Services.List(), nodes: c.cfg.Views.Nodes.List(), servers: c.cfg.Client.Servers(),
		slices: c.cfg.Views.SlicesOf(corev1.NamespaceDefault, "kubernetes"),
	}
	if err := cmp.Or(checkNames(parsed, node), all.check(parsed, node)); err != nil {
		c.cfg.Log.Warn("kubelet serving certificate not approved", "csr", request.Name, "node", name, "reason", err)
		return loop.After(again), nil
	}
	return loop.Done, c.approve(ctx, key, request, "Auto approving kubelet serving certificate: its names are the node's.")
}

// client decides on a client certificate.
func (c *Controller) client(ctx context.Context, key loop.Key, request *certificatesv1.CertificateSigningRequest, parsed *x509.CertificateRequest) (loop.Result, error) {
	all := ways(request, parsed)
	if len(all) == 0 {
		return loop.Done, nil
	}
	reason := "the requester lacks the permission"
	for _, w := range all {
		if w.joins && c.alive(nodeOf(parsed)) {
			reason = "a node of this name is alive"
			continue
		}
		allowed, err := c.reviews.Allowed(ctx, question(request, w))
		if err != nil {
			return loop.Done, fmt.Errorf("certificatesigningrequests/%s: %w", w.subresource, err)
		}
		if allowed {
			return loop.Done, c.approve(ctx, key, request, w.message)
		}
	}
	c.cfg.Log.Warn("kubelet client certificate not approved", "csr", request.Name, "user", request.Spec.Username, "node", nodeOf(parsed), "reason", reason)
	return loop.After(again), nil
}

// alive says whether the cluster has a node of this name that works.
func (c *Controller) alive(name string) bool {
	node, ok := c.cfg.Views.Nodes.Get("", name)
	if !ok {
		return false
	}
	lease, _ := c.cfg.Views.NodeLeases.Get(corev1.NamespaceNodeLease, name)
	return alive(node, lease, time.Now())
}

func (c *Controller) approve(ctx context.Context, key loop.Key, request *certificatesv1.CertificateSigningRequest, message string) error {
	next := request.DeepCopy()
	next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: message,
	})
	got, err := c.requests.UpdatePart(ctx, next, "approval")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("approve %s: %w", request.Name, err)
	}
	c.loop.Wrote(key, c.cfg.Views.CSRs, got.ResourceVersion)
	return nil
}
