package podspec_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/podspec"
)

func scratch() *corev1.EphemeralVolumeSource {
	return &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: quantities("storage", "1Gi")},
	}}}
}

func TestEphemeralVolumesAreValidated(t *testing.T) {
	const template = "spec.volumes[0].ephemeral.volumeClaimTemplate"
	for name, row := range map[string]struct {
		reason string
		change func(e *corev1.EphemeralVolumeSource)
		want   []string
	}{
		"Minimal": {reason: "a mode and a size are all that a claim needs", change: func(*corev1.EphemeralVolumeSource) {}},
		"Labels": {reason: "users select claims by them", change: func(e *corev1.EphemeralVolumeSource) {
			e.VolumeClaimTemplate.Labels, e.VolumeClaimTemplate.Annotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
		}},
		"NoTemplate": {reason: "there is nothing to create", change: func(e *corev1.EphemeralVolumeSource) { e.VolumeClaimTemplate = nil }, want: []string{template + ": Required value"}},
		"NoSize": {reason: "as of every claim", change: func(e *corev1.EphemeralVolumeSource) { e.VolumeClaimTemplate.Spec.Resources.Requests = nil },
			want: []string{template + ".spec.resources[storage]: Required value"}},
		"NoMode": {reason: "the same", change: func(e *corev1.EphemeralVolumeSource) { e.VolumeClaimTemplate.Spec.AccessModes = nil },
			want: []string{template + ".spec.accessModes: Required value: at least 1 access mode is required"}},
		"Name": {reason: "the name follows from the pod's", change: func(e *corev1.EphemeralVolumeSource) { e.VolumeClaimTemplate.Name = "mine" },
			want: []string{template + ".metadata.Name: Forbidden: cannot be set for an ephemeral volume"}},
		"Owner": {reason: "the pod is the owner", change: func(e *corev1.EphemeralVolumeSource) {
			e.VolumeClaimTemplate.OwnerReferences = []metav1.OwnerReference{{Name: "x"}}
		}, want: []string{template + ".metadata.OwnerReferences: Forbidden: cannot be set for an ephemeral volume"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec, e := minimal(), scratch()
			row.change(e)
			spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: e}}}
			podspec.Default(spec)
			if diff := cmp.Diff(row.want, texts(podspec.Validate(spec, field.NewPath("spec")))); diff != "" {
				t.Errorf("%s: -want +got\n%s", row.reason, diff)
			}
			if c := e.VolumeClaimTemplate; c != nil && (c.Spec.VolumeMode == nil || *c.Spec.VolumeMode != corev1.PersistentVolumeFilesystem) {
				t.Error("the template has no volumeMode")
			}
		})
	}
}

func TestClaimNamesAreValidated(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("a", 250)}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: scratch()}},
	}}}
	got := texts(podspec.ValidateClaimNames(pod, field.NewPath("v")))
	want := []string{`v[0].name: Invalid value: "data": PVC name "` + pod.Name + `-data": must be no more than 253 characters`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a long name: -want +got\n%s", diff)
	}
	pod.Name = "web"
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "again", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "web-data"},
	}})
	got = texts(podspec.ValidateClaimNames(pod, field.NewPath("v")))
	want = []string{`v[1].persistentVolumeClaim.claimName: Invalid value: "web-data": must not reference a PVC that gets created for an ephemeral volume`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a claim of another volume of the pod: -want +got\n%s", diff)
	}
	pod.Name = "" // of a template, or to be generated
	if got := podspec.ValidateClaimNames(pod, field.NewPath("v")); len(got) > 0 {
		t.Errorf("without a name: %v", got)
	}
}

func TestExtendedClaimStatus(t *testing.T) {
	spec := &corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"example.com/card": resource.MustParse("1")}},
	}}}
	status := func(claim string, mappings ...corev1.ContainerExtendedResourceRequest) *corev1.PodExtendedResourceClaimStatus {
		return &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: claim, RequestMappings: mappings}
	}
	good := corev1.ContainerExtendedResourceRequest{ContainerName: "c", ResourceName: "example.com/card", RequestName: "container-0-request-0"}
	bad := corev1.ContainerExtendedResourceRequest{ContainerName: "c", ResourceName: "example.com/other", RequestName: "A"}
	none := good
	none.ContainerName = "x"
	for name, row := range map[string]struct {
		new, old *corev1.PodExtendedResourceClaimStatus
		want     []string
	}{
		"valid":   {new: status("x", good)},
		"removed": {old: status("x", good)},
		"kept":    {new: status("X"), old: status("X")},
		"empty":   {new: status("X"), want: []string{"s.resourceClaimName: Invalid", "s.requestMappings: Required"}},
		"values": {new: status("x", bad, good, good, none), want: []string{
			"s.requestMappings[0].resourceName: Invalid", "s.requestMappings[0].requestName: Invalid", "s.requestMappings[2]: Duplicate", "s.requestMappings[3].containerName: Invalid",
		}},
	} {
		var got []string
		for _, err := range podspec.ValidateExtendedClaimStatus(row.new, row.old, spec, field.NewPath("s")) {
			got = append(got, strings.Join(strings.Fields(err.Error())[:2], " "))
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
