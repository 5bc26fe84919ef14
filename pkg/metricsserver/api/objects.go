package api

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"podium/pkg/metricsserver/usage"
)

// Nodes reads the nodes of the cluster.
type Nodes interface {
	Get(namespace, name string) (*corev1.Node, bool)
	List() []*corev1.Node // ordered by name
}

// Pods reads the running pods of the cluster.
type Pods interface {
	Get(namespace, name string) (*corev1.Pod, bool)
	List() []*corev1.Pod // ordered by namespace and name
	In(namespace string) []*corev1.Pod
}

// nodeMetrics returns nil if the usage of the node is not known.
func (s *Server) nodeMetrics(n *corev1.Node) *metricsv1beta1.NodeMetrics {
	u, ok := s.Usage.Node(n.Name)
	if !ok {
		return nil
	}
	return &metricsv1beta1.NodeMetrics{
		ObjectMeta: s.meta(n), Timestamp: metav1.NewTime(u.Time), Window: metav1.Duration{Duration: u.Window}, Usage: resources(u),
	}
}

// podMetrics returns nil if the usage of the pod is not known. The window is that of the
// container that was measured first.
func (s *Server) podMetrics(p *corev1.Pod) *metricsv1beta1.PodMetrics {
	containers := s.Usage.Pod(p.Spec.NodeName, types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
	if containers == nil {
		return nil
	}
	out := &metricsv1beta1.PodMetrics{ObjectMeta: s.meta(p), Containers: make([]metricsv1beta1.ContainerMetrics, 0, len(containers))}
	var first time.Time
	for name, u := range containers {
		out.Containers = append(out.Containers, metricsv1beta1.ContainerMetrics{Name: name, Usage: resources(u)})
		if first.IsZero() || u.Time.Before(first) {
			first = u.Time
			out.Timestamp, out.Window = metav1.NewTime(u.Time), metav1.Duration{Duration: u.Window}
		}
	}
	slices.SortFunc(out.Containers, func(a, b metricsv1beta1.ContainerMetrics) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// meta returns the metadata of an object that is made for this answer.
func (s *Server) meta(of metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: of.GetName(), Namespace: of.GetNamespace(), Labels: of.GetLabels(), CreationTimestamp: metav1.NewTime(s.Now()),
	}
}

func resources(u usage.Usage) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(u.CPU, resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(int64(u.Memory), resource.BinarySI),
	}
}
