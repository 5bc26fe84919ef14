package api

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// table returns what kubectl get prints of an object or a list of this API. Its rows
// hold the objects' metadata only.
func table(obj runtime.Object) *metav1.Table {
	t := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: "Name of the resource"},
		{Name: "cpu", Type: "string", Format: "quantity", Description: "CPU in use, in cores"},
		{Name: "memory", Type: "string", Format: "quantity", Description: "Memory in use, in bytes"},
		{Name: "Window", Type: "string", Format: "duration", Description: "Time in which the CPU usage was measured"},
	}, Rows: []metav1.TableRow{}}
	switch o := obj.(type) {
	case *metricsv1beta1.NodeMetrics:
		t.Rows = append(t.Rows, nodeRow(o))
	case *metricsv1beta1.NodeMetricsList:
		for i := range o.Items {
			t.Rows = append(t.Rows, nodeRow(&o.Items[i]))
		}
	case *metricsv1beta1.PodMetrics:
		t.Rows = append(t.Rows, podRow(o))
	case *metricsv1beta1.PodMetricsList:
		for i := range o.Items {
			t.Rows = append(t.Rows, podRow(&o.Items[i]))
		}
	}
	return t
}

func nodeRow(n *metricsv1beta1.NodeMetrics) metav1.TableRow {
	return row(n.ObjectMeta, n.Usage, n.Window.Duration)
}

func podRow(p *metricsv1beta1.PodMetrics) metav1.TableRow {
	var cpu, memory resource.Quantity
	for _, c := range p.Containers {
		cpu.Add(*c.Usage.Cpu())
		memory.Add(*c.Usage.Memory())
	}
	return row(p.ObjectMeta, corev1.ResourceList{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory}, p.Window.Duration)
}

func row(meta metav1.ObjectMeta, used corev1.ResourceList, window time.Duration) metav1.TableRow {
	return metav1.TableRow{
		Cells: []any{meta.Name, used.Cpu().String(), used.Memory().String(), window.String()},
		Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: meta,
		}},
	}
}
