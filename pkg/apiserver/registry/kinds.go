package registry

import (
	"fmt"

	"podium/pkg/scheme"
)

// Kinds is every served kind, in discovery order. Each kind of the scheme has
// its line here; one without is a mistake in the program.
func Kinds(s *scheme.Scheme, cfg Config) []*Kind {
	makers := map[string]func(*scheme.Kind, Config) *Kind{
		"configmaps":      configMaps,
		"endpoints":       endpoints,
		"events":          events,
		"namespaces":      namespaces,
		"nodes":           nodes,
		"pods":            pods,
		"secrets":         secrets,
		"serviceaccounts": serviceAccounts,
		"services":        func(k *scheme.Kind, cfg Config) *Kind { return services(k, s, cfg) },

		"deployments.apps": deployments,
		"replicasets.apps": replicaSets,

		"selfsubjectreviews.authentication.k8s.io":       selfSubjectReviews,
		"localsubjectaccessreviews.authorization.k8s.io": localSubjectAccessReviews,
		"selfsubjectaccessreviews.authorization.k8s.io":  selfSubjectAccessReviews,
		"selfsubjectrulesreviews.authorization.k8s.io":   selfSubjectRulesReviews,
		"subjectaccessreviews.authorization.k8s.io":      subjectAccessReviews,
		"tokenreviews.authentication.k8s.io":             tokenReviews,

		"endpointslices.discovery.k8s.io": endpointSlices,
		"leases.coordination.k8s.io":      leases,

		"certificatesigningrequests.certificates.k8s.io": certificateSigningRequests,
		"clusterrolebindings.rbac.authorization.k8s.io":  clusterRoleBindings,
		"clusterroles.rbac.authorization.k8s.io":         clusterRoles,
		"rolebindings.rbac.authorization.k8s.io":         roleBindings,
		"roles.rbac.authorization.k8s.io":                namespacedRoles,
	}
	var kinds []*Kind
	for _, k := range s.Kinds() {
		maker := makers[k.GVR().GroupResource().String()]
		if maker == nil {
			panic(fmt.Sprintf("registry: nothing is known of %v", k.GVR()))
		}
		kind := maker(k, cfg)
		checkFinalizers(kind)
		kinds = append(kinds, kind)
	}
	return kinds
}
