package node

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/cloud"
)

// Names of upstream's on nodes.
const (
	taintNew      = "node.cloudprovider.kubernetes.io/uninitialized"
	taintShutdown = "node.cloudprovider.kubernetes.io/shutdown"
	// providedIP is how a kubelet with --node-ip says which of the machine's
	// addresses the node's is.
	providedIP = "alpha.kubernetes.io/provided-node-ip"
)

func shutdown() corev1.Taint {
	return corev1.Taint{Key: taintShutdown, Effect: corev1.TaintEffectNoSchedule}
}

func tainted(n *corev1.Node, key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// without are the node's taints but for those of a key; never nil, so that a
// patch empties the list.
func without(n *corev1.Node, key string) []corev1.Taint {
	return slices.DeleteFunc(append([]corev1.Taint{}, n.Spec.Taints...), func(t corev1.Taint) bool { return t.Key == key })
}

// mine says that the node's machine is for the provider to know.
func mine(n *corev1.Node, provider string) bool {
	return tainted(n, taintNew) || strings.HasPrefix(n.Spec.ProviderID, provider+"://")
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// labels are what is known of where a machine is and what it is like.
func labels(md cloud.Metadata) map[string]string {
	out := map[string]string{}
	for key, value := range map[string]string{
		corev1.LabelInstanceTypeStable: md.Type, corev1.LabelTopologyZone: md.Zone, corev1.LabelTopologyRegion: md.Region,
	} {
		if value != "" {
			out[key] = value
		}
	}
	return out
}

// addresses are those that the node gets. A kubelet that was told the node's
// address wants that one and no other of its type.
func addresses(n *corev1.Node, known []corev1.NodeAddress) ([]corev1.NodeAddress, error) {
	provided := n.Annotations[providedIP]
	if provided == "" {
		return known, nil
	}
	var first []corev1.NodeAddress
	for _, text := range strings.Split(provided, ",") {
		want, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("the annotation %s: %w", providedIP, err)
		}
		i := slices.IndexFunc(known, func(a corev1.NodeAddress) bool {
			have, err := netip.ParseAddr(a.Address)
			return err == nil && have == want
		})
		if i < 0 {
			return nil, fmt.Errorf("the kubelet was told that its node's address is %s, which is none of its machine's %s: correct its --node-ip", want, texts(known))
		}
		first = append(first, known[i])
	}
	typed := func(t corev1.NodeAddressType) bool {
		return slices.ContainsFunc(first, func(a corev1.NodeAddress) bool { return a.Type == t })
	}
	return append(first, slices.DeleteFunc(slices.Clone(known), func(a corev1.NodeAddress) bool { return typed(a.Type) })...), nil
}

func texts(all []corev1.NodeAddress) string {
	var out []string
	for _, a := range all {
		out = append(out, a.Address)
	}
	return strings.Join(out, ", ")
}
