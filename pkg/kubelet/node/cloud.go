package node

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Cloud configures a node that a cloud-controller-manager initializes: it sets
// spec.providerID, the zone and the addresses. A taint keeps pods off the node
// until then. A nil *Cloud means a node without a cloud provider.
type Cloud struct {
	ProvidedIPs []string // the values of --node-ip; may be empty
}

const providedIP = "alpha.kubernetes.io/provided-node-ip"

func (c *Cloud) taints(own []corev1.Taint) []corev1.Taint {
	if c == nil {
		return own
	}
	return append(slices.Clone(own), corev1.Taint{
		Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule,
	})
}

// annotations returns the annotation that names the addresses which the cloud
// must confirm.
func (c *Cloud) annotations() map[string]string {
	if c == nil || len(c.ProvidedIPs) == 0 {
		return nil
	}
	return map[string]string{providedIP: strings.Join(c.ProvidedIPs, ",")}
}

// addresses returns the addresses for the node's status. have are the present
// ones, own those of the machine. Until the cloud-controller-manager has set
// addresses, own are used if --node-ip names them.
func (c *Cloud) addresses(have, own []corev1.NodeAddress) []corev1.NodeAddress {
	if c == nil || len(have) == 0 && len(c.ProvidedIPs) > 0 {
		return slices.Clone(own)
	}
	return have
}
