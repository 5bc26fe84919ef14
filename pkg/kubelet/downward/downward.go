package downward

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podium/pkg/kubelet/podspec"
)

// Field returns the value of a field of the pod: metadata.name, .namespace, .uid,
// .labels, .annotations (all, or one by ['key']), and the fields of spec and
// status that do not change while a container runs. IPs are those of the pod's
// status; a caller that knows them earlier passes a pod with these IPs set.
func Field(pod *corev1.Pod, path string) (string, error) {
	if base, key, ok := subscript(path); ok {
		switch base {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
		return "", fmt.Errorf("fieldPath %q does not support subscript", path)
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.podIP":
		return pod.Status.PodIP, nil
	case "status.podIPs":
		ips := make([]string, len(pod.Status.PodIPs))
		for i, ip := range pod.Status.PodIPs {
			ips[i] = ip.IP
		}
		return strings.Join(ips, ","), nil
	case "status.hostIP":
		return pod.Status.HostIP, nil
	case "status.hostIPs":
		ips := make([]string, len(pod.Status.HostIPs))
		for i, ip := range pod.Status.HostIPs {
			ips[i] = ip.IP
		}
		return strings.Join(ips, ","), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", path)
}

// subscript splits metadata.labels['key'].
func subscript(path string) (base, key string, ok bool) {
	base, rest, ok := strings.Cut(path, "['")
	if !ok {
		return path, "", false
	}
	key, ok = strings.CutSuffix(rest, "']")
	return base, key, ok
}

// formatMap returns one line key="value" per pair, sorted by key, with the value
// quoted as by strconv.Quote.
func formatMap(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, fmt.Sprintf("%s=%q", k, m[k]))
	}
	return strings.Join(lines, "\n")
}

// Resource returns a request or limit of a container in units of the divisor,
// rounded up. For a limit that is not set it returns the pod's limit, else the
// node's allocatable resources, or 0 if node is nil. It uses container unless ref
// names another container of the pod.
func Resource(pod *corev1.Pod, container *corev1.Container, ref *corev1.ResourceFieldSelector, node *corev1.Node) (string, error) {
	if ref.ContainerName != "" {
		container = podspec.Container(pod, ref.ContainerName)
	}
	if container == nil {
		return "", fmt.Errorf("container %s not found", ref.ContainerName)
	}
	kind, name, ok := strings.Cut(ref.Resource, ".")
	if !ok || !known(corev1.ResourceName(name)) {
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	var q resource.Quantity
	switch kind {
	case "limits":
		q = limit(pod, container, corev1.ResourceName(name), node)
	case "requests":
		q = container.Resources.Requests[corev1.ResourceName(name)]
	default:
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	return divide(q, ref.Divisor, name == string(corev1.ResourceCPU)), nil
}

func known(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// limit returns the container's limit; if it has none, the pod's limit, else the
// node's allocatable. Huge pages have no such default.
func limit(pod *corev1.Pod, container *corev1.Container, name corev1.ResourceName, node *corev1.Node) resource.Quantity {
	if q, ok := container.Resources.Limits[name]; ok && !q.IsZero() {
		return q
	}
	if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
		return resource.Quantity{}
	}
	if pod.Spec.Resources != nil {
		if q, ok := pod.Spec.Resources.Limits[name]; ok && !q.IsZero() {
			return q
		}
	}
	if node != nil {
		return node.Status.Allocatable[name]
	}
	return resource.Quantity{}
}

// divide returns q in units of the divisor, rounded up; a zero divisor means 1.
func divide(q, divisor resource.Quantity, milli bool) string {
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	n, d := q.Value(), divisor.Value()
	if milli {
		n, d = q.MilliValue(), divisor.MilliValue()
	}
	return strconv.FormatInt(int64(math.Ceil(float64(n)/float64(d))), 10)
}
