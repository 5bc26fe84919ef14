package podspec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/podspec"
)

func TestMirrorAnnotation(t *testing.T) {
	mirror := func(hash string) map[string]string {
		return map[string]string{corev1.MirrorPodAnnotationKey: hash}
	}
	const key = "annotations[kubernetes.io/config.mirror]: "
	for name, row := range map[string]struct {
		new, old map[string]string
		want     []string
	}{
		"kept":    {mirror("a"), mirror("a"), nil},
		"none":    {map[string]string{"a": "b"}, nil, nil},
		"added":   {mirror("a"), nil, []string{key + "Forbidden: may not add mirror pod annotation"}},
		"removed": {nil, mirror("a"), []string{key + "Forbidden: may not remove or update mirror pod annotation"}},
		"changed": {mirror("b"), mirror("a"), []string{key + "Forbidden: may not remove or update mirror pod annotation"}},
	} {
		if diff := cmp.Diff(row.want, texts(podspec.ValidateMirrorUpdate(row.new, row.old, field.NewPath("annotations")))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}}}
	podspec.DefaultPod(pod)
	pod.Annotations = mirror("a")
	want := []string{"metadata." + key + `Invalid value: "a": must set spec.nodeName if mirror pod annotation is set`}
	if diff := cmp.Diff(want, texts(podspec.ValidatePod(pod))); diff != "" {
		t.Errorf("a mirror on no node (-want +got):\n%s", diff)
	}
}
