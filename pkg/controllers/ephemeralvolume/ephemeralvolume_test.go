package ephemeralvolume

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func volume(name string) corev1.Volume {
	class := "fast"
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"tier": "scratch"}, Annotations: map[string]string{"a": "b"}},
			Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
		},
	}}}
}

func owned(uid string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "web-data", OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: "web", UID: "other"}, {Kind: "Pod", Name: "web", UID: "1", Controller: new(uid == "1")}},
	}}
}

func TestDecide(t *testing.T) {
	empty := corev1.Volume{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
	for name, tc := range map[string]struct {
		reason  string
		volumes []corev1.Volume
		change  func(*corev1.Pod)
		claims  map[string]*corev1.PersistentVolumeClaim
		want    string
	}{
		"Missing":   {reason: "each ephemeral volume has a claim", volumes: []corev1.Volume{volume("data"), empty, volume("cache")}, want: "create web-data, create web-cache"},
		"Present":   {reason: "the pod controls the claim", volumes: []corev1.Volume{volume("data")}, claims: map[string]*corev1.PersistentVolumeClaim{"web-data": owned("1")}, want: ""},
		"Foreign":   {reason: "a claim without an owner is never adopted", volumes: []corev1.Volume{volume("data")}, claims: map[string]*corev1.PersistentVolumeClaim{"web-data": owned("2")}, want: "ephemeral volume data: PVC ns/web-data was not created for pod ns/web (pod is not owner)"},
		"OneOfTwo":  {reason: "a conflict does not keep the other claims from being created", volumes: []corev1.Volume{volume("data"), volume("cache")}, claims: map[string]*corev1.PersistentVolumeClaim{"web-data": owned("2")}, want: "create web-cache, ephemeral volume data: PVC ns/web-data was not created for pod ns/web (pod is not owner)"},
		"Deleted":   {reason: "the claim of a pod that ends is not created", volumes: []corev1.Volume{volume("data")}, change: func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, want: ""},
		"Succeeded": {reason: "the same", volumes: []corev1.Volume{volume("data")}, change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "1"}, Spec: corev1.PodSpec{Volumes: tc.volumes}}
			if tc.change != nil {
				tc.change(pod)
			}
			claims, err := decide(pod, func(name string) *corev1.PersistentVolumeClaim { return tc.claims[name] })
			var got []string
			for _, m := range claims {
				got = append(got, "create "+m.claim.Name)
			}
			if err != nil {
				got = append(got, fmt.Sprint(err))
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestClaimsFollowTheTemplate(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "1"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{volume("data")}}}
	template := pod.Spec.Volumes[0].Ephemeral.VolumeClaimTemplate
	want := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web-data", Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "1", Controller: new(true), BlockOwnerDeletion: new(true)}},
		},
		Spec: template.Spec,
	}
	if diff := cmp.Diff(want, newClaim(pod, &pod.Spec.Volumes[0])); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
