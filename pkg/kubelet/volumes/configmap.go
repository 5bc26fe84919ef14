package volumes

import (
	"context"
	"io/fs"
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// configMapDriver returns the driver of configMap volumes, which are on disk.
func configMapDriver(dir directory) Driver {
	return content{directory: dir, name: "kubernetes.io~configmap", projected: func(v *corev1.Volume) *corev1.ProjectedVolumeSource {
		s := v.ConfigMap
		if s == nil {
			return nil
		}
		return single(s.DefaultMode, corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: s.LocalObjectReference, Items: s.Items, Optional: s.Optional,
		}})
	}}
}

func (r *reader) configMap(ctx context.Context, p *corev1.ConfigMapProjection, mode fs.FileMode) error {
	cm, err := frozen(ctx, r, "configmap", p.Name, r.host.Sources.ConfigMap, func(cm *corev1.ConfigMap) *bool { return cm.Immutable })
	if cm == nil {
		return absent(err, p.Optional)
	}
	data := make(map[string][]byte, len(cm.Data)+len(cm.BinaryData))
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	maps.Copy(data, cm.BinaryData)
	return r.pick(data, p.Items, mode, p.Optional, "configmap references non-existent config key: %s")
}
