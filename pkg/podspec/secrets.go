package podspec

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
)

// Secrets returns the names of the Secrets that a pod refers to. A name occurs once
// for each reference.
func Secrets(spec *corev1.PodSpec) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, ref := range spec.ImagePullSecrets {
			if ref.Name != "" && !yield(ref.Name) {
				return
			}
		}
		for name := range containerSecrets(spec) {
			if !yield(name) {
				return
			}
		}
		for i := range spec.Volumes {
			for _, name := range VolumeSecrets(&spec.Volumes[i].VolumeSource) {
				if name != "" && !yield(name) {
					return
				}
			}
		}
	}
}

func containerSecrets(spec *corev1.PodSpec) iter.Seq[string] {
	return func(yield func(string) bool) {
		visit := func(env []corev1.EnvVar, from []corev1.EnvFromSource) bool {
			for _, e := range env {
				if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && !yield(e.ValueFrom.SecretKeyRef.Name) {
					return false
				}
			}
			for _, f := range from {
				if f.SecretRef != nil && !yield(f.SecretRef.Name) {
					return false
				}
			}
			return true
		}
		for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
			for _, c := range list {
				if !visit(c.Env, c.EnvFrom) {
					return
				}
			}
		}
		for _, c := range spec.EphemeralContainers {
			if !visit(c.Env, c.EnvFrom) {
				return
			}
		}
	}
}

// VolumeSecrets returns the names of the Secrets that a volume refers to; some
// may be empty.
func VolumeSecrets(v *corev1.VolumeSource) []string {
	name := func(ref *corev1.LocalObjectReference) []string {
		if ref == nil {
			return nil
		}
		return []string{ref.Name}
	}
	switch {
	case v.Secret != nil:
		return []string{v.Secret.SecretName}
	case v.Projected != nil:
		var names []string
		for _, s := range v.Projected.Sources {
			if s.Secret != nil {
				names = append(names, s.Secret.Name)
			}
		}
		return names
	case v.CSI != nil:
		return name(v.CSI.NodePublishSecretRef)
	case v.ISCSI != nil:
		return name(v.ISCSI.SecretRef)
	case v.AzureFile != nil:
		return []string{v.AzureFile.SecretName}
	case v.CephFS != nil:
		return name(v.CephFS.SecretRef)
	case v.Cinder != nil:
		return name(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		return name(v.FlexVolume.SecretRef)
	case v.RBD != nil:
		return name(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		return name(v.ScaleIO.SecretRef)
	case v.StorageOS != nil:
		return name(v.StorageOS.SecretRef)
	}
	return nil
}
