package controllers_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/authn"
	"podium/pkg/client"
	"podium/pkg/client/bootstraptoken"
)

// Tokens in secrets are created, are valid, and end with their account.
func TestTokensKeptInSecrets(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		keys, err := authn.NewKeySet(nil, c.tokenKey.Public())
		if err != nil {
			t.Fatal(err)
		}
		accounts, secrets := client.For[*corev1.ServiceAccount](c.Client).In("default"), client.For[*corev1.Secret](c.Client).In("default")
		robot, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot"}})
		if err != nil {
			t.Fatal(err)
		}
		kept := func(name, account string) *corev1.Secret {
			return &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
				Type:       corev1.SecretTypeServiceAccountToken,
			}
		}
		create(c, kept("kept", "robot"))
		create(c, kept("stray", "nobody"))
		var secret *corev1.Secret
		c.until(time.Minute, "the secret is filled", func() bool {
			secret, err = secrets.Get(t.Context(), "kept")
			return err == nil && len(secret.Data["token"]) > 0
		})
		if string(secret.Data["ca.crt"]) != "a certificate" || string(secret.Data["namespace"]) != "default" || secret.Annotations[corev1.ServiceAccountUIDKey] != string(robot.UID) {
			t.Errorf("the secret has %v and %v", secret.Data, secret.Annotations)
		}
		c.until(time.Minute, "the secret of no account is gone", func() bool { return !exists[*corev1.Secret](c, "default", "stray") })

		tokens := authn.NewTokens(authn.TokenConfig{Issuers: []string{"us"}, Keys: func() *authn.KeySet { return keys }})
		known := func() bool {
			who, _ := tokens.AuthenticateToken(t.Context(), c.backend, authn.Presented{Token: string(secret.Data["token"]), Audiences: []string{"us"}})
			return who != nil && who.User.Name == "system:serviceaccount:default:robot"
		}
		if !known() {
			t.Error("the apiserver does not know the token")
		}
		if err := accounts.Delete(t.Context(), "robot", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.until(time.Minute, "the secret is gone with its account", func() bool { return !exists[*corev1.Secret](c, "default", "kept") })
		if known() {
			t.Error("the token has outlived its account")
		}
	})
}

// cluster-info is signed by the tokens with the signing usage, as long as they are valid.
func TestBootstrapTokensSignAndEnd(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		infos := client.For[*corev1.ConfigMap](c.Client).In("kube-public")
		const text = "apiVersion: v1\nkind: Config\n"
		if _, err := infos.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"}, Data: map[string]string{"kubeconfig": text}}); err != nil {
			t.Fatal(err)
		}
		short := bootstraptoken.Spec{Token: bootstraptoken.Token{ID: "aaaaaa", Secret: "0123456789abcdef"}, Expires: time.Now().Add(time.Hour), Usages: []string{bootstraptoken.Signing}}
		long := bootstraptoken.Spec{Token: bootstraptoken.Token{ID: "bbbbbb", Secret: "fedcba9876543210"}, Usages: []string{bootstraptoken.Signing, bootstraptoken.Authentication}}
		silent := bootstraptoken.Spec{Token: bootstraptoken.Token{ID: "cccccc", Secret: "fedcba9876543210"}, Usages: []string{bootstraptoken.Authentication}}
		for _, spec := range []bootstraptoken.Spec{short, long, silent} {
			create(c, spec.ToSecret())
		}
		signedBy := func() []string {
			info, err := infos.Get(t.Context(), "cluster-info")
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, spec := range []bootstraptoken.Spec{short, long, silent} {
				signature, ok := info.Data["jws-kubeconfig-"+spec.ID]
				if !ok {
					continue
				}
				if !spec.Verify(signature, []byte(text)) {
					t.Errorf("%s is not signed by %s", signature, spec.ID)
				}
				ids = append(ids, spec.ID)
			}
			return ids
		}
		c.until(time.Minute, "both that may have signed", func() bool { return slices.Equal(signedBy(), []string{"aaaaaa", "bbbbbb"}) })
		time.Sleep(time.Hour + time.Minute)
		if diff := cmp.Diff([]string{"bbbbbb"}, signedBy()); diff != "" {
			t.Error(diff)
		}
		if exists[*corev1.Secret](c, "kube-system", "bootstrap-token-aaaaaa") || !exists[*corev1.Secret](c, "kube-system", "bootstrap-token-bbbbbb") {
			t.Error("the wrong token was cleaned up")
		}
	})
}
