package csrapproving

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client/access"
	"podium/pkg/client/csr"
	"podium/pkg/conditions"
)

// A way is a permission that makes a request eligible for approval.
type way struct {
	subresource string
	message     string
	joins       bool // for machines that join: not while a node of that name is alive
}

// ways returns the ways that apply to a request for a kubelet's client certificate.
func ways(c *certificatesv1.CertificateSigningRequest, r *x509.CertificateRequest) []way {
	if c.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName || csr.CheckSigner(c.Spec.SignerName, r, c.Spec.Usages) != nil {
		return nil
	}
	all := []way{{"nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.", true}}
	if c.Spec.Username == r.Subject.CommonName {
		all = append([]way{{"selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.", false}}, all...)
	}
	return all
}

// question returns the access review for the requester's permission.
func question(c *certificatesv1.CertificateSigningRequest, w way) authorizationv1.SubjectAccessReviewSpec {
	return authorizationv1.SubjectAccessReviewSpec{
		User: c.Spec.Username, UID: c.Spec.UID, Groups: c.Spec.Groups, Extra: access.Extra[authorizationv1.ExtraValue](c.Spec.Extra),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: certificatesv1.GroupName, Resource: "certificatesigningrequests", Subresource: w.subresource, Verb: "create",
		},
	}
}

// servingOf returns the name of the node that requests a serving certificate in its own
// name, "" for any other request.
func servingOf(c *certificatesv1.CertificateSigningRequest, r *x509.CertificateRequest) string {
	if c.Spec.SignerName != certificatesv1.KubeletServingSignerName || csr.CheckSigner(c.Spec.SignerName, r, c.Spec.Usages) != nil {
		return ""
	}
	if c.Spec.Username != r.Subject.CommonName || !slices.Contains(c.Spec.Groups, csr.NodeGroup) {
		return ""
	}
	return strings.TrimPrefix(c.Spec.Username, csr.NodePrefix)
}

// checkNames returns an error if the request's names differ from the node's.
func checkNames(r *x509.CertificateRequest, n *corev1.Node) error {
	names, addresses := namesOf(n)
	asked := map[string]bool{}
	for _, name := range r.DNSNames {
		if asked[strings.ToLower(name)] = true; !names[strings.ToLower(name)] {
			return fmt.Errorf("DNS name %q is not the node's", name)
		}
	}
	for name := range names {
		if !asked[name] {
			return fmt.Errorf("the node's name %q is not asked for", name)
		}
	}
	askedIPs := map[netip.Addr]bool{}
	for _, ip := range r.IPAddresses {
		addr, _ := netip.AddrFromSlice(ip)
		if askedIPs[addr.Unmap()] = true; !addresses[addr.Unmap()] {
			return fmt.Errorf("IP address %s is not the node's", ip)
		}
	}
	for addr := range addresses {
		if !askedIPs[addr] {
			return fmt.Errorf("the node's address %s is not asked for", addr)
		}
	}
	return nil
}

// namesOf returns a node's name, and the names and addresses in its status.
func namesOf(n *corev1.Node) (names map[string]bool, addresses map[netip.Addr]bool) {
	names, addresses = map[string]bool{strings.ToLower(n.Name): true}, map[netip.Addr]bool{}
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			addresses[ip.Unmap()] = true
		} else if a.Address != "" {
			names[strings.ToLower(a.Address)] = true
		}
	}
	return names, addresses
}

// alive reports whether the node has a running kubelet: it is Ready, or its Lease has not
// expired. lease is nil if there is none.
func alive(n *corev1.Node, lease *coordinationv1.Lease, now time.Time) bool {
	if conditions.IsTrue(n.Status.Conditions, corev1.NodeReady) {
		return true
	}
	if lease == nil || lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return false
	}
	return now.Before(lease.Spec.RenewTime.Add(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second))
}

// nodeOf returns the node name in a request for a client certificate.
func nodeOf(r *x509.CertificateRequest) string {
	return strings.TrimPrefix(r.Subject.CommonName, csr.NodePrefix)
}
