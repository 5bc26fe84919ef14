package registry

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
)

const kubeletPort = 10250

func (a *allocator) validate(svc, old *corev1.Service) field.ErrorList {
	path := field.NewPath("spec")
	errs := fieldcheck.OneOf(svc.Spec.Type, path.Child("type"), corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)
	errs = append(errs, validateByType(svc, path)...)
	errs = append(errs, validateServicePorts(svc, path.Child("ports"))...)
	errs = append(errs, metavalidation.ValidateLabels(svc.Spec.Selector, path.Child("selector"))...)
	errs = append(errs, validateAffinity(&svc.Spec, path)...)
	errs = append(errs, a.validateAddresses(svc, path)...)
	errs = append(errs, validateTraffic(svc, path)...)
	errs = append(errs, validateBalancer(svc, old, path)...)
	for i, ip := range svc.Spec.ExternalIPs {
		errs = append(errs, validateOutsideIP(ip, path.Child("externalIPs").Index(i))...)
	}
	if old != nil {
		errs = append(errs, validateServiceUpdate(svc, old, path)...)
	}
	return errs
}

func validateByType(svc *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	spec := &svc.Spec
	if len(spec.Ports) == 0 && !headless(svc) && spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(path.Child("ports"), ""))
	}
	switch spec.Type {
	case corev1.ServiceTypeLoadBalancer:
		for i, p := range spec.Ports {
			if p.Port == kubeletPort {
				errs = append(errs, field.Invalid(path.Child("ports").Index(i), p.Port, fmt.Sprintf("may not expose port %v externally since it is used by kubelet", kubeletPort)))
			}
		}
		if headless(svc) {
			errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(0), corev1.ClusterIPNone, "may not be set to 'None' for LoadBalancer services"))
		}
	case corev1.ServiceTypeNodePort:
		if headless(svc) {
			errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(0), corev1.ClusterIPNone, "may not be set to 'None' for NodePort services"))
		}
	case corev1.ServiceTypeClusterIP:
		for i, p := range spec.Ports {
			if p.NodePort != 0 {
				errs = append(errs, field.Forbidden(path.Child("ports").Index(i).Child("nodePort"), "may not be used when `type` is 'ClusterIP'"))
			}
		}
	case corev1.ServiceTypeExternalName:
		errs = append(errs, validateExternalName(spec, path)...)
	}
	return errs
}

func validateExternalName(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	const not = "may not be set for ExternalName services"
	if len(spec.ClusterIPs) > 0 {
		errs = append(errs, field.Forbidden(path.Child("clusterIPs"), not))
	}
	if len(spec.IPFamilies) > 0 {
		errs = append(errs, field.Forbidden(path.Child("ipFamilies"), not))
	}
	if spec.IPFamilyPolicy != nil {
		errs = append(errs, field.Forbidden(path.Child("ipFamilyPolicy"), not))
	}
	name := strings.TrimSuffix(spec.ExternalName, ".")
	if name == "" {
		return append(errs, field.Required(path.Child("externalName"), ""))
	}
	return append(errs, fieldcheck.Invalid(validation.IsDNS1123Subdomain(name), path.Child("externalName"), name)...)
}

