package quota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

const (
	countPrefix        = "count/"
	storageClassInfix  = ".storageclass.storage.k8s.io/"
	hugePagesRequested = corev1.DefaultResourceRequestsPrefix + corev1.ResourceHugePagesPrefix
)

// computeNames returns the resources that pods use, besides their number.
func computeNames() []corev1.ResourceName {
	return []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
	}
}

// countedNames returns the resources that are numbers of objects and have a name
// without count/.
func countedNames() []corev1.ResourceName {
	return []corev1.ResourceName{
		corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
		corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims,
		corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
	}
}

// Standard reports whether name is a resource of Kubernetes that a quota may limit
// by this name alone.
func Standard(name corev1.ResourceName) bool {
	return slices.Contains(computeNames(), name) || slices.Contains(countedNames(), name) ||
		name == corev1.ResourceRequestsStorage || hugePages(name)
}

func hugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) || strings.HasPrefix(string(name), hugePagesRequested)
}

// extended reports whether name is a resource of neither Kubernetes nor a quota,
// such as example.com/gpu.
func extended(name corev1.ResourceName) bool {
	if strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) {
		return true // devices of a class
	}
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), "kubernetes.io/") &&
		!strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
}

// extendedRequest reports whether name is the requests of an extended resource:
// requests.example.com/gpu.
func extendedRequest(name corev1.ResourceName) bool {
	bare, ok := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	return ok && extended(corev1.ResourceName(bare))
}

// Integer reports whether the quantities of a resource are whole numbers.
func Integer(name corev1.ResourceName) bool {
	return slices.Contains(countedNames(), name) || extended(name)
}
