package node

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Cloud is of a node that a cloud controller looks after. It says which machine
// the node is, in spec.providerID, where it is, and what its addresses are; a
// taint keeps pods off until then. A nil Cloud is of a node of its own.
type Cloud struct {
	ProvidedIPs []string // that the kubelet was told to have; may be empty
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

// annotations tell the cloud controller the address that it must find.
func (c *Cloud) annotations() map[string]string {
	if c == nil || len(c.ProvidedIPs) == 0 {
		return nil
	}
	return map[string]string{providedIP: strings.Join(c.ProvidedIPs, ",")}
}

// addresses are what the node's status says: have is what it does now, own
// what the kubelet has found. Its own serve until the cloud controller has
// spoken, if somebody has answered for them.
func (c *Cloud) addresses(have, own []corev1.NodeAddress) []corev1.NodeAddress {
	if c == nil || len(have) == 0 && len(c.ProvidedIPs) > 0 {
		return slices.Clone(own)
	}
	return have
}
