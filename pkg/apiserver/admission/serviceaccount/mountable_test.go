package serviceaccount_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/serviceaccount"
)

// A pod of an account with enforce-mountable-secrets must not refer to a Secret
// that the account does not list, in any field.
func TestMountableSecrets(t *testing.T) {
	theirs := corev1.LocalObjectReference{Name: "theirs"}
	env := []corev1.EnvVar{{Name: "E", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: theirs, Key: "k"}}}}
	from := []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: theirs}}}
	volume := func(source corev1.VolumeSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} }
	}
	initContainer := func(c corev1.Container) func(*corev1.Pod) {
		c.Name, c.Image = "i", "image"
		return func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{c} }
	}
	ephemeral := func(c corev1.EphemeralContainerCommon) func(*corev1.Pod) {
		c.Name, c.Image = "e", "image"
		return func(p *corev1.Pod) {
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: c}}
		}
	}
	const not = ` is not allowed because service account default does not reference that `
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"environment":                 {func(p *corev1.Pod) { p.Spec.Containers[0].Env = env }, `container c with envVar E referencing secret.secretName="theirs"` + not + "secret"},
		"whole environment":           {func(p *corev1.Pod) { p.Spec.Containers[0].EnvFrom = from }, `container c with envFrom referencing secret.secretName="theirs"` + not + "secret"},
		"init container":              {initContainer(corev1.Container{Env: env}), `init container i with envVar E referencing secret.secretName="theirs"` + not + "secret"},
		"init container, whole":       {initContainer(corev1.Container{EnvFrom: from}), `init container i with envFrom referencing secret.secretName="theirs"` + not + "secret"},
		"sidecar, whole":              {initContainer(corev1.Container{EnvFrom: from, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}), `init container i with envFrom`},
		"ephemeral container":         {ephemeral(corev1.EphemeralContainerCommon{Env: env}), `ephemeral container e with envVar E referencing secret.secretName="theirs"` + not + "secret"},
		"ephemeral container, whole":  {ephemeral(corev1.EphemeralContainerCommon{EnvFrom: from}), `ephemeral container e with envFrom referencing secret.secretName="theirs"` + not + "secret"},
		"to pull images with":         {func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{theirs} }, `imagePullSecrets[0].name="theirs"` + not + "imagePullSecret"},
		"volume":                      {volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "theirs"}}), `volume with secret.secretName="theirs"` + not + "secret"},
		"projected volume":            {volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: theirs}}}}}), `volume v referencing secret.secretName="theirs"` + not + "secret"},
		"CSI volume's authentication": {volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d", NodePublishSecretRef: &theirs}}), `volume v referencing secret.secretName="theirs"` + not + "secret"},
		"second of two": {func(p *corev1.Pod) {
			ours := corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "ours"}}}
			p.Spec.Containers[0].EnvFrom = append([]corev1.EnvFromSource{ours}, from...)
		}, "theirs"},
	} {
		for value, enforced := range map[string]bool{"true": true, "1": true, "T": true, "false": false, "yes": false} {
			t.Run(name+" "+value, func(t *testing.T) {
				sa := account("default", func(a *corev1.ServiceAccount) {
					a.Annotations = map[string]string{"kubernetes.io/enforce-mountable-secrets": value}
					a.Secrets = []corev1.ObjectReference{{Name: "ours"}}
				})
				err := admit(t, with(sa), newPod(tc.change))
				if !enforced && err != nil || enforced && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.want)) {
					t.Errorf("%v, want %q", err, tc.want)
				}
			})
		}
	}
}

// An ephemeral container is no way around the limits of the pod's account. What the
// pod has since its creation is not checked again.
func TestMountableSecretsOfEphemeralContainers(t *testing.T) {
	limited := account("limited", func(a *corev1.ServiceAccount) {
		a.Annotations = map[string]string{"kubernetes.io/enforce-mountable-secrets": "true"}
		a.Secrets = []corev1.ObjectReference{{Name: "ours"}}
	})
	from := func(secret string) []corev1.EnvFromSource {
		return []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}}
	}
	for name, tc := range map[string]struct{ account, secret, want string }{
		"a secret that the account lists": {"limited", "ours", ""},
		"a secret of another":             {"limited", "theirs", `ephemeral container e with envFrom referencing secret.secretName="theirs" is not allowed because service account limited does not reference that secret`},
		"an account that is gone":         {"gone", "ours", "error looking up service account ns/gone"},
		"no account":                      {"", "ours", "no service account specified for pod ns/p"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod(func(p *corev1.Pod) {
				p.Spec.ServiceAccountName = tc.account
				p.Spec.Containers[0].EnvFrom = from("theirs")
				p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", EnvFrom: from(tc.secret)}}}
			})
			a := attributes(pod)
			a.Operation, a.Subresource = admission.Update, "ephemeralcontainers"
			err := admission.Chain{serviceaccount.New(admission.Host{Objects: with(limited)})}.Admit(t.Context(), a, nil)
			if tc.want == "" && err != nil || tc.want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}
