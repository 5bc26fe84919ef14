package staticpods

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	kubelet "podium/pkg/kubelet/pods"
)

// Mirrors is the API of the pods of the node: that of a static pod is its mirror, with the
// uid of the static pod.
var _ kubelet.API = (*Mirrors)(nil)

// GetPod implements pods.API.
func (m *Mirrors) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, err := m.cfg.API.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return reflected(pod), nil
}

// PatchStatus implements pods.API.
func (m *Mirrors) PatchStatus(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error) {
	mirror := m.mirror(types.NamespacedName{Namespace: namespace, Name: name})
	if mirror != nil {
		var err error
		if patch, err = redirect(patch, staticUID(mirror), mirror.UID); err != nil {
			return nil, err
		}
	}
	pod, err := m.cfg.API.PatchStatus(ctx, namespace, name, patch)
	if err != nil {
		if mirror != nil && apierrors.IsNotFound(err) {
			m.forget(mirror)
		}
		return nil, err
	}
	return reflected(pod), nil
}

// DeletePod implements pods.API.
func (m *Mirrors) DeletePod(ctx context.Context, namespace, name string, uid types.UID) error {
	return m.cfg.API.DeletePod(ctx, namespace, name, uid)
}

// staticUID returns the uid of the static pod of a mirror.
func staticUID(mirror *corev1.Pod) types.UID {
	return types.UID(mirror.Annotations[corev1.MirrorPodAnnotationKey])
}

// reflected returns a mirror with the uid of its static pod; any other pod as it is.
func reflected(pod *corev1.Pod) *corev1.Pod {
	if !isMirror(pod) {
		return pod
	}
	out := *pod
	out.UID = staticUID(pod)
	return &out
}

// redirect replaces the uid that is the precondition of a patch, if it is from.
func redirect(patch []byte, from, to types.UID) ([]byte, error) {
	var tree map[string]json.RawMessage
	if err := json.Unmarshal(patch, &tree); err != nil {
		return nil, err
	}
	var metadata struct {
		UID types.UID `json:"uid"`
	}
	if err := json.Unmarshal(tree["metadata"], &metadata); err != nil || metadata.UID != from {
		return patch, err
	}
	text, err := json.Marshal(map[string]types.UID{"uid": to})
	if err != nil {
		return nil, err
	}
	tree["metadata"] = text
	return json.Marshal(tree)
}
