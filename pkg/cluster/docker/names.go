package docker

import (
	"fmt"
	"strconv"

	"podium/api/config/v1alpha1"
)

func labelled(cluster string) string { return v1alpha1.LabelCluster + "=" + cluster }

// ContextName returns the name of a cluster's context, cluster and user in
// kubeconfigs.
func ContextName(cluster string) string { return "podium-" + cluster }

// nodeName returns the name of the n-th node of a role, which is also that of
// its container. The first one has no number.
func nodeName(cluster string, role v1alpha1.Role, n int) string {
	name := fmt.Sprintf("%s-%s", cluster, role)
	if n > 1 {
		name += strconv.Itoa(n)
	}
	return name
}
