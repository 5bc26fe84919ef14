package registry

import (
	"fmt"

	"podium/pkg/scheme"
)

// Kinds is every served kind, in discovery order. Each kind of the scheme has
// its line here; one without is a mistake in the program.
func Kinds(s *scheme.Scheme, cfg Config) []*Kind {
	makers := map[string]func(*scheme.Kind, Config) *Kind{
		"clusterrolebindings.rbac.authorization.k8s.io": clusterRoleBindings,
		"clusterroles.rbac.authorization.k8s.io":        clusterRoles,
		"configmaps":                                    configMaps,
		"deployments.apps":                              deployments,
		"endpoints":                                     endpoints,
		"endpointslices.discovery.k8s.io":               endpointSlices,
		"events":                                        events,
		"leases.coordination.k8s.io":                    leases,
		"namespaces":                                    namespaces,
		"nodes":                                         nodes,
		"pods":                                          pods,
		"replicasets.apps":                              replicaSets,
		"rolebindings.rbac.authorization.k8s.io":        roleBindings,
		"roles.rbac.authorization.k8s.io":               roles,
		"secrets":                                       secrets,
		"serviceaccounts":                               serviceAccounts,
		"services":                                      func(k *scheme.Kind, cfg Config) *Kind { return services(k, s, cfg) },
	}
	var kinds []*Kind
	for _, k := range s.Kinds() {
		maker := makers[k.GVR().GroupResource().String()]
		if maker == nil {
			panic(fmt.Sprintf("registry: nothing is known of %v", k.GVR()))
		}
		kinds = append(kinds, maker(k, cfg))
	}
	return kinds
}
