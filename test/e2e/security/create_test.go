package security

import (
	"fmt"
	"net/url"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
)

// Permission to change secrets does not include creating one: a new Secret of the service
// account token type is filled with a token.
func TestCreateWithoutCreate(t *testing.T) {
	ns, ctx := space(t), t.Context()
	allow(t, ns, "eve", rbacv1.PolicyRule{
		APIGroups: []string{"", "coordination.k8s.io"}, Resources: []string{"secrets", "leases"}, Verbs: []string{"get", "patch", "update"},
	})
	eve := impersonating(t, "eve")
	apply := func(name string) error {
		body := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"` + name + `","annotations":{"kubernetes.io/service-account.name":"default"}},` +
			`"type":"kubernetes.io/service-account-token"}`
		_, _, err := eve.Do(ctx, client.Request{
			Method: "PATCH", Path: "/api/v1/namespaces/" + ns + "/secrets/" + name, Query: url.Values{"fieldManager": {"eve"}},
			Header: map[string][]string{"Content-Type": {string(types.ApplyYAMLPatchType)}}, Body: []byte(body),
		})
		return err
	}
	forbidden(t, "apply a secret that does not exist", apply("loot"))
	_, err := client.For[*coordinationv1.Lease](eve).In(ns).Update(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
	forbidden(t, "put a lease that does not exist", err)

	secrets := client.For[*corev1.Secret](admin).In(ns)
	all, err := secrets.List(ctx, metav1.ListOptions{})
	check(t, err)
	if len(all.Items) != 0 {
		t.Errorf("there are %d secrets", len(all.Items))
	}
	_, err = secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "there", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	})
	check(t, err)
	if err := apply("there"); err != nil {
		t.Error(fmt.Errorf("apply what exists: %w", err))
	}
}
