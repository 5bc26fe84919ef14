package staticpods

import (
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/podspec"
)

// refersTo returns the resource of the first object in the API that the pod would get data
// or an identity from, "" if there is none.
func refersTo(spec *corev1.PodSpec) string {
	switch {
	case spec.ServiceAccountName != "" || spec.DeprecatedServiceAccount != "":
		return "serviceaccounts"
	case len(spec.ResourceClaims) > 0:
		return "resourceclaims"
	}
	for range podspec.Secrets(spec) {
		return "secrets"
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if usesConfigMap(&list[i]) {
				return "configmaps"
			}
		}
	}
	for i := range spec.Volumes {
		if what := ofVolume(&spec.Volumes[i]); what != "" {
			return what
		}
	}
	return ""
}

func usesConfigMap(c *corev1.Container) bool {
	for _, e := range c.EnvFrom {
		if e.ConfigMapRef != nil {
			return true
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
			return true
		}
	}
	return false
}

func ofVolume(v *corev1.Volume) string {
	switch {
	case v.Secret != nil:
		return "secrets"
	case v.ConfigMap != nil:
		return "configmaps"
	case v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
		return "persistentvolumeclaims"
	case v.Projected == nil:
		return ""
	}
	for _, source := range v.Projected.Sources {
		switch {
		case source.Secret != nil:
			return "secrets"
		case source.ConfigMap != nil:
			return "configmaps"
		case source.ServiceAccountToken != nil:
			return "serviceaccounts"
		case source.ClusterTrustBundle != nil:
			return "clustertrustbundles"
		case source.PodCertificate != nil:
			return "podcertificates"
		}
	}
	return ""
}
