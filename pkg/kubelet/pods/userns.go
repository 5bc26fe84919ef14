package pods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
)

// UserNS allocates ranges of ids for the user namespaces of pods.
type UserNS interface {
	// Of returns the pod's namespace, the same one in every call until Release.
	Of(uid types.UID) (*runtimeapi.UserNamespace, error)
	// Release frees the pod's range. It does nothing for a pod without a range.
	Release(uid types.UID) error
}

func wantsUserNS(pod *corev1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// refuseUserNS rejects a pod with a user namespace if the kernel or the runtime does
// not support one. The error means that the runtime does not answer.
func (m *Manager) refuseUserNS(ctx context.Context, pod *corev1.Pod) (*refusal, error) {
	if !wantsUserNS(pod) {
		return nil, nil
	}
	refuse := func(why string) *refusal {
		return &refusal{"UserNamespacesNotSupported", "Pod requires a user namespace (hostUsers: false): " + why}
	}
	if !m.cfg.Host.UserNS {
		return refuse("the kernel of this node does not support it"), nil
	}
	res, err := m.cfg.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return nil, fmt.Errorf("runtime status: %s", cri.Message(err))
	}
	for _, h := range res.RuntimeHandlers {
		if h.Name == "" && h.GetFeatures().GetUserNamespaces() {
			return nil, nil
		}
	}
	return refuse(`RuntimeClass handler "" does not support user namespaces`), nil
}

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
