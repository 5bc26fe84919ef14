package noderestriction

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/request"
	"podium/pkg/client/addresslease"
	"podium/pkg/scheme"
)

// proxyLeases is the prefix of kube-proxies' Leases. They share a namespace
// with the leader election Leases of the control plane.
const proxyLeases = "kube-proxy-"

// isProxy reports whether a user is a kube-proxy. All kube-proxies share a user
// name, that of a certificate or of a service account.
func isProxy(u *request.User) bool {
	return u != nil && slices.Contains([]string{"system:kube-proxy", "system:serviceaccount:kube-system:kube-proxy"}, u.Name)
}

// proxyLease restricts the Leases that kube-proxy writes. Every node has its
// credentials, with which a node must not become leader of a control plane
// daemon, reassign a load balancer's address, or add one.
func proxyLease(a *admission.Attributes) error {
	if a.Resource.GroupResource().String() != "leases.coordination.k8s.io" {
		return nil
	}
	inSystem := a.Namespace == metav1.NamespaceSystem
	if inSystem && strings.HasPrefix(a.Name, addresslease.Prefix) {
		if a.Operation != admission.Update || !onlyHeld(a.Old, a.Object) {
			return admission.Forbidden(a, "kube-proxy can only hold and release leases whose names begin with %q", addresslease.Prefix)
		}
		return nil
	}
	if !inSystem || !strings.HasPrefix(a.Name, proxyLeases) {
		return admission.Forbidden(a, "kube-proxy can only write leases in the %q namespace whose names begin with %q", metav1.NamespaceSystem, proxyLeases)
	}
	return nil
}

// onlyHeld reports whether an update leaves the Lease's metadata, which
// describes the address, unchanged.
func onlyHeld(old, new scheme.Object) bool {
	return maps.Equal(old.GetLabels(), new.GetLabels()) && maps.Equal(old.GetAnnotations(), new.GetAnnotations()) &&
		slices.Equal(old.GetFinalizers(), new.GetFinalizers()) && len(old.GetOwnerReferences()) == 0 && len(new.GetOwnerReferences()) == 0
}