func validateServicePorts(svc *corev1.Service, path *field.Path) field.ErrorList {
	type key struct {
		protocol corev1.Protocol
		port     int32
	}
	var errs field.ErrorList
	names, ports, nodePorts := map[string]bool{}, map[key]bool{}, map[key]bool{}
	for i := range svc.Spec.Ports {
		p, at := &svc.Spec.Ports[i], path.Index(i)
		switch {
		case p.Name != "":
			errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Label(p.Name), at.Child("name"), p.Name)...)
			if names[p.Name] {
				errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
			}
			names[p.Name] = true
		case len(svc.Spec.Ports) > 1:
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		errs = append(errs, fieldcheck.Invalid(validation.IsValidPortNum(int(p.Port)), at.Child("port"), p.Port)...)
		errs = append(errs, fieldcheck.OneOf(p.Protocol, at.Child("protocol"), corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
		errs = append(errs, validateTargetPort(p.TargetPort, at.Child("targetPort"))...)
		if p.AppProtocol != nil {
			errs = append(errs, fieldcheck.Invalid(validation.IsQualifiedName(*p.AppProtocol), at.Child("appProtocol"), *p.AppProtocol)...)
		}
		if k := (key{p.Protocol, p.NodePort}); p.NodePort != 0 {
			if nodePorts[k] {
				errs = append(errs, field.Duplicate(at.Child("nodePort"), p.NodePort))
			}
			nodePorts[k] = true
		}
		k := key{p.Protocol, p.Port}
		if ports[k] {
			errs = append(errs, field.Duplicate(at, corev1.ServicePort{Protocol: p.Protocol, Port: p.Port}))
		}
		ports[k] = true
	}
	return errs
}

func validateTargetPort(port intstr.IntOrString, path *field.Path) field.ErrorList {
	if port.Type == intstr.Int {
		return fieldcheck.Invalid(validation.IsValidPortNum(int(port.IntVal)), path, port.IntVal)
	}
	return fieldcheck.Invalid(validation.IsValidPortName(port.StrVal), path, port.StrVal)
}

func validateAffinity(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	errs := fieldcheck.OneOf(spec.SessionAffinity, path.Child("sessionAffinity"), corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	c := spec.SessionAffinityConfig
	path = path.Child("sessionAffinityConfig")
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		if c != nil {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("must not be set when session affinity is %s", corev1.ServiceAffinityNone)))
		}
	case corev1.ServiceAffinityClientIP:
		at := path.Child("clientIP", "timeoutSeconds")
		if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			return append(errs, field.Required(path, fmt.Sprintf("when session affinity type is %s", corev1.ServiceAffinityClientIP)))
		}
		const day = 24 * 60 * 60
		if s := *c.ClientIP.TimeoutSeconds; s <= 0 || s > day {
			errs = append(errs, field.Invalid(at, s, fmt.Sprintf("must be greater than 0 and less than %d", day)))
		}
	}
	return errs
}

// validateAddresses validates cluster IPs and IP families. The cluster supports one
// family for Services.
func (a *allocator) validateAddresses(svc *corev1.Service, path *field.Path) field.ErrorList {
	if !needsClusterIP(svc) {
		return nil
	}
	var errs field.ErrorList
	spec := &svc.Spec
	ips := path.Child("clusterIPs")
	if len(spec.ClusterIPs) > 1 {
		errs = append(errs, field.Invalid(ips, spec.ClusterIPs, "this cluster is not configured for dual-stack services"))
	}
	if first := append(spec.ClusterIPs, "")[0]; first != spec.ClusterIP {
		errs = append(errs, field.Invalid(ips, spec.ClusterIPs, "first value must match `clusterIP`"))
	}
	for i, ip := range spec.ClusterIPs {
		if ip != corev1.ClusterIPNone {
			errs = append(errs, validation.IsValidIPForLegacyField(ips.Index(i), ip, true, nil)...)
		}
	}
	anyFamily := headless(svc) && len(spec.Selector) == 0 // the user manages the endpoints
	if p := spec.IPFamilyPolicy; p != nil {
		at := path.Child("ipFamilyPolicy")
		errs = append(errs, fieldcheck.OneOf(*p, at, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack)...)
		if *p == corev1.IPFamilyPolicyRequireDualStack && !anyFamily {
			errs = append(errs, field.Invalid(at, *p, "this cluster is not configured for dual-stack services"))
		}
	}
	for i, family := range spec.IPFamilies {
		at := path.Child("ipFamilies").Index(i)
		bad := fieldcheck.OneOf(family, at, corev1.IPv4Protocol, corev1.IPv6Protocol)
		switch {
		case len(bad) > 0:
			errs = append(errs, bad...)
		case slices.Contains(spec.IPFamilies[:i], family):
			errs = append(errs, field.Duplicate(at, family))
		case family != a.family() && !anyFamily:
			errs = append(errs, field.Invalid(at, family, "not configured on this cluster"))
		}
	}
	return errs
}

