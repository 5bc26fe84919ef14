package security

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

var errNotYet = errors.New("not yet")

func token(t *testing.T, namespace string, spec authenticationv1.TokenRequestSpec) string {
	t.Helper()
	var out authenticationv1.TokenRequest
	in := &authenticationv1.TokenRequest{Spec: spec}
	check(t, client.For[*corev1.ServiceAccount](admin).In(namespace).Post(t.Context(), "default", "token", in, &out))
	return out.Status.Token
}

// asks sends a request that all authenticated users may send.
func asks(t *testing.T, c *client.Client) error {
	_, _, err := c.Do(t.Context(), client.Request{Path: "/api"})
	return err
}

func TestATokenDoesNotOutliveItsPod(t *testing.T) {
	ns := space(t)
	pods := client.For[*corev1.Pod](admin).In(ns)
	made, err := pods.Create(t.Context(), pod("", "owner", "none"))
	check(t, err)
	bound := withToken(t, token(t, ns, authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "owner", UID: made.UID},
	}))
	check(t, asks(t, bound))
	check(t, pods.Delete(t.Context(), "owner", metav1.DeleteOptions{}))
	eventually(t, "the token has died with its pod", func() error {
		if err := asks(t, bound); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("the API says %v", err)
		}
		return nil
	})
	_, err = pods.Create(t.Context(), pod("", "owner", "none"))
	check(t, err)
	if err := asks(t, bound); !apierrors.IsUnauthorized(err) {
		t.Errorf("a new pod of that name brings it back to life: %v", err)
	}
}

func TestATokenOfAnotherAudience(t *testing.T) {
	ns := space(t)
	if err := asks(t, withToken(t, token(t, ns, authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}}))); !apierrors.IsUnauthorized(err) {
		t.Errorf("got %v, want 401", err)
	}
	good := token(t, ns, authenticationv1.TokenRequestSpec{})
	check(t, asks(t, withToken(t, good)))
	header, rest, _ := strings.Cut(good, ".")
	claims, signature, _ := strings.Cut(rest, ".")
	for what, bad := range map[string]string{
		"without its signature": header + "." + claims + ".",
		"signed by nobody":      "eyJhbGciOiJub25lIn0." + claims + ".",
		"with another's":        header + "." + claims + "." + strings.Repeat("A", len(signature)),
		"cut":                   good[:len(good)/2],
	} {
		if err := asks(t, withToken(t, bad)); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: got %v, want 401", what, err)
		}
	}
}

// The administrator of a namespace has permissions only there.
func TestANamespaceAdministratorDoesNotEscalate(t *testing.T) {
	ns, other, ctx := space(t), space(t), t.Context()
	_, err := client.For[*rbacv1.RoleBinding](admin).In(ns).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "admin"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "eve"}},
	})
	check(t, err)
	eve := impersonating(t, "eve", "system:authenticated")
	_, err = client.For[*corev1.ConfigMap](eve).In(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "hers"}})
	check(t, err)

	role := func(rules ...rbacv1.PolicyRule) *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{GenerateName: "r-"}, Rules: rules}
	}
	roles, bindings := client.For[*rbacv1.Role](eve).In(ns), client.For[*rbacv1.RoleBinding](eve).In(ns)
	_, err = roles.Create(ctx, role(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}))
	check(t, err)
	for what, rule := range map[string]rbacv1.PolicyRule{
		"everything":       {APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		"escalate":         {APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}, Verbs: []string{"escalate"}},
		"impersonate":      {APIGroups: []string{""}, Resources: []string{"users"}, Verbs: []string{"impersonate"}},
		"proxies to nodes": {APIGroups: []string{""}, Resources: []string{"nodes/proxy"}, Verbs: []string{"create"}},
	} {
		_, err := roles.Create(ctx, role(rule))
		forbidden(t, "make a role for "+what, err)
	}
	bind := func(kind, name string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "b-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "eve"}},
		}
	}
	_, err = bindings.Create(ctx, bind("ClusterRole", "view"))
	check(t, err)
	_, err = bindings.Create(ctx, bind("ClusterRole", "cluster-admin"))
	forbidden(t, "bind cluster-admin in her namespace", err)
	_, err = client.For[*rbacv1.RoleBinding](eve).In(other).Create(ctx, bind("ClusterRole", "view"))
	forbidden(t, "bind anything in another namespace", err)
	_, err = client.For[*rbacv1.ClusterRoleBinding](eve).Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "eve"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "eve"}},
	})
	forbidden(t, "bind anything in the whole cluster", err)
	_, err = client.For[*corev1.Secret](eve).In("kube-system").List(ctx, metav1.ListOptions{})
	forbidden(t, "read the system's secrets", err)
	_, err = client.For[*corev1.Node](eve).List(ctx, metav1.ListOptions{})
	forbidden(t, "read the nodes", err)
}

func TestImpersonationNeedsTheRight(t *testing.T) {
	ns := space(t)
	plain := token(t, ns, authenticationv1.TokenRequestSpec{})
	for what, header := range map[string]http.Header{
		"a user":            {"Impersonate-User": {"kubernetes-admin"}},
		"a group":           {"Impersonate-User": {"x"}, "Impersonate-Group": {"system:masters"}},
		"a service account": {"Impersonate-User": {"system:serviceaccount:kube-system:default"}},
		"a uid":             {"Impersonate-User": {"x"}, "Impersonate-Uid": {"1"}},
	} {
		c := connect(t, client.Config{
			TLS:   &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
			Token: func() (string, error) { return plain, nil }, Header: header,
		})
		_, err := client.For[*corev1.Secret](c).In("kube-system").List(t.Context(), metav1.ListOptions{})
		forbidden(t, "impersonate "+what, err)
	}
}

// Anonymous clients can read only the health and the version of the server.
func TestAnonymousLearnsNothing(t *testing.T) {
	nobody := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}}
	defer nobody.CloseIdleConnections()
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := nobody.Get(server + path)
		check(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		check(t, err)
		return resp.StatusCode, string(body)
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/version"} {
		if code, body := get(path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	for _, path := range []string{
		"/", "/api", "/apis", "/api/v1", "/apis/apps/v1", "/openapi/v2", "/openapi/v3", "/metrics", "/debug/pprof/", "/snapshot",
		"/api/v1/namespaces", "/api/v1/nodes", "/api/v1/secrets", "/api/v1/namespaces/kube-system/secrets", "/api/v1/namespaces/default/services/kubernetes",
		"/api/v1/namespaces/kube-public/configmaps", "/.well-known/openid-configuration", "/openid/v1/jwks", "/no/such/page",
		"/api/v1/namespaces/kube-system/pods/x/log", "/api/v1/nodes/node-a/proxy/pods",
	} {
		code, body := get(path)
		if code != http.StatusForbidden && code != http.StatusUnauthorized {
			t.Errorf("%s: %d, want 401 or 403", path, code)
		}
		if !strings.Contains(body, `"kind":"Status"`) || strings.Contains(body, "node-a") && !strings.Contains(path, "node-a") {
			t.Errorf("%s: %s", path, body)
		}
	}
}
