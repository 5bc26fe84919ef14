package security

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// allow gives a user a role with these rules in a namespace.
func allow(t *testing.T, ns, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	name := strings.ReplaceAll(user, ":", "-")
	_, err := client.For[*rbacv1.Role](admin).In(ns).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
	check(t, err)
	bind(t, ns, "Role", name, user)
}

func bind(t *testing.T, ns, kind, role, user string) {
	t.Helper()
	_, err := client.For[*rbacv1.RoleBinding](admin).In(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	})
	check(t, err)
}

// names sends a request and returns the names of all objects in the response: an object, a list
// or watch events.
func names(t *testing.T, c *client.Client, method, path, query string) ([]string, error) {
	t.Helper()
	values, err := url.ParseQuery(query)
	check(t, err)
	body, _, err := c.Do(t.Context(), client.Request{
		Method: method, Path: path, Query: values, Header: http.Header{"Accept": {"application/json"}},
	})
	var out []string
	type object struct{ Metadata struct{ Name string } }
	for d := json.NewDecoder(strings.NewReader(string(body))); err == nil; {
		var answer struct {
			object
			Items  []object
			Object object
		}
		if d.Decode(&answer) != nil {
			break
		}
		for _, o := range append(answer.Items, answer.object, answer.Object) {
			if o.Metadata.Name != "" {
				out = append(out, o.Metadata.Name)
			}
		}
	}
	return out, err
}

// Permission for one name, or in one namespace, is not permission for others, whatever the
// method, the path or the selectors of a request.
func TestResourceNamesBypass(t *testing.T) {
	ns, ctx := space(t), t.Context()
	secrets := client.For[*corev1.Secret](admin).In(ns)
	for _, name := range []string{"allowed", "hidden"} {
		_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeOpaque})
		check(t, err)
	}
	allow(t, ns, "eve", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"allowed"},
		Verbs: []string{"get", "list", "watch", "delete", "deletecollection"},
	})
	bind(t, ns, "ClusterRole", "view", "eve")
	eve, node := impersonating(t, "eve"), withCertificate(t, "kubelet")
	eventually(t, "the role counts", func() error {
		_, err := client.For[*corev1.Secret](eve).In(ns).Get(ctx, "allowed")
		return err
	})
	core, mine := "/api/v1", "/namespaces/"+ns+"/secrets"
	for _, row := range []struct {
		c                   *client.Client
		method, path, query string
		only                string // the only name that may be in the response; "": it must be an error
	}{
		{eve, "GET", core + mine, "fieldSelector=metadata.name%3Dallowed", "allowed"},
		{eve, "GET", core + "/watch" + mine + "/allowed", "timeoutSeconds=1", "allowed"},
		{eve, "GET", core + "/watch" + mine + "/allowed", "timeoutSeconds=1&fieldSelector=type%3DOpaque", ""},
		{eve, "GET", core + "/watch" + mine + "/allowed", "timeoutSeconds=1&fieldSelector=metadata.name!%3Dx", ""},
		{eve, "GET", core + "/watch" + mine + "/allowed", "timeoutSeconds=1&fieldSelector=metadata.name%3Dhidden", ""},
		{eve, "LIST", core + mine + "/allowed", "fieldSelector=metadata.name!%3Dx", ""},
		{eve, "WATCH", core + mine + "/allowed", "timeoutSeconds=1&fieldSelector=metadata.name!%3Dx", ""},
		{eve, "DELETECOLLECTION", core + mine + "/allowed", "", ""},
		{eve, "DELETE", core + mine, "fieldSelector=metadata.name%3Dallowed", ""},
		{eve, "GET", core + "/namespaces/" + ns, "", ns},
		{eve, "GET", core + "/namespaces/" + ns + "/namespaces", "", ""},
		{eve, "GET", core + "/namespaces/" + ns + "/namespaces/kube-system", "", ""},
		{eve, "GET", core + "/namespaces", "", ""},
		{node, "GET", core + "/nodes", "fieldSelector=metadata.name%3Dnode-a", "node-a"},
		{node, "GET", core + "/watch/nodes/node-a", "timeoutSeconds=1&fieldSelector=metadata.name!%3Dx", ""},
		{node, "LIST", core + "/nodes/node-a", "fieldSelector=metadata.name!%3Dx", ""},
		{node, "LIST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-a", "fieldSelector=metadata.name!%3Dx", ""},
	} {
		got, err := names(t, row.c, row.method, row.path, row.query)
		switch {
		case row.only == "" && err == nil:
			t.Errorf("%s %s?%s answers with %v", row.method, row.path, row.query, got)
		case row.only != "" && (err != nil || slices.ContainsFunc(got, func(name string) bool { return name != row.only }) || len(got) == 0):
			t.Errorf("%s %s?%s answers with %v, %v, want %s alone", row.method, row.path, row.query, got, err, row.only)
		}
		if row.method != "GET" && row.method != "DELETE" && !apierrors.IsMethodNotSupported(err) {
			t.Errorf("%s %s: %v, want 405", row.method, row.path, err)
		}
	}
	left, err := secrets.List(ctx, metav1.ListOptions{})
	check(t, err)
	if len(left.Items) != 2 {
		t.Errorf("%d of 2 secrets are left", len(left.Items))
	}
}
