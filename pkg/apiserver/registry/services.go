package registry

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podium/pkg/scheme"
)

func services(k *scheme.Kind, s *scheme.Scheme, cfg Config) *Kind {
	alloc := newAllocator(s, cfg, cfg.ranges)
	return Of[*corev1.Service]{
		Default: defaultService,
		Prepare: func(_ context.Context, _ Backend, new, old *corev1.Service) error {
			prepareService(new, old)
			return nil
		},
		Allocate:                 alloc.allocate,
		Release:                  alloc.release,
		Validate:                 alloc.validate,
		ValidateName:             apivalidation.NameIsDNS1035Label,
		Warnings:                 serviceWarnings,
		Columns:                  serviceColumns(),
		Row:                      serviceRow,
		Fields:                   serviceFields,
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,
		Subresources: append([]*Subresource{
			part(k, "status", func(new, old *corev1.Service) { new.Spec = old.Spec }, validateServiceStatus),
		}, stream("proxy", "ServiceProxyOptions", cfg.Streams.ServiceProxy, proxyMethods())...),
	}.Kind(k)
}

const affinitySeconds = 3 * 60 * 60

func defaultService(svc *corev1.Service) {
	spec := &svc.Spec
	orDefault(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	orDefault(&spec.Type, corev1.ServiceTypeClusterIP)
	if spec.SessionAffinity == corev1.ServiceAffinityNone {
		spec.SessionAffinityConfig = nil
	}
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		if c := spec.SessionAffinityConfig; c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(affinitySeconds))}}
		}
	}
	for i := range spec.Ports {
		p := &spec.Ports[i]
		orDefault(&p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	if external(svc) {
		orDefault(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if spec.Type != corev1.ServiceTypeExternalName && spec.InternalTrafficPolicy == nil {
		spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer && spec.AllocateLoadBalancerNodePorts == nil {
		spec.AllocateLoadBalancerNodePorts = new(true)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		for i := range svc.Status.LoadBalancer.Ingress {
			if in := &svc.Status.LoadBalancer.Ingress[i]; in.IP != "" && in.IPMode == nil {
				in.IPMode = new(corev1.LoadBalancerIPModeVIP)
			}
		}
	}
}

// external reports whether the Service can be reached from outside the cluster.
func external(svc *corev1.Service) bool {
	switch svc.Spec.Type {
	case corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return true
	case corev1.ServiceTypeClusterIP:
		return len(svc.Spec.ExternalIPs) > 0
	}
	return false
}

func headless(svc *corev1.Service) bool { return svc.Spec.ClusterIP == corev1.ClusterIPNone }

func needsClusterIP(svc *corev1.Service) bool {
	switch svc.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return true
	}
	return false
}

func needsNodePorts(svc *corev1.Service) bool {
	switch svc.Spec.Type {
	case corev1.ServiceTypeNodePort:
		return true
	case corev1.ServiceTypeLoadBalancer:
		return svc.Spec.AllocateLoadBalancerNodePorts == nil || *svc.Spec.AllocateLoadBalancerNodePorts
	}
	return false
}

func needsHealthPort(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// prepareService synchronizes duplicate fields, keeps allocated values, and clears
// fields that the new type does not have.
func prepareService(svc, old *corev1.Service) {
	if old == nil {
		svc.Status = corev1.ServiceStatus{}
		if svc.Spec.ClusterIP != "" && len(svc.Spec.ClusterIPs) == 0 {
			svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
		}
		return
	}
	svc.Status = old.Status
	keepAllocated(svc, old)
	followClusterIP(&svc.Spec, &old.Spec)
	dropUnneeded(svc, old)
}

// keepAllocated copies allocated values that an update omits from old.
func keepAllocated(svc, old *corev1.Service) {
	if needsClusterIP(svc) && needsClusterIP(old) && svc.Spec.ClusterIP == "" {
		svc.Spec.ClusterIP = old.Spec.ClusterIP
		if len(svc.Spec.ClusterIPs) == 0 {
			svc.Spec.ClusterIPs = old.Spec.ClusterIPs
		}
	}
	if needsNodePorts(svc) && needsNodePorts(old) {
		keepNodePorts(svc.Spec.Ports, old.Spec.Ports)
	}
	if needsHealthPort(svc) && needsHealthPort(old) && svc.Spec.HealthCheckNodePort == 0 {
		svc.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
}

func keepNodePorts(ports, old []corev1.ServicePort) {
	type key struct {
		protocol corev1.Protocol
		port     int32
	}
	before, taken := map[key]int32{}, map[int32]bool{}
	for _, p := range old {
		before[key{p.Protocol, p.Port}] = p.NodePort
	}
	for _, p := range ports {
		taken[p.NodePort] = true
	}
	for i := range ports {
		p := &ports[i]
		if n := before[key{p.Protocol, p.Port}]; p.NodePort == 0 && !taken[n] {
			p.NodePort = n
		}
	}
}

// followClusterIP synchronizes clusterIP and clusterIPs[0]: a client that uses only
// one of the fields changes only that one.
func followClusterIP(spec, old *corev1.ServiceSpec) {
	sameIP := spec.ClusterIP == old.ClusterIP
	sameIPs := apiequality.Semantic.DeepEqual(spec.ClusterIPs, old.ClusterIPs)
	switch {
	case !sameIP && spec.ClusterIP == "" && (sameIPs || len(spec.ClusterIPs) == 0):
		spec.ClusterIPs = nil
	case !sameIP && (sameIPs || len(spec.ClusterIPs) == 0):
		spec.ClusterIPs = []string{spec.ClusterIP}
	case sameIP && len(spec.ClusterIPs) == 0:
		spec.ClusterIPs = old.ClusterIPs
	}
}

// dropUnneeded clears fields that the new type does not have, if the client has not
// changed them. Validate rejects those that the client has changed.
func dropUnneeded(svc, old *corev1.Service) {
	spec, was := &svc.Spec, &old.Spec
	if needsClusterIP(old) && !needsClusterIP(svc) {
		if spec.ClusterIP == was.ClusterIP {
			spec.ClusterIP, spec.ClusterIPs = "", nil
		}
		if apiequality.Semantic.DeepEqual(spec.IPFamilies, was.IPFamilies) {
			spec.IPFamilies = nil
		}
		if apiequality.Semantic.DeepEqual(spec.IPFamilyPolicy, was.IPFamilyPolicy) {
			spec.IPFamilyPolicy = nil
		}
	}
	if needsNodePorts(old) && !needsNodePorts(svc) && sameNodePorts(spec.Ports, was.Ports) {
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
	}
	if needsHealthPort(old) && !needsHealthPort(svc) && spec.HealthCheckNodePort == was.HealthCheckNodePort {
		spec.HealthCheckNodePort = 0
	}
	if external(old) && !external(svc) && spec.ExternalTrafficPolicy == was.ExternalTrafficPolicy {
		spec.ExternalTrafficPolicy = ""
	}
	if was.Type == corev1.ServiceTypeLoadBalancer && spec.Type != corev1.ServiceTypeLoadBalancer {
		if apiequality.Semantic.DeepEqual(spec.AllocateLoadBalancerNodePorts, was.AllocateLoadBalancerNodePorts) {
			spec.AllocateLoadBalancerNodePorts = nil
		}
		if apiequality.Semantic.DeepEqual(spec.LoadBalancerClass, was.LoadBalancerClass) {
			spec.LoadBalancerClass = nil
		}
		svc.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
}

// sameNodePorts reports whether all node ports of ports are also in old.
func sameNodePorts(ports, old []corev1.ServicePort) bool {
	before := map[int32]bool{0: true}
	for _, p := range old {
		before[p.NodePort] = true
	}
	for _, p := range ports {
		if !before[p.NodePort] {
			return false
		}
	}
	return true
}

func serviceFields(svc *corev1.Service) fields.Set {
	return fields.Set{"spec.clusterIP": svc.Spec.ClusterIP, "spec.type": string(svc.Spec.Type)}
}

func serviceWarnings(svc, _ *corev1.Service) []string {
	var out []string
	if svc.Spec.Type != corev1.ServiceTypeExternalName && svc.Spec.ExternalName != "" {
		out = append(out, fmt.Sprintf("spec.externalName is ignored when spec.type is not %q", corev1.ServiceTypeExternalName))
	}
	for _, key := range []string{corev1.AnnotationTopologyMode, corev1.DeprecatedAnnotationTopologyAwareHints} {
		if mode, ok := svc.Annotations[key]; ok && !strings.EqualFold(mode, "disabled") {
			out = append(out, fmt.Sprintf("metadata.annotations[%s]: %q has no effect in this version, use spec.trafficDistribution: %s", key, mode, corev1.ServiceTrafficDistributionPreferSameZone))
		}
	}
	if headless(svc) {
		if svc.Spec.LoadBalancerIP != "" {
			out = append(out, "spec.loadBalancerIP is ignored for headless services")
		}
		if len(svc.Spec.ExternalIPs) > 0 {
			out = append(out, "spec.externalIPs is ignored for headless services")
		}
		if svc.Spec.SessionAffinity != corev1.ServiceAffinityNone {
			out = append(out, "spec.SessionAffinity is ignored for headless services")
		}
	}
	return out
}

func serviceColumns() []metav1.TableColumnDefinition {
	doc := corev1.ServiceSpec{}.SwaggerDoc()
	return append(columns(
		column("Type", doc["type"]),
		column("Cluster-IP", doc["clusterIP"]),
		column("External-IP", doc["externalIPs"]),
		column("Port(s)", doc["ports"]),
		ageColumn(),
	), wide(column("Selector", doc["selector"]))...)
}

func serviceRow(svc *corev1.Service, now time.Time) []any {
	return []any{svc.Name, string(svc.Spec.Type), orNone(svc.Spec.ClusterIP), externalAddresses(svc),
		portList(svc.Spec.Ports), age(svc.CreationTimestamp, now), formatLabels(svc.Spec.Selector)}
}

func externalAddresses(svc *corev1.Service) string {
	switch svc.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return orNone(strings.Join(svc.Spec.ExternalIPs, ","))
	case corev1.ServiceTypeExternalName:
		return svc.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		var all []string
		for _, ingress := range svc.Status.LoadBalancer.Ingress {
			if ingress.IP != "" {
				all = append(all, ingress.IP)
			} else if ingress.Hostname != "" {
				all = append(all, ingress.Hostname)
			}
		}
		if all = append(all, svc.Spec.ExternalIPs...); len(all) == 0 {
			return "<pending>"
		}
		return strings.Join(all, ",")
	}
	return "<unknown>"
}

func portList(ports []corev1.ServicePort) string {
	var list []string
	for _, p := range ports {
		if p.NodePort > 0 {
			list = append(list, fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol))
		} else {
			list = append(list, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
	}
	return orNone(strings.Join(list, ","))
}
