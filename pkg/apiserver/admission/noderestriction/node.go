package noderestriction

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"podium/pkg/apiserver/admission"
)

// ownNode admits writes of the node's own Node, without changes to what steers
// workloads (taints, restricted labels) and to owner references: the garbage
// collector could delete the Node because of an owner, and the node would
// recreate it without what administrators have set.
func (r *rules) ownNode() error {
	if r.Name != r.node {
		return r.no("node %q is not allowed to modify node %q", r.node, r.Name)
	}
	switch r.Operation {
	case admission.Create:
		if len(r.Object.GetOwnerReferences()) > 0 {
			return r.no("node %q is not allowed to set ownerReferences", r.node)
		}
		if bad := forbidden(r.Object.(*corev1.Node).Labels, nil); len(bad) > 0 {
			return r.no("node %q is not allowed to set the following labels: %s", r.node, strings.Join(bad, ", "))
		}
	case admission.Update:
		next, old := r.Object.(*corev1.Node), r.Old.(*corev1.Node)
		if !apiequality.Semantic.DeepEqual(next.Spec.Taints, old.Spec.Taints) {
			return r.no("node %q is not allowed to modify taints", r.node)
		}
		if !apiequality.Semantic.DeepEqual(next.OwnerReferences, old.OwnerReferences) {
			return r.no("node %q is not allowed to modify ownerReferences", r.node)
		}
		if bad := forbidden(next.Labels, old.Labels); len(bad) > 0 {
			return r.no("is not allowed to modify labels: %s", strings.Join(bad, ", "))
		}
	}
	return nil
}

// forbidden returns the labels that differ between a and b and that a kubelet
// may not set, sorted.
func forbidden(a, b map[string]string) []string {
	var out []string
	for _, pair := range [][2]map[string]string{{a, b}, {b, a}} {
		for key, value := range pair[0] {
			other, there := pair[1][key]
			if (!there || other != value) && !kubelets(key) && !slices.Contains(out, key) {
				out = append(out, key)
			}
		}
	}
	slices.Sort(out)
	return out
}

// kubelets reports whether a kubelet may set a label: any outside of
// Kubernetes' domains, and of those the ones that describe the machine.
func kubelets(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	if !ok {
		return true
	}
	switch {
	case within(domain, corev1.LabelNamespaceNodeRestriction):
		return false
	case !within(domain, "kubernetes.io") && !within(domain, "k8s.io"):
		return true
	case within(domain, corev1.LabelNamespaceSuffixKubelet), within(domain, corev1.LabelNamespaceSuffixNode):
		return true
	}
	switch key {
	case corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
		corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch":
		return true
	}
	return false
}

// within reports whether a domain is root or a subdomain of it.
func within(domain, root string) bool {
	return domain == root || strings.HasSuffix(domain, "."+root)
}
