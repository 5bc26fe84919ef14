package node

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/cloud"
)

// Taints and annotations of nodes.
const (
	taintNew      = "node.cloudprovider.kubernetes.io/uninitialized"
	taintShutdown = "node.cloudprovider.kubernetes.io/shutdown"
	// providedIP is the annotation with a kubelet's --node-ip.
	providedIP = "alpha.kubernetes.io/provided-node-ip"
)

func shutdown() corev1.Taint {
	return corev1.Taint{Key: taintShutdown, Effect: corev1.TaintEffectNoSchedule}
}

func tainted(n *corev1.Node, key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// without returns the node's taints except those with a key. The result is never nil, so that
// a patch can empty the list.
func without(n *corev1.Node, key string) []corev1.Taint {
	return slices.DeleteFunc(append([]corev1.Taint{}, n.Spec.Taints...), func(t corev1.Taint) bool { return t.Key == key })
}

// managed reports whether the provider manages the node: it waits for
// initialization or has a provider ID of the provider.
func managed(n *corev1.Node, provider string) bool {
	return tainted(n, taintNew) || strings.HasPrefix(n.Spec.ProviderID, provider+"://")
}

// labels returns the node labels of an instance.
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

// addresses returns the addresses for the node's status, given those of its instance. If the
// kubelet has --node-ip, the status has no other address of that type.
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
			return nil, fmt.Errorf("the kubelet's --node-ip %s is not an address of its machine (%s)", want, texts(known))
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
