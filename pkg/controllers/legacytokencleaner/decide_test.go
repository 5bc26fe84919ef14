package legacytokencleaner

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const year = 365 * 24 * time.Hour

var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func TestDecide(t *testing.T) {
	old := func(v *view) { v.CreationTimestamp = metav1.NewTime(now.Add(-2 * year)) }
	label := func(name, value string) func(*view) {
		return func(v *view) { v.Labels = map[string]string{lastUsed: v.Labels[lastUsed], name: value} }
	}
	onlyInvalid := func(day string) func(*view) {
		return func(v *view) { v.Labels = map[string]string{invalidSince: day} }
	}
	for name, row := range map[string]struct {
		reason string
		change []func(*view)
		want   action
	}{
		"NeverUsed":   {"it has no record of a use", nil, invalidate},
		"UsedLongAgo": {"the last use is older than the period", []func(*view){label(lastUsed, "2025-05-31")}, invalidate},
		"Used":        {"the last use is within the period", []func(*view){label(lastUsed, "2025-06-01")}, keep},
		"Unreadable":  {"a record that cannot be read says nothing", []func(*view){label(lastUsed, "yesterday")}, keep},
		"New":         {"it was created within the period", []func(*view){func(v *view) { v.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour)) }}, keep},
		"Deleted":     {"it is being deleted", []func(*view){func(v *view) { v.DeletionTimestamp = new(metav1.NewTime(now)) }}, keep},
		"ByHand":      {"the account does not refer to it: a user made it", []func(*view){func(v *view) { v.account.Secrets = nil }}, keep},
		"NoAccount":   {"another controller deletes it", []func(*view){func(v *view) { v.account = nil }}, keep},
		"Recreated":   {"the token is that of an earlier account", []func(*view){func(v *view) { v.account.UID = "2" }}, keep},
		"Mounted":     {"a pod refers to it", []func(*view){func(v *view) { v.mounted = true }}, keep},
		"Invalid":     {"it became invalid within the period", []func(*view){onlyInvalid("2025-06-02")}, keep},
		"LongInvalid": {"it has been invalid for the period", []func(*view){onlyInvalid("2025-05-31")}, remove},
		"Malformed":   {"the label is not a day", []func(*view){onlyInvalid("x")}, invalidate},
	} {
		t.Run(name, func(t *testing.T) {
			v := view{Secret: &corev1.Secret{}, account: &corev1.ServiceAccount{}}
			v.Name, v.Annotations = "token", map[string]string{corev1.ServiceAccountUIDKey: "1"}
			v.account.UID, v.account.Secrets = "1", []corev1.ObjectReference{{Name: "token"}}
			old(&v)
			for _, f := range row.change {
				f(&v)
			}
			if got := decide(v, year, now); got != row.want {
				t.Errorf("%s: got %s, want %s", row.reason, got, row.want)
			}
		})
	}
}

func TestTracked(t *testing.T) {
	for since, want := range map[string]bool{
		"2025-05-30": true,
		"2025-05-31": true,  // from the start of 2025-06-01 on
		"2025-06-01": false, // uses of the first hours of the period may be missing
		"2026-06-01": false,
		"":           false,
		"ever":       false,
	} {
		if got := tracked(since, year, now); got != want {
			t.Errorf("since %q: %v", since, got)
		}
	}
}

func TestSecretsOfPods(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
		Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "volume"}}},
			{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "projected"}}}}}}},
			{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: &corev1.LocalObjectReference{Name: "csi"}}}},
		},
		InitContainers: []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "from"}}}}}},
		Containers:     []corev1.Container{{Env: []corev1.EnvVar{{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "env"}}}}}}},
	}}
	if got := secretsOf(p); !slices.Equal(got, []string{"pull", "volume", "projected", "csi", "from", "env"}) {
		t.Errorf("got %q", got)
	}
}
