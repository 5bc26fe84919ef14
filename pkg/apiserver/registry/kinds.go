package registry

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/scheme"
)

// Kinds is every served kind, in discovery order.
func Kinds(s *scheme.Scheme, cfg Config) []*Kind {
	core := corev1.SchemeGroupVersion
	apps := appsv1.SchemeGroupVersion
	special := map[schema.GroupVersionResource]func(*scheme.Kind, Config) *Kind{
		apps.WithResource("deployments"): deployments,
		apps.WithResource("replicasets"): replicaSets,
		core.WithResource("pods"):        pods,
		core.WithResource("services"):    func(k *scheme.Kind, cfg Config) *Kind { return services(k, s, cfg) },
	}
	var kinds []*Kind
	for _, k := range s.Kinds() {
		if f := special[k.GVR()]; f != nil {
			kinds = append(kinds, f(k, cfg))
			continue
		}
		kinds = append(kinds, (Of[scheme.Object]{}).Kind(k))
	}
	return kinds
}
