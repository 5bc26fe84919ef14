package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

// profile says what a debug container may do.
type profile struct {
	security *corev1.SecurityContext // of the debug container
	adds     bool                    // security is added to what the container has, instead of replacing it
	keep     bool                    // a copied pod keeps its annotations and probes, and each container its own processes

	hostNamespaces, hostRoot bool // of a node's debug pod
}

// profileOf returns the profile of a name, for a debug container of a pod or on a node.
func profileOf(name string, onNode bool) (profile, error) {
	switch name {
	case "legacy":
		return profile{adds: true, keep: true, hostNamespaces: true, hostRoot: true}, nil
	case "general":
		p := profile{adds: true, hostNamespaces: true, hostRoot: true}
		if !onNode { // tracing the processes of another container needs this capability
			p.security = addCapabilities("SYS_PTRACE")
		}
		return p, nil
	case "baseline":
		return profile{}, nil
	case "restricted":
		return profile{security: &corev1.SecurityContext{
			RunAsNonRoot: new(true), AllowPrivilegeEscalation: new(false),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}}, nil
	case "netadmin":
		return profile{security: addCapabilities("NET_ADMIN", "NET_RAW"), adds: true, hostNamespaces: true}, nil
	case "sysadmin":
		return profile{security: &corev1.SecurityContext{Privileged: new(true)}, adds: true, hostNamespaces: true, hostRoot: true}, nil
	}
	return profile{}, fmt.Errorf("unknown profile %q: use general, baseline, restricted, netadmin or sysadmin", name)
}

func addCapabilities(names ...corev1.Capability) *corev1.SecurityContext {
	return &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: names}}
}

// secure returns the security context of a debug container that has another one, or nil,
// without the profile.
func (p profile) secure(have *corev1.SecurityContext) *corev1.SecurityContext {
	switch {
	case !p.adds || have == nil:
		return p.security
	case p.security == nil:
		return have
	}
	out := have.DeepCopy()
	if p.security.Privileged != nil {
		out.Privileged = p.security.Privileged
	}
	if more := p.security.Capabilities; more != nil {
		if out.Capabilities == nil {
			out.Capabilities = &corev1.Capabilities{}
		}
		for _, name := range more.Add {
			if !slices.Contains(out.Capabilities.Add, name) {
				out.Capabilities.Add = append(out.Capabilities.Add, name)
			}
		}
	}
	return out
}

// customize merges the partial container of --custom into the debug container.
func customize(c corev1.Container, custom []byte) (corev1.Container, error) {
	var partial corev1.Container
	if err := yaml.UnmarshalStrict(custom, &partial); err != nil {
		return c, fmt.Errorf("--custom: %w", err)
	}
	if partial.Name != "" || partial.Image != "" || len(partial.Command) > 0 || partial.Lifecycle != nil || len(partial.VolumeDevices) > 0 {
		return c, errors.New("--custom: name, command, image, lifecycle and volumeDevices cannot be changed")
	}
	patch, err := yaml.YAMLToJSON(custom)
	if err != nil {
		return c, fmt.Errorf("--custom: %w", err)
	}
	before, err := json.Marshal(c)
	if err != nil {
		return c, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Container{})
	if err != nil {
		return c, fmt.Errorf("--custom: %w", err)
	}
	var out corev1.Container
	return out, json.Unmarshal(after, &out)
}
