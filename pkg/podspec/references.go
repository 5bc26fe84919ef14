package podspec

import corev1 "k8s.io/api/core/v1"

// RefersTo returns the resource of the first object in the API that the pod would get data,
// devices or an identity from, "" if there is none. Static pods must not refer to any: a
// node that could make mirrors of such pods would gain access to the objects.
func RefersTo(spec *corev1.PodSpec) string {
	switch {
	case spec.ServiceAccountName != "" || spec.DeprecatedServiceAccount != "":
		return "serviceaccounts"
	case len(spec.ResourceClaims) > 0:
		return "resourceclaims"
	case len(spec.ImagePullSecrets) > 0:
		return "secrets"
	}
	for range Secrets(spec) {
		return "secrets"
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers, debuggers(spec)} {
		for i := range list {
			if readsConfigMap(&list[i]) {
				return "configmaps"
			}
		}
	}
	for i := range spec.Volumes {
		if what := volumeRefersTo(&spec.Volumes[i]); what != "" {
			return what
		}
	}
	return ""
}

// debuggers returns the ephemeral containers.
func debuggers(spec *corev1.PodSpec) (out []corev1.Container) {
	for _, c := range spec.EphemeralContainers {
		out = append(out, corev1.Container(c.EphemeralContainerCommon))
	}
	return out
}

func readsConfigMap(c *corev1.Container) bool {
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

func volumeRefersTo(v *corev1.Volume) string {
	switch {
	case v.Secret != nil, v.CSI != nil && v.CSI.NodePublishSecretRef != nil, v.ISCSI != nil && v.ISCSI.SecretRef != nil:
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
