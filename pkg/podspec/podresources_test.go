package podspec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/podspec"
)

func TestPodLevelResources(t *testing.T) {
	type lists struct{ requests, limits corev1.ResourceList }
	container := func(name string, l lists) corev1.Container {
		return corev1.Container{Name: name, Image: "web:1", Resources: corev1.ResourceRequirements{Requests: l.requests, Limits: l.limits}}
	}
	for name, row := range map[string]struct {
		reason     string
		pod        lists
		containers []lists
		want       corev1.ResourceList // the pod's requests
		class      corev1.PodQOSClass
		errs       []string
	}{
		"LimitsOnly": {
			reason:     "requests default to limits where no container requests anything",
			pod:        lists{limits: quantities("cpu", "1", "memory", "1Gi")},
			containers: []lists{{}, {}},
			want:       quantities("cpu", "1", "memory", "1Gi"), class: corev1.PodQOSGuaranteed,
		},
		"SumOfContainers": {
			reason:     "what the containers request counts before the limits",
			pod:        lists{limits: quantities("cpu", "1", "memory", "1Gi")},
			containers: []lists{{requests: quantities("cpu", "100m")}, {requests: quantities("cpu", "200m")}},
			want:       quantities("cpu", "300m", "memory", "1Gi"), class: corev1.PodQOSBurstable,
		},
		"ContainersInside": {
			reason:     "guaranteed is the pod, whatever its containers have",
			pod:        lists{requests: quantities("cpu", "1", "memory", "1Gi"), limits: quantities("cpu", "1", "memory", "1Gi")},
			containers: []lists{{requests: quantities("cpu", "100m"), limits: quantities("cpu", "500m")}, {}},
			want:       quantities("cpu", "1", "memory", "1Gi"), class: corev1.PodQOSGuaranteed,
		},
		"ContainersRequestMore": {
			reason:     "together they cannot have more than the pod",
			pod:        lists{requests: quantities("cpu", "1")},
			containers: []lists{{requests: quantities("cpu", "600m")}, {requests: quantities("cpu", "500m")}},
			want:       quantities("cpu", "1"), class: corev1.PodQOSBurstable,
			errs: []string{`spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 1100m`},
		},
		"ContainerLimitedAbove": {
			reason:     "its limit could never be reached",
			pod:        lists{limits: quantities("memory", "1Gi")},
			containers: []lists{{requests: quantities("memory", "1Mi"), limits: quantities("memory", "2Gi")}},
			want:       quantities("memory", "1Mi"), class: corev1.PodQOSBurstable,
			errs: []string{`spec.containers[0].resources.limits[memory]: Invalid value: "2Gi": must be less than or equal to pod limits of 1Gi`},
		},
		"RequestAboveLimit": {
			reason:     "as for a container",
			pod:        lists{requests: quantities("cpu", "2"), limits: quantities("cpu", "1")},
			containers: []lists{{}},
			want:       quantities("cpu", "2"), class: corev1.PodQOSBurstable,
			errs: []string{`spec.resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`},
		},
		"Storage": {
			reason:     "containers share only CPU, memory and huge pages",
			pod:        lists{requests: quantities("ephemeral-storage", "1Gi")},
			containers: []lists{{}},
			want:       quantities("ephemeral-storage", "1Gi"), class: corev1.PodQOSBestEffort,
			errs: []string{`spec.resources.requests[ephemeral-storage]: Unsupported value: "ephemeral-storage": supported values: "cpu", "hugepages-", "memory"`},
		},
		"HugePagesOfContainers": {
			reason:     "the pod's limit is their sum",
			pod:        lists{requests: quantities("cpu", "1")},
			containers: []lists{{requests: quantities("hugepages-2Mi", "2Mi", "cpu", "1m"), limits: quantities("hugepages-2Mi", "2Mi")}, {requests: quantities("hugepages-2Mi", "4Mi", "cpu", "1m"), limits: quantities("hugepages-2Mi", "4Mi")}},
			want:       quantities("cpu", "1", "hugepages-2Mi", "6Mi"), class: corev1.PodQOSBurstable,
		},
		"FewerHugePages": {
			reason:     "together containers cannot have more than the pod",
			pod:        lists{limits: quantities("cpu", "1", "hugepages-2Mi", "4Mi")},
			containers: []lists{{requests: quantities("hugepages-2Mi", "2Mi", "cpu", "1m"), limits: quantities("hugepages-2Mi", "2Mi")}, {requests: quantities("hugepages-2Mi", "4Mi", "cpu", "1m"), limits: quantities("hugepages-2Mi", "4Mi")}},
			want:       quantities("cpu", "2m", "hugepages-2Mi", "4Mi"), class: corev1.PodQOSBurstable,
			errs: []string{`spec.resources.requests[hugepages-2Mi]: Invalid value: "4Mi": must be greater than or equal to aggregate container requests of 6Mi`},
		},
		"HugePages": {
			reason:     "they are shared, and not overcommitted",
			pod:        lists{limits: quantities("cpu", "1", "memory", "1Gi", "hugepages-2Mi", "8Mi")},
			containers: []lists{{}, {requests: quantities("hugepages-2Mi", "4Mi"), limits: quantities("hugepages-2Mi", "4Mi", "memory", "1Gi")}},
			want:       quantities("cpu", "1", "memory", "1Gi", "hugepages-2Mi", "8Mi"), class: corev1.PodQOSGuaranteed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: row.pod.requests, Limits: row.pod.limits}}}
			for i, l := range row.containers {
				pod.Spec.Containers = append(pod.Spec.Containers, container(string(rune('a'+i)), l))
			}
			podspec.DefaultPod(pod)
			if diff := cmp.Diff(row.want, pod.Spec.Resources.Requests); diff != "" {
				t.Errorf("%s: requests (-want +got):\n%s", row.reason, diff)
			}
			if got := podspec.QOSClass(&pod.Spec); got != row.class {
				t.Errorf("%s: class %s, want %s", row.reason, got, row.class)
			}
			if diff := cmp.Diff(row.errs, texts(podspec.Validate(&pod.Spec, field.NewPath("spec")))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", row.reason, diff)
			}
		})
	}
	spec := minimal()
	spec.Resources = &corev1.ResourceRequirements{Limits: quantities("cpu", "1")}
	more := spec.DeepCopy()
	more.Containers[0].Resources.Requests = quantities("cpu", "1")
	want := []string{"spec: Forbidden: pods with pod-level resources cannot be resized"}
	if diff := cmp.Diff(want, texts(podspec.ValidateResize(more, spec, field.NewPath("spec")))); diff != "" {
		t.Errorf("resize (-want +got):\n%s", diff)
	}
}
