package controllers_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/controllers"
)

// A generated token that nothing uses becomes invalid, and is deleted after another period.
// Tokens that are used, that a pod mounts or that a user made stay.
func TestUnusedTokensAreCleaned(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		c.config = func(cfg *controllers.Config) { cfg.LegacyTokenPeriod = time.Hour }
		c.restartControllers()
		const invalidSince, lastUsed = "kubernetes.io/legacy-token-invalid-since", "kubernetes.io/legacy-token-last-used"
		create(c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-apiserver-legacy-service-account-token-tracking"}, Data: map[string]string{"since": "1999-01-01"}})
		names := []string{"unused", "used", "mounted", "manual"}
		for _, name := range names {
			create(c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}, Secrets: []corev1.ObjectReference{{Name: name}}})
			create(c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: name}}, Type: corev1.SecretTypeServiceAccountToken})
		}
		edit(c, "manual", func(sa *corev1.ServiceAccount) { sa.Secrets = nil })
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: deploymentOf("", 0, "v1").Spec.Template.Spec}
		p.Spec.Volumes = []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "mounted"}}}}
		create(c, p)
		state := func() (out string) {
			for _, name := range names {
				s, err := client.For[*corev1.Secret](c.Client).In("default").Get(context.Background(), name)
				switch {
				case apierrors.IsNotFound(err):
					out += name + " gone "
				case err != nil:
					t.Fatal(err)
				case s.Labels[invalidSince] != "":
					out += name + " invalid "
				default:
					out += fmt.Sprintf("%s valid ", name)
				}
			}
			return out
		}
		use := func() {
			edit(c, "used", func(s *corev1.Secret) {
				s.Labels = map[string]string{lastUsed: time.Now().UTC().Format(time.DateOnly)}
			})
		}
		is := func(want string) {
			t.Helper()
			if got := state(); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		time.Sleep(30 * time.Minute)
		is("unused valid used valid mounted valid manual valid ")
		time.Sleep(90 * time.Minute)
		use()
		c.restartControllers() // the first pass comes at once, the next one a day later
		time.Sleep(time.Minute)
		is("unused invalid used valid mounted valid manual valid ")
		c.restartControllersAfter(22 * time.Hour)
		time.Sleep(time.Minute)
		use()
		is("unused invalid used valid mounted valid manual valid ")
		c.restartControllersAfter(2 * time.Hour)
		time.Sleep(time.Minute)
		is("unused gone used valid mounted valid manual valid ")
	})
}
