package security

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// A pod of an account that is restricted to its secrets cannot use other secrets, not even with
// envFrom (CVE-2024-3177).
func TestMountableSecrets(t *testing.T) {
	ns, ctx := space(t), t.Context()
	_, err := client.For[*corev1.ServiceAccount](admin).In(ns).Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "limited", Annotations: map[string]string{"kubernetes.io/enforce-mountable-secrets": "true"}},
		Secrets:    []corev1.ObjectReference{{Name: "ours"}},
	})
	check(t, err)
	theirs := corev1.LocalObjectReference{Name: "theirs"}
	pods := client.For[*corev1.Pod](namespaceAdmin(t, ns)).In(ns)
	for what, change := range map[string]func(*corev1.PodSpec){
		"environment": func(s *corev1.PodSpec) {
			ref := &corev1.SecretKeySelector{LocalObjectReference: theirs, Key: "key"}
			s.Containers[0].Env = []corev1.EnvVar{{Name: "E", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: ref}}}
		},
		"whole environment": func(s *corev1.PodSpec) {
			s.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: theirs}}}
		},
		"init container": func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "i", Image: s.Containers[0].Image, EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: theirs}}}}}
		},
		"volume": func(s *corev1.PodSpec) { s.Volumes[0].Secret.SecretName = theirs.Name },
		"projected volume": func(s *corev1.PodSpec) {
			s.Volumes[0].VolumeSource = corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: theirs}}},
			}}
		},
		"pull secret": func(s *corev1.PodSpec) { s.ImagePullSecrets = []corev1.LocalObjectReference{theirs} },
	} {
		p := pod("", "reader", "ours")
		p.Spec.ServiceAccountName = "limited"
		change(&p.Spec)
		_, err := pods.Create(ctx, p)
		forbidden(t, "read another secret by "+what, err)
	}
	allowed := pod("", "reader", "ours")
	allowed.Spec.ServiceAccountName = "limited"
	_, err = pods.Create(ctx, allowed)
	check(t, err)
	check(t, pods.Delete(ctx, "reader", metav1.DeleteOptions{}))
}
