package stats

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/volumebinding"
)

// Volume holds the statistics of a volume of a pod.
type Volume struct {
	Filesystem
	Name string    `json:"name,omitempty"` // in the pod
	PVC  *ClaimRef `json:"pvcRef,omitempty"`
}

// ClaimRef identifies a claim.
type ClaimRef struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// volumes returns the last statistics of a pod's volumes, in the order of the pod. of
// returns those of a volume by its name in the pod; nil: there are none.
func volumes(pod *corev1.Pod, of func(pod types.UID, volume string) (Filesystem, bool)) []Volume {
	if of == nil {
		return nil
	}
	var out []Volume
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		fs, ok := of(pod.UID, v.Name)
		if !ok {
			continue
		}
		s := Volume{Filesystem: fs, Name: v.Name}
		if name := volumebinding.ClaimName(pod, v); name != "" {
			s.PVC = &ClaimRef{Name: name, Namespace: pod.Namespace}
		}
		out = append(out, s)
	}
	return out
}
