package noderestriction

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/request"
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
// lead from the control plane by them.
func proxyLease(a *admission.Attributes) error {
	if a.Kind.GVR().GroupResource().String() != "leases.coordination.k8s.io" {
		return nil
	}
	if a.Namespace != metav1.NamespaceSystem || !strings.HasPrefix(a.Name, proxyLeases) {
		return admission.Forbidden(a, "kube-proxy can only write leases in the %q namespace whose names begin with %q", metav1.NamespaceSystem, proxyLeases)
	}
	return nil
}
