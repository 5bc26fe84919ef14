package csrapproving

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"podium/pkg/client/access"
	"podium/pkg/client/csr"
	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

// again is the delay of the next check of a request that lacks something that can change
// without an event: the requester's permission, or the state of the node of that name.
const again = 10 * time.Second

// Spec describes the approver of kubelets' certificate signing requests.
func Spec() controller.Spec {
	return controller.Spec{Name: "certificatesigningrequest-approving-controller", Account: "certificate-controller", Workers: 5, New: build}
}

type reconciler struct {
	controller.Context
	*loop.Loop
	requests *informer.Informer[*certificatesv1.CertificateSigningRequest]
	nodes    *informer.Informer[*corev1.Node]
	leases   *informer.Informer[*coordinationv1.Lease]
	services *informer.Informer[*corev1.Service]
	slicesOf func(namespace, service string) []*discoveryv1.EndpointSlice
	writer   controller.Writer[*certificatesv1.CertificateSigningRequest]
	reviews  access.Reviews
}

func build(c controller.Context) (controller.Runner, error) {
	r := &reconciler{
		Context:  c,
		requests: informers.For[*certificatesv1.CertificateSigningRequest](c.Informers),
		nodes:    informers.For[*corev1.Node](c.Informers),
		leases:   informers.NodeLeases(c.Informers),
		services: informers.For[*corev1.Service](c.Informers),
		slicesOf: informers.SlicesByService(c.Informers),
		reviews:  access.Reviews{Client: c.Client},
	}
	requestsOf := informers.Index(r.requests, "requester", func(c *certificatesv1.CertificateSigningRequest) []string { return []string{c.Spec.Username} })
	r.Loop = c.NewLoop("certificate_approver", 0, r.reconcile,
		r.requests, r.nodes, r.services, informers.For[*discoveryv1.EndpointSlice](c.Informers), r.leases)
	r.writer = controller.NewWriter(c, r.Loop, r.requests)
	loop.WakeOn(r.Loop, r.requests, loop.Self)
	loop.WakeOn(r.Loop, r.nodes, func(n *corev1.Node) (keys []loop.Key) {
		for _, request := range requestsOf(csr.NodePrefix + n.Name) {
			if pending(request) {
				keys = append(keys, loop.KeyOf(request))
			}
		}
		return keys
	})
	return r, nil
}

func pending(c *certificatesv1.CertificateSigningRequest) bool {
	return len(c.Status.Certificate) == 0 && !csr.Is(c, certificatesv1.CertificateApproved) && !csr.Is(c, certificatesv1.CertificateDenied)
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	request, ok := r.requests.Get("", key.Name)
	if !ok || !pending(request) {
		return loop.Done, nil
	}
	parsed, err := csr.Parse(request.Spec.Request)
	if err != nil {
		return loop.Done, nil // cannot be approved
	}
	if name := servingOf(request, parsed); name != "" {
		return r.serving(ctx, key, request, parsed, name)
	}
	return r.client(ctx, key, request, parsed)
}

// serving decides on a serving certificate of the node called name.
func (r *reconciler) serving(ctx context.Context, key loop.Key, request *certificatesv1.CertificateSigningRequest, parsed *x509.CertificateRequest, name string) (loop.Result, error) {
	node, ok := r.nodes.Get("", name)
	if !ok {
		return loop.Done, nil // the creation of the node enqueues the key
	}
	all := surroundings{
		services: r.services.List(), nodes: r.nodes.List(), servers: r.Client.Servers(),
		slices: r.slicesOf(corev1.NamespaceDefault, "kubernetes"),
	}
	if err := cmp.Or(checkNames(parsed, node), all.check(parsed, node)); err != nil {
		r.Log.Warn("kubelet serving certificate not approved", "csr", request.Name, "node", name, "reason", err)
		return loop.After(again), nil
	}
	return loop.Done, r.approve(ctx, key, request, "Auto approving kubelet serving certificate: its names are the node's.")
}

// client decides on a client certificate.
func (r *reconciler) client(ctx context.Context, key loop.Key, request *certificatesv1.CertificateSigningRequest, parsed *x509.CertificateRequest) (loop.Result, error) {
	all := ways(request, parsed)
	if len(all) == 0 {
		return loop.Done, nil
	}
	reason := "the requester lacks the permission"
	for _, w := range all {
		if w.joins && r.alive(nodeOf(parsed)) {
			reason = "a node of this name is alive"
			continue
		}
		allowed, err := r.reviews.Allowed(ctx, question(request, w))
		if err != nil {
			return loop.Done, fmt.Errorf("certificatesigningrequests/%s: %w", w.subresource, err)
		}
		if allowed {
			return loop.Done, r.approve(ctx, key, request, w.message)
		}
	}
	r.Log.Warn("kubelet client certificate not approved", "csr", request.Name, "user", request.Spec.Username, "node", nodeOf(parsed), "reason", reason)
	return loop.After(again), nil
}

// alive reports whether the cluster has a live node of this name.
func (r *reconciler) alive(name string) bool {
	node, ok := r.nodes.Get("", name)
	if !ok {
		return false
	}
	lease, _ := r.leases.Get(corev1.NamespaceNodeLease, name)
	return alive(node, lease, time.Now())
}

func (r *reconciler) approve(ctx context.Context, key loop.Key, request *certificatesv1.CertificateSigningRequest, message string) error {
	next := request.DeepCopy()
	next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: message,
	})
	_, err := r.writer.Update(ctx, key, next, "approval")
	return err
}
