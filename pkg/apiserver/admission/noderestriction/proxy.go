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

// proxyLeases begin so. They are in one namespace with those by which the
// daemons of the control plane elect their leaders.
const proxyLeases = "kube-proxy-"

// isProxy says whether a user is the kube-proxy of some node: they all have one
// name, that of a certificate or that of a service account.
func isProxy(u *request.User) bool {
	return u != nil && slices.Contains([]string{"system:kube-proxy", "system:serviceaccount:kube-system:kube-proxy"}, u.Name)
}

// proxyLease: every node has a proxy's credentials; no node is to take the
// lead from the control plane by them, nor to say of an address that it is
// another Service's, or one to announce at all.
func proxyLease(a *admission.Attributes) error {
	if a.Kind.GVR().GroupResource().String() != "leases.coordination.k8s.io" {
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

// onlyHeld says whether an update leaves alone what a Lease is about.
func onlyHeld(old, new scheme.Object) bool {
	return maps.Equal(old.GetLabels(), new.GetLabels()) && maps.Equal(old.GetAnnotations(), new.GetAnnotations()) &&
		slices.Equal(old.GetFinalizers(), new.GetFinalizers()) && len(old.GetOwnerReferences()) == 0 && len(new.GetOwnerReferences()) == 0
}
