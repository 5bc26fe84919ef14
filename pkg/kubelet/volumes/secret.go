package volumes

import (
	"context"
	"io/fs"

	corev1 "k8s.io/api/core/v1"
)

// secretDriver returns the driver of secret volumes, which are in memory.
func secretDriver(dir directory) Driver {
	return content{directory: dir, name: "kubernetes.io~secret", inMemory: true, projected: func(v *corev1.Volume) *corev1.ProjectedVolumeSource {
		s := v.Secret
		if s == nil {
			return nil
		}
		return single(s.DefaultMode, corev1.VolumeProjection{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: s.SecretName}, Items: s.Items, Optional: s.Optional,
		}})
	}}
}

func (r *reader) secret(ctx context.Context, p *corev1.SecretProjection, mode fs.FileMode) error {
	s, err := frozen(ctx, r, "secret", p.Name, r.host.Sources.Secret, func(s *corev1.Secret) *bool { return s.Immutable })
	if s == nil {
		return absent(err, p.Optional)
	}
	return r.pick(s.Data, p.Items, mode, p.Optional, "references non-existent secret key: %s")
}
