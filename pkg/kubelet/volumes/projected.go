package volumes

import (
	"context"
	"io/fs"

	corev1 "k8s.io/api/core/v1"
)

// projectedDriver returns the driver of projected volumes, which are in memory.
func projectedDriver(dir directory) Driver {
	return content{directory: dir, name: "kubernetes.io~projected", inMemory: true,
		projected: func(v *corev1.Volume) *corev1.ProjectedVolumeSource { return v.Projected }}
}

// single returns a projected volume with one source.
func single(mode *int32, p corev1.VolumeProjection) *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{DefaultMode: mode, Sources: []corev1.VolumeProjection{p}}
}

// projection adds the files of one source.
func (r *reader) projection(ctx context.Context, p *corev1.VolumeProjection, mode fs.FileMode) error {
	switch {
	case p.ConfigMap != nil:
		return r.configMap(ctx, p.ConfigMap, mode)
	case p.Secret != nil:
		return r.secret(ctx, p.Secret, mode)
	case p.DownwardAPI != nil:
		return r.downwardAPI(p.DownwardAPI.Items, mode)
	case p.ServiceAccountToken != nil:
		return r.token(ctx, p.ServiceAccountToken, mode)
	}
	return configErrorf("unsupported volume projection")
}
