package extendedresources_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/extendedresources"
)

func container(names ...corev1.ResourceName) []corev1.Container {
	c := corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}
	for _, name := range names {
		c.Resources.Requests[name] = resource.MustParse("1")
	}
	return []corev1.Container{c}
}

func exists(key string, effect corev1.TaintEffect) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
}

func TestTolerations(t *testing.T) {
	const gpu, fpga = "example.com/gpu", "example.com/fpga"
	for name, row := range map[string]struct {
		reason string
		spec   corev1.PodSpec
		sub    string
		want   []corev1.Toleration
	}{
		"native":     {reason: "nodes are not reserved for CPU", spec: corev1.PodSpec{Containers: container("cpu", "hugepages-2Mi", "node.kubernetes.io/x", "requests.example.com/x")}},
		"sorted":     {reason: "each resource once, in a stable order", spec: corev1.PodSpec{InitContainers: container(gpu), Containers: container(gpu, fpga)}, want: []corev1.Toleration{exists(fpga, "NoSchedule"), exists(gpu, "NoSchedule")}},
		"tolerates":  {reason: "its own toleration covers more", spec: corev1.PodSpec{Containers: container(gpu), Tolerations: []corev1.Toleration{exists(gpu, "")}}, want: []corev1.Toleration{exists(gpu, "")}},
		"everything": {reason: "no key: all taints", spec: corev1.PodSpec{Containers: container(gpu), Tolerations: []corev1.Toleration{exists("", "")}}, want: []corev1.Toleration{exists("", "")}},
		"eviction":   {reason: "another effect", spec: corev1.PodSpec{Containers: container(gpu), Tolerations: []corev1.Toleration{exists(gpu, "NoExecute")}}, want: []corev1.Toleration{exists(gpu, "NoExecute"), exists(gpu, "NoSchedule")}},
		"status":     {reason: "not the pod itself", sub: "status", spec: corev1.PodSpec{Containers: container(gpu)}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: row.spec}
			a := &admission.Attributes{Operation: admission.Create, Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: row.sub, Object: pod}
			if err := (admission.Chain{extendedresources.New(admission.Host{})}).Admit(t.Context(), a, nil); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, pod.Spec.Tolerations); diff != "" {
				t.Errorf("%s\n%s", row.reason, diff)
			}
		})
	}
}
