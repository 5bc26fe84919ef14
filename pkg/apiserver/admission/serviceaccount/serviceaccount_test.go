package serviceaccount_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/admissiontest"
	"podium/pkg/apiserver/admission/serviceaccount"
	"podium/pkg/scheme"
)

func newPod(change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "web:1"}}},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

func account(name string, change func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	if change != nil {
		change(a)
	}
	return a
}

// admit runs a new pod through both phases of the plugin.
func admit(t *testing.T, objects admission.Objects, pod *corev1.Pod) error {
	t.Helper()
	return admission.Chain{serviceaccount.New(admission.Host{Objects: objects})}.Admit(t.Context(), attributes(pod), nil)
}

func attributes(pod *corev1.Pod) *admission.Attributes {
	return &admission.Attributes{
		Operation: admission.Create, Resource: corev1.SchemeGroupVersion.WithResource("pods"), Namespace: pod.Namespace, Name: pod.Name, Object: pod,
	}
}

func with(a *corev1.ServiceAccount) admissiontest.Objects {
	return admissiontest.Objects{"serviceaccounts/" + a.Name: a}
}

// A new pod gets its service account, the account's pull secrets, and a token
// in each container without a mount at that path.
func TestNewPod(t *testing.T) {
	pod := newPod(func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "own", Image: "web:1",
			VolumeMounts: []corev1.VolumeMount{{Name: "mine", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}})
		p.Spec.Volumes = []corev1.Volume{{Name: "mine"}}
	})
	if err := admit(t, with(account("default", func(a *corev1.ServiceAccount) {
		a.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	})), pod); err != nil {
		t.Fatal(err)
	}
	volume := pod.Spec.Volumes[1]
	if mounts := pod.Spec.Containers[0].VolumeMounts; len(mounts) != 1 || mounts[0].Name != volume.Name || !mounts[0].ReadOnly {
		t.Errorf("mounts %+v", mounts)
	}
	if len(pod.Spec.Containers[1].VolumeMounts) != 1 {
		t.Error("a container's own mount was covered")
	}
	if got := volume.Projected.Sources[0].ServiceAccountToken; *got.ExpirationSeconds != 3607 || got.Path != "token" {
		t.Errorf("token %+v", got)
	}
	if s := pod.Spec; s.ServiceAccountName != "default" || s.DeprecatedServiceAccount != "default" || s.ImagePullSecrets[0].Name != "pull" {
		t.Errorf("spec %+v", s)
	}
}

// A plugin that runs later cannot remove the pod's account or add a reference
// to a Secret that the account does not list.
func TestValidateSeesLaterMutations(t *testing.T) {
	limited := account("default", func(a *corev1.ServiceAccount) {
		a.Annotations = map[string]string{"kubernetes.io/enforce-mountable-secrets": "true"}
	})
	for want, change := range map[string]func(*corev1.PodSpec){
		"no service account specified for pod ns/p": func(s *corev1.PodSpec) { s.ServiceAccountName = "" },
		"error looking up service account ns/robot": func(s *corev1.PodSpec) { s.ServiceAccountName = "robot" },
		`secret.secretName="theirs" is not allowed`: func(s *corev1.PodSpec) {
			s.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "theirs"}}}}
		},
	} {
		webhook := admission.Plugin{Mutate: func(_ context.Context, a *admission.Attributes) error {
			change(&a.Object.(*corev1.Pod).Spec)
			return nil
		}}
		chain := admission.Chain{serviceaccount.New(admission.Host{Objects: with(limited)}), webhook}
		if err := chain.Admit(t.Context(), attributes(newPod(nil)), nil); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// serviceaccount-automount-optout: the pod's setting takes precedence over the
// account's.
func TestAutomount(t *testing.T) {
	yes, no := new(true), new(false)
	for _, row := range []struct {
		pod, account *bool
		want         bool
	}{
		{nil, nil, true}, {nil, yes, true}, {nil, no, false},
		{yes, nil, true}, {yes, yes, true}, {yes, no, true},
		{no, nil, false}, {no, yes, false}, {no, no, false},
	} {
		pod := newPod(func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = row.pod })
		if err := admit(t, with(account("default", func(a *corev1.ServiceAccount) { a.AutomountServiceAccountToken = row.account })), pod); err != nil {
			t.Fatal(err)
		}
		if got := len(pod.Spec.Volumes) == 1; got != row.want {
			t.Errorf("pod %v, account %v: mounted %v", row.pod, row.account, got)
		}
	}
}

// A namespace and its first pod are often created together: the plugin waits
// for the default account, and for no other.
func TestAccountIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := lateAccounts{after: time.Now().Add(300 * time.Millisecond)}
		if err := admit(t, late, newPod(nil)); err != nil {
			t.Error(err)
		}
		err := admit(t, admissiontest.Objects{}, newPod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "robot" }))
		const want = `pods "p" is forbidden: error looking up service account ns/robot: serviceaccount "robot" not found`
		if !apierrors.IsForbidden(err) || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	})
}

type lateAccounts struct {
	admissiontest.Objects
	after time.Time
}

func (b lateAccounts) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (scheme.Object, error) {
	if time.Now().Before(b.after) {
		return b.Objects.Get(ctx, gvr, namespace, name)
	}
	return account(name, nil), nil
}

func TestWhatAPodMayReferTo(t *testing.T) {
	env := func(secret string) []corev1.EnvVar {
		return []corev1.EnvVar{{Name: "E", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: "k"}}}}
	}
	secretVolume := func(name string) []corev1.Volume {
		return []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}}
	}
	mirror := func(change func(*corev1.Pod)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
			change(p)
		}
	}
	limited := account("default", func(a *corev1.ServiceAccount) {
		a.Annotations = map[string]string{"kubernetes.io/enforce-mountable-secrets": "true"}
		a.Secrets = []corev1.ObjectReference{{Name: "ours"}}
		a.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	})
	for name, tc := range map[string]struct {
		account *corev1.ServiceAccount
		change  func(*corev1.Pod)
		want    string // the error; "": allowed
	}{
		"a secret that the account lists": {limited, func(p *corev1.Pod) { p.Spec.Volumes = secretVolume("ours") }, ""},
		"a volume of another":             {limited, func(p *corev1.Pod) { p.Spec.Volumes = secretVolume("theirs") }, `volume with secret.secretName="theirs" is not allowed because service account default does not reference that secret`},
		"an environment of another":       {limited, func(p *corev1.Pod) { p.Spec.Containers[0].Env = env("theirs") }, `envVar E referencing secret.secretName="theirs" is not allowed`},
		"another to pull images with":     {limited, func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "theirs"}} }, `imagePullSecrets[0].name="theirs" is not allowed`},
		"an account without limits":       {account("default", nil), func(p *corev1.Pod) { p.Spec.Volumes = secretVolume("theirs") }, ""},
		"a mirror pod":                    {account("default", nil), mirror(func(*corev1.Pod) {}), ""},
		"a mirror pod with an account":    {account("default", nil), mirror(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "default" }), "a mirror pod may not reference service accounts"},
		"a mirror pod with a secret":      {account("default", nil), mirror(func(p *corev1.Pod) { p.Spec.Containers[0].Env = env("theirs") }), "a mirror pod may not reference secrets"},
		"a mirror pod with a token of another account": {account("default", nil), mirror(func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
			}}}}
		}), "a mirror pod may not use ServiceAccountToken volume projections"},
	} {
		t.Run(name, func(t *testing.T) {
			err := admit(t, with(tc.account), newPod(tc.change))
			if tc.want == "" && err != nil || tc.want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}
