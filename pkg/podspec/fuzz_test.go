package podspec_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

// Defaulting and validation do not panic, whatever a client sends, and defaulting
// is idempotent.
func FuzzPod(f *testing.F) {
	s := scheme.New()
	pod := &corev1.Pod{Spec: *minimal()}
	for _, media := range []string{scheme.JSON, scheme.Protobuf} {
		data, err := s.Encode(pod, media)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, media == scheme.JSON)
	}
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"livenessProbe":{"httpGet":{}},"lifecycle":{"postStart":{}},"env":[{"valueFrom":{}}],"securityContext":{"seccompProfile":{}}}],"volumes":[{"projected":{"sources":[{}]}}],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{}}}}}`), true)
	f.Fuzz(func(t *testing.T, data []byte, text bool) {
		media := scheme.Protobuf
		if text {
			media = scheme.JSON
		}
		obj, _, err := s.Decode(data, media, nil)
		pod, ok := obj.(*corev1.Pod)
		if err != nil || !ok {
			return
		}
		old := pod.DeepCopy()
		podspec.DefaultPod(pod)
		again := pod.DeepCopy()
		podspec.DefaultPod(again)
		if !apiequality.Semantic.DeepEqual(pod, again) {
			t.Fatal("defaulting twice is not defaulting once")
		}
		path := field.NewPath("spec")
		podspec.Validate(&pod.Spec, path)
		podspec.Warnings(&pod.Spec, path)
		podspec.QOSClass(&pod.Spec)
		podspec.ValidateUpdate(&pod.Spec, &old.Spec, path)
		podspec.ValidateTemplate(&corev1.PodTemplateSpec{Spec: pod.Spec}, "ReplicaSet", path)
	})
}
