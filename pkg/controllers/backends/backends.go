package backends

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podium/pkg/controller/pods"
)

// Managed reports whether controllers manage the Service's endpoints. They do not for a
// Service without a selector, whose endpoints the user manages, or of type ExternalName.
func Managed(s *corev1.Service) bool {
	return s.DeletionTimestamp == nil && s.Spec.Type != corev1.ServiceTypeExternalName && len(s.Spec.Selector) > 0
}

// Headless reports whether the Service has no cluster IP.
func Headless(s *corev1.Service) bool {
	return s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone
}

// Usable reports whether the pod can be an endpoint: it has an address and is not
// terminal.
func Usable(p *corev1.Pod) bool { return !pods.Terminal(p) && len(addresses(p)) > 0 }

// Families returns the address families of a Service, by default IPv4.
func Families(s *corev1.Service) []corev1.IPFamily {
	if len(s.Spec.IPFamilies) > 0 {
		return s.Spec.IPFamilies
	}
	if isIPv6(s.Spec.ClusterIP) {
		return []corev1.IPFamily{corev1.IPv6Protocol}
	}
	return []corev1.IPFamily{corev1.IPv4Protocol}
}

// Address returns the pod's first address of a family, "" if it has none.
func Address(p *corev1.Pod, family corev1.IPFamily) string {
	for _, ip := range addresses(p) {
		if isIPv6(ip) == (family == corev1.IPv6Protocol) {
			return ip
		}
	}
	return ""
}

func isIPv6(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && ip.Is6()
}

func addresses(p *corev1.Pod) []string {
	var out []string
	for _, ip := range p.Status.PodIPs {
		if ip.IP != "" {
			out = append(out, ip.IP)
		}
	}
	if len(out) == 0 && p.Status.PodIP != "" {
		out = append(out, p.Status.PodIP)
	}
	return out
}

// Port returns the number of the Service's port in this pod. A named port is looked up in
// the pod's containers; ok is false if no container has it.
func Port(p *corev1.Pod, sp *corev1.ServicePort) (int32, bool) {
	if sp.TargetPort.Type == intstr.Int {
		if sp.TargetPort.IntVal == 0 {
			return sp.Port, true
		}
		return sp.TargetPort.IntVal, true
	}
	for _, c := range p.Spec.Containers {
		if n, ok := named(c, sp); ok {
			return n, true
		}
	}
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			if n, ok := named(c, sp); ok {
				return n, true
			}
		}
	}
	return 0, false
}

func named(c corev1.Container, sp *corev1.ServicePort) (int32, bool) {
	for _, port := range c.Ports {
		if port.Name == sp.TargetPort.StrVal && port.Protocol == sp.Protocol {
			return port.ContainerPort, true
		}
	}
	return 0, false
}

// Hostname returns the pod's name within the Service's domain, "" if it has none.
func Hostname(p *corev1.Pod, s *corev1.Service) string {
	if p.Spec.Hostname != "" && p.Spec.Subdomain == s.Name && p.Namespace == s.Namespace {
		return p.Spec.Hostname
	}
	return ""
}

// same reports whether a change of a pod affects no endpoint.
func same(a, b *corev1.Pod) bool {
	return a.UID == b.UID && maps.Equal(a.Labels, b.Labels) && slices.Equal(addresses(a), addresses(b)) &&
		pods.Ready(a) == pods.Ready(b) && pods.Terminal(a) == pods.Terminal(b) &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) && a.Spec.NodeName == b.Spec.NodeName
}
