package podspec_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/podspec"
)

func TestSecretsFindsAllOfThem(t *testing.T) {
	ref := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	env := func(name string) []corev1.EnvVar {
		return []corev1.EnvVar{{Value: "plain"}, {ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref(name)}}}}
	}
	volume := func(v corev1.VolumeSource) corev1.Volume { return corev1.Volume{VolumeSource: v} }
	spec := &corev1.PodSpec{
		ImagePullSecrets:    []corev1.LocalObjectReference{ref("pull"), ref("")},
		InitContainers:      []corev1.Container{{Env: env("init")}},
		Containers:          []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("main")}}}}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Env: env("debug")}}},
		Volumes: []corev1.Volume{
			volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "volume"}}),
			volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
			volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{Secret: &corev1.SecretProjection{LocalObjectReference: ref("projected")}}, {ConfigMap: &corev1.ConfigMapProjection{}},
			}}}),
			volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: &corev1.LocalObjectReference{Name: "csi"}}}),
			volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}),
		},
	}
	want := []string{"pull", "init", "main", "debug", "volume", "projected", "csi"}
	if diff := cmp.Diff(want, slices.Collect(podspec.Secrets(spec))); diff != "" {
		t.Error(diff)
	}
	for range podspec.Secrets(spec) {
		break // may be left early
	}
}
