package pods

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UserNS allocates ranges of ids for the user namespaces of pods.
type UserNS interface {
	// Of returns the pod's namespace, the same one in every call until Release.
	Of(uid types.UID) (*runtimeapi.UserNamespace, error)
	// Release frees the pod's range. It does nothing for a pod without a range.
	Release(uid types.UID) error
}

func wantsUserNS(pod *corev1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// mapIDs makes the mounts idmapped: the container sees the owners of files as they
// are on the node.
func mapIDs(mounts []*runtimeapi.Mount, n *runtimeapi.UserNamespace) {
	if n == nil {
		return
	}
	for _, mount := range mounts {
		mount.UidMappings, mount.GidMappings = n.Uids, n.Gids
	}
}