func validateTraffic(svc *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	spec := &svc.Spec
	at := path.Child("externalTrafficPolicy")
	switch {
	case external(svc):
		errs = append(errs, fieldcheck.OneOf(spec.ExternalTrafficPolicy, at, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)...)
	case spec.ExternalTrafficPolicy != "":
		errs = append(errs, field.Invalid(at, spec.ExternalTrafficPolicy, "may only be set for externally-accessible services"))
	}
	if p := spec.InternalTrafficPolicy; p != nil {
		errs = append(errs, fieldcheck.OneOf(*p, path.Child("internalTrafficPolicy"), corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)...)
	}
	at = path.Child("healthCheckNodePort")
	if port := spec.HealthCheckNodePort; port != 0 {
		if !needsHealthPort(svc) {
			errs = append(errs, field.Invalid(at, port, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
		}
		errs = append(errs, fieldcheck.Invalid(validation.IsValidPortNum(int(port)), at, port)...)
	}
	if d := spec.TrafficDistribution; d != nil {
		errs = append(errs, fieldcheck.OneOf(*d, path.Child("trafficDistribution"), corev1.ServiceTrafficDistributionPreferClose,
			corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode)...)
	}
	return errs
}

func validateBalancer(svc, old *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	spec := &svc.Spec
	balancer := spec.Type == corev1.ServiceTypeLoadBalancer
	const only = "may only be used when `type` is 'LoadBalancer'"
	if len(spec.LoadBalancerSourceRanges) > 0 {
		at := path.Child("LoadBalancerSourceRanges")
		if !balancer {
			errs = append(errs, field.Forbidden(at, only))
		}
		for i, cidr := range spec.LoadBalancerSourceRanges {
			errs = append(errs, validation.IsValidCIDRForLegacyField(at.Index(i), strings.TrimSpace(cidr), false, nil)...)
		}
	}
	if spec.AllocateLoadBalancerNodePorts != nil && !balancer {
		errs = append(errs, field.Forbidden(path.Child("allocateLoadBalancerNodePorts"), only))
	}
	class := path.Child("loadBalancerClass")
	if c := spec.LoadBalancerClass; c != nil {
		if !balancer {
			errs = append(errs, field.Forbidden(class, only))
		}
		errs = append(errs, metavalidation.ValidateLabelName(*c, class)...)
	}
	if old != nil && balancer && old.Spec.Type == corev1.ServiceTypeLoadBalancer {
		errs = append(errs, apivalidation.ValidateImmutableField(spec.LoadBalancerClass, old.Spec.LoadBalancerClass, class)...)
	}
	return errs
}

// validateServiceUpdate checks that cluster IP and IP family do not change, except
// from or to ExternalName.
func validateServiceUpdate(svc, old *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if needsClusterIP(svc) && needsClusterIP(old) {
		if old.Spec.ClusterIP != "" && svc.Spec.ClusterIP != old.Spec.ClusterIP {
			errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(0), svc.Spec.ClusterIPs, "may not change once set"))
		}
		if len(old.Spec.IPFamilies) > 0 && len(svc.Spec.IPFamilies) > 0 && svc.Spec.IPFamilies[0] != old.Spec.IPFamilies[0] {
			errs = append(errs, field.Invalid(path.Child("ipFamilies").Index(0), svc.Spec.IPFamilies, "may not change once set"))
		}
	}
	if needsHealthPort(svc) && needsHealthPort(old) && svc.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(path.Child("healthCheckNodePort"), "field is immutable"))
	}
	return errs
}

// validateOutsideIP validates an IP address at which clients outside the cluster
// reach a Service.
func validateOutsideIP(ip string, path *field.Path) field.ErrorList {
	addr, err := netip.ParseAddr(ip)
	if err != nil || addr.Zone() != "" {
		return validation.IsValidIP(path, ip)
	}
	return validateEndpointIP(addr.Unmap(), path)
}

// validateEndpointIP rejects addresses whose meaning depends on the node.
func validateEndpointIP(ip netip.Addr, path *field.Path) field.ErrorList {
	refuse := func(detail string) field.ErrorList {
		return field.ErrorList{field.Invalid(path, ip.String(), detail)}
	}
	switch {
	case ip.IsUnspecified():
		return refuse(fmt.Sprintf("may not be unspecified (%v)", ip))
	case ip.IsLoopback():
		return refuse("may not be in the loopback range (127.0.0.0/8, ::1/128)")
	case ip.IsLinkLocalUnicast():
		return refuse("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
	case ip.IsLinkLocalMulticast():
		return refuse("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
	}
	return nil
}

func validateServiceStatus(svc, _ *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status", "loadBalancer", "ingress")
	ingress := svc.Status.LoadBalancer.Ingress
	if len(ingress) > 0 && svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return field.ErrorList{field.Forbidden(path, "may only be used when `spec.type` is LoadBalancer")}
	}
	for i, in := range ingress {
		at := path.Index(i)
		if in.IP != "" {
			errs = append(errs, validation.IsValidIPForLegacyField(at.Child("ip"), in.IP, false, nil)...)
		}
		if in.Hostname != "" {
			errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Subdomain(in.Hostname), at.Child("hostname"), in.Hostname)...)
		}
		if in.IPMode != nil {
			if in.IP == "" {
				errs = append(errs, field.Forbidden(at.Child("ipMode"), "may not be specified when `ip` is not set"))
			}
			errs = append(errs, fieldcheck.OneOf(*in.IPMode, at.Child("ipMode"), corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)...)
		}
	}
	return errs
}
