package aggregation

import "k8s.io/apimachinery/pkg/runtime/schema"

// Priority returns the priorities of a group version that this server serves: of its
// group, and within the group. Clients prefer what comes first in discovery, which is
// ordered by them. custom is set for those of CustomResourceDefinitions. 0 means that
// the group version has no APIService.
func Priority(gv schema.GroupVersion, custom bool) (group, version int32) {
	if custom {
		return 1000, 100
	}
	groups := map[string]int32{ // as upstream
		"": 18000, "apps": 17800, "events.k8s.io": 17750, "authentication.k8s.io": 17700, "authorization.k8s.io": 17600,
		"autoscaling": 17500, "batch": 17400, "certificates.k8s.io": 17300, "networking.k8s.io": 17200, "policy": 17100,
		"rbac.authorization.k8s.io": 17000, "storage.k8s.io": 16800, "apiextensions.k8s.io": 16700,
		"admissionregistration.k8s.io": 16700, "scheduling.k8s.io": 16600, "coordination.k8s.io": 16500, "node.k8s.io": 16300,
		"discovery.k8s.io": 16200, "resource.k8s.io": 16200, "flowcontrol.apiserver.k8s.io": 16100,
		"internal.apiserver.k8s.io": 16000, "storagemigration.k8s.io": 15800,
		"apiregistration.k8s.io": 20001, // before every other: an APIService has 20000 at most
	}
	group = groups[gv.Group]
	if group == 0 {
		return 0, 0
	}
	switch gv {
	case schema.GroupVersion{Version: "v1"}:
		return group, 1
	case schema.GroupVersion{Group: "autoscaling", Version: "v2"}:
		return group, 30
	case schema.GroupVersion{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"}:
		return group, 21
	}
	switch gv.Version {
	case "v1":
		return group, 15
	case "v1beta1", "v1beta2", "v1beta3":
		return group, 12
	}
	return group, 9
}
