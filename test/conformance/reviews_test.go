package conformance

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// accessReviews compares what the reviews say with what requests meet.
func accessReviews(t *testing.T, ctx context.Context, namespace string) {
	account(t, ctx, namespace, "x", nil)
	user := "system:serviceaccount:" + namespace + ":x"
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	client, err := kubernetes.NewForConfig(as)
	check(t, err)
	list := &authorization.ResourceAttributes{Verb: "list", Resource: "configmaps", Version: "v1", Namespace: namespace}

	agree := func(want bool) {
		t.Helper()
		spec := authorization.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: list}
		whole, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorization.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		check(t, err)
		local, err := admin.AuthorizationV1().LocalSubjectAccessReviews(namespace).Create(ctx, &authorization.LocalSubjectAccessReview{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: spec,
		}, metav1.CreateOptions{})
		check(t, err)
		_, err = client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
		if err != nil && !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
		if whole.Status.Allowed != want || local.Status.Allowed != want || (err == nil) != want {
			t.Errorf("want %t; SubjectAccessReview %+v, LocalSubjectAccessReview %+v, the request: %v", want, whole.Status, local.Status, err)
		}
	}
	agree(false)
	_, err = admin.RbacV1().Roles(namespace).Create(ctx, &rbac.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "lists"}, Rules: []rbac.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
	}, metav1.CreateOptions{})
	check(t, err)
	_, err = admin.RbacV1().RoleBindings(namespace).Create(ctx, &rbac.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "lists"}, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role", Name: "lists"},
		Subjects: []rbac.Subject{{Kind: "ServiceAccount", Name: "x", Namespace: namespace}},
	}, metav1.CreateOptions{})
	check(t, err)
	agree(true)
}

// oidcDiscovery reads the issuer's documents as a pod does and checks the
// pod's own token with the key that they name.
func oidcDiscovery(t *testing.T, ctx context.Context, namespace string) {
	pod := sleeper(namespace, "reader")
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "token", Image: busybox, Command: []string{"sleep", "3600"}})
	pod.Spec.Containers[0].Image, pod.Spec.Containers[0].Command = web, nil
	pod = run(t, ctx, pod)
	fetch := func(path string, into any) {
		t.Helper()
		text := exec(t, ctx, pod, "c", "/web", "fetch", path)
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("%s: %v: %s", path, err, text)
		}
	}
	var issuer struct {
		Issuer     string   `json:"issuer"`
		Keys       string   `json:"jwks_uri"`
		Algorithms []string `json:"id_token_signing_alg_values_supported"`
	}
	fetch("/.well-known/openid-configuration", &issuer)
	if !strings.HasSuffix(issuer.Keys, "/openid/v1/jwks") {
		t.Errorf("jwks_uri is %q", issuer.Keys)
	}
	var keys jose.JSONWebKeySet
	fetch("/openid/v1/jwks", &keys)

	var algorithms []jose.SignatureAlgorithm
	for _, a := range issuer.Algorithms {
		algorithms = append(algorithms, jose.SignatureAlgorithm(a))
	}
	token, err := jwt.ParseSigned(exec(t, ctx, pod, "token", "cat", tokenDir+"/token"), algorithms)
	check(t, err)
	var claims jwt.Claims
	check(t, token.Claims(&keys, &claims)) // by the key that the token names
	check(t, claims.Validate(jwt.Expected{Issuer: issuer.Issuer, Subject: "system:serviceaccount:" + namespace + ":default"}))
}
