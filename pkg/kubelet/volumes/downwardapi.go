package volumes

import (
	"io/fs"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"podium/pkg/kubelet/downward"
)

// downwardAPIDriver returns the driver of downwardAPI volumes, which are in memory.
func downwardAPIDriver(dir directory) Driver {
	return content{directory: dir, name: "kubernetes.io~downward-api", inMemory: true, projected: func(v *corev1.Volume) *corev1.ProjectedVolumeSource {
		s := v.DownwardAPI
		if s == nil {
			return nil
		}
		return single(s.DefaultMode, corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: s.Items}})
	}}
}

func (r *reader) downwardAPI(items []corev1.DownwardAPIVolumeFile, mode fs.FileMode) error {
	var errs []error
	for _, item := range items {
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = downward.Field(r.v.Pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			text, err = downward.Resource(r.v.Pod, nil, item.ResourceFieldRef, r.host.Node())
		}
		if err != nil {
			errs = append(errs, &configError{err})
			continue
		}
		r.files[clean(item.Path)] = file{data: []byte(text), mode: or(item.Mode, mode)}
	}
	return utilerrors.NewAggregate(errs)
}
