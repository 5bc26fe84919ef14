package docker

import (
	"fmt"
	"strconv"

	"podium/api/config/v1alpha1"
)

func labelled(cluster string) string { return v1alpha1.LabelCluster + "=" + cluster }

// ContextName is the name of a cluster's entries in kubeconfigs.
func ContextName(cluster string) string { return "podium-" + cluster }

// nodeName names a node as its container: the first of a role has no number.
func nodeName(cluster string, role v1alpha1.Role, n int) string {
	name := fmt.Sprintf("%s-%s", cluster, role)
	if n > 1 {
		name += strconv.Itoa(n)
	}
	return name
}
