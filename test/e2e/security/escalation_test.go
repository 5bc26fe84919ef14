package security

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

const rbacPath = "/apis/rbac.authorization.k8s.io/v1"

// The administrator of a namespace gains no permission beyond those of the role "admin" there,
// in whatever way roles, bindings, accounts or tokens can be created or changed.
func TestEscalation(t *testing.T) {
	t.Parallel()
	theirs := victim(t)
	ns := space(t)
	bindRole(t, ns, "admin")
	root, eve := administrator(t), bearer(t, token(t, ns, authenticationv1.TokenRequestSpec{}))
	in := rbacPath + "/namespaces/" + ns
	role := func(name, rules string) string {
		return fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":%q},"rules":[%s]}`, name, rules)
	}
	binding := func(name, kind, to string) string {
		return fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":%q,"name":%q},"subjects":[{"kind":"ServiceAccount","namespace":%q,"name":"default"}]}`, name, kind, to, ns)
	}
	const small, all = `{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}`, `{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}`
	const add = `[{"op":"add","path":"/rules/-","value":` + all + `}]`
	eve.must(t, "POST", in+"/roles", role("small", small)) // she may grant what she has
	eve.must(t, "POST", in+"/rolebindings", binding("small", "Role", "small"))
	root.must(t, "POST", in+"/roles", role("big", all))
	type attempt struct{ method, path, media, body string }
	attacks := map[string]attempt{
		"bind a role of more rights":              {"POST", in + "/rolebindings", jsonType, binding("b", "Role", "big")},
		"bind cluster-admin":                      {"POST", in + "/rolebindings", jsonType, binding("b", "ClusterRole", "cluster-admin")},
		"bind a daemon's role":                    {"POST", in + "/rolebindings", jsonType, binding("b", "ClusterRole", "system:node")},
		"bind by PUT":                             {"PUT", in + "/rolebindings/b", jsonType, binding("b", "ClusterRole", "cluster-admin")},
		"bind by apply":                           {"PATCH", in + "/rolebindings/b?fieldManager=m", applyType, binding("b", "ClusterRole", "cluster-admin")},
		"replace the role of a binding":           {"PATCH", in + "/rolebindings/small", mergeType, `{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}}`},
		"another subject on a binding of others":  {"PATCH", in + "/rolebindings/theirs", mergeType, `{"subjects":[{"kind":"ServiceAccount","namespace":"` + ns + `","name":"default"}]}`},
		"add a rule by a merge":                   {"PATCH", in + "/roles/small", mergeType, `{"rules":[` + all + `]}`},
		"add a rule by JSON patch":                {"PATCH", in + "/roles/small", "application/json-patch+json", add},
		"add a rule by a strategic merge":         {"PATCH", in + "/roles/small", "application/strategic-merge-patch+json", `{"rules":[` + all + `]}`},
		"add a rule by apply":                     {"PATCH", in + "/roles/small?fieldManager=m&force=true", applyType, role("small", all)},
		"add a rule by PUT":                       {"PUT", in + "/roles/small", jsonType, role("small", all)},
		"a role by apply":                         {"PATCH", in + "/roles/new?fieldManager=m", applyType, role("new", all)},
		"a change to a role of more rights":       {"PATCH", in + "/roles/big", "application/json-patch+json", `[{"op":"add","path":"/rules/-","value":{"apiGroups":["x"],"resources":["*"],"verbs":["*"]}}]`},
		"a role of the cluster":                   {"POST", rbacPath + "/clusterroles", jsonType, `{"metadata":{"name":"eve"},"rules":[` + small + `]}`},
		"a part of the role admin":                {"POST", rbacPath + "/clusterroles", jsonType, `{"metadata":{"name":"eve","labels":{"rbac.authorization.k8s.io/aggregate-to-admin":"true"}},"rules":[` + all + `]}`},
		"a role that collects others":             {"POST", rbacPath + "/clusterroles", jsonType, `{"metadata":{"name":"eve"},"aggregationRule":{"clusterRoleSelectors":[{}]}}`},
		"a change to the role admin":              {"PATCH", rbacPath + "/clusterroles/admin", mergeType, `{"rules":[` + all + `]}`},
		"a binding of the cluster":                {"POST", rbacPath + "/clusterrolebindings", jsonType, binding("b", "ClusterRole", "view")},
		"a role elsewhere":                        {"POST", rbacPath + "/namespaces/" + theirs + "/roles", jsonType, role("x", small)},
		"a binding elsewhere":                     {"POST", rbacPath + "/namespaces/" + theirs + "/rolebindings", jsonType, binding("x", "ClusterRole", "view")},
		"a token of an account elsewhere":         {"POST", "/api/v1/namespaces/kube-system/serviceaccounts/generic-garbage-collector/token", jsonType, `{}`},
		"a kept token of an account elsewhere":    {"POST", "/api/v1/namespaces/kube-system/secrets", jsonType, `{"metadata":{"name":"x","annotations":{"kubernetes.io/service-account.name":"default"}},"type":"kubernetes.io/service-account-token"}`},
		"a bootstrap token":                       {"POST", "/api/v1/namespaces/kube-system/secrets", jsonType, `{"metadata":{"name":"bootstrap-token-abcdef"},"type":"bootstrap.kubernetes.io/token","stringData":{"token-id":"abcdef","token-secret":"0123456789abcdef","usage-bootstrap-authentication":"true"}}`},
		"a certificate request approved":          {"PUT", "/apis/certificates.k8s.io/v1/certificatesigningrequests/x/approval", jsonType, `{"metadata":{"name":"x"}}`},
		"a namespace":                             {"POST", "/api/v1/namespaces", jsonType, `{"metadata":{"name":"eve"}}`},
		"another namespace's configuration":       {"PATCH", "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication", mergeType, `{"data":{"client-ca-file":"x"}}`},
		"ask for others' rights":                  {"POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", jsonType, `{"spec":{"user":"kubernetes-admin","resourceAttributes":{"verb":"get","resource":"secrets"}}}`},
		"ask whose a token is":                    {"POST", "/apis/authentication.k8s.io/v1/tokenreviews", jsonType, `{"spec":{"token":"x"}}`},
		"a node's pods by the kubelet":            {"GET", "/api/v1/nodes/node-a/proxy/pods", "", ""},
		"the metrics":                             {"GET", "/metrics", "", ""},
		"the profiles":                            {"GET", "/debug/pprof/heap", "", ""},
		"the copy of the store":                   {"GET", "/snapshot", "", ""},
		"which roles were used":                   {"GET", "/debug/authorization/roles", "", ""},
		"a priority of the system":                {"POST", "/api/v1/namespaces/" + ns + "/pods", jsonType, `{"metadata":{"name":"p"},"spec":{"priorityClassName":"system-node-critical","priority":2000000000,"nodeName":"node-a","serviceAccountName":"ghost","containers":[{"name":"c","image":"i"}]}}`},
		"a mirror pod":                            {"POST", "/api/v1/namespaces/" + ns + "/pods/x/binding", jsonType, `{"metadata":{"name":"x"},"target":{"kind":"Node","name":"node-a"}}`},
		"a Service's status with another address": {"PATCH", "/api/v1/namespaces/" + ns + "/services/x/status", mergeType, `{"status":{"loadBalancer":{"ingress":[{"ip":"10.0.0.1"}]}}}`},
	}
	root.must(t, "POST", in+"/rolebindings", `{"metadata":{"name":"theirs"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"big"},"subjects":[]}`)
	for what, a := range attacks {
		got := eve.do(t, a.method, a.path, a.body, "Content-Type", a.media)
		refused := got.code == http.StatusForbidden || got.code == http.StatusUnprocessableEntity && what == "replace the role of a binding" // the role of a binding is immutable
		if !refused {
			t.Errorf("%s: %d, want 403: %.300s", what, got.code, got.body)
		}
	}
	if a := eve.do(t, "GET", "/api/v1/namespaces/"+theirs+"/secrets/victim", ""); a.code != http.StatusForbidden {
		t.Errorf("after all that she reads another namespace: %d", a.code)
	}
}

// An account that may impersonate one user cannot become another user or a member of a group.
func TestImpersonation(t *testing.T) {
	t.Parallel()
	ns := space(t)
	theirs := victim(t)
	root := administrator(t)
	const name = "impersonates-ann"
	rule := `[{"apiGroups":[""],"resources":["users"],"verbs":["impersonate"],"resourceNames":["ann"]}]`
	root.must(t, "POST", rbacPath+"/clusterroles", `{"metadata":{"name":"`+name+`"},"rules":`+rule+`}`)
	root.must(t, "POST", rbacPath+"/clusterrolebindings", `{"metadata":{"name":"`+name+`"},"roleRef":{"apiGroup":"`+rbacv1.GroupName+`","kind":"ClusterRole","name":"`+name+`"},"subjects":[{"kind":"ServiceAccount","namespace":"`+ns+`","name":"default"}]}`)
	t.Cleanup(func() {
		removeClusterRole(t, name)
	})
	mallory := bearer(t, token(t, ns, authenticationv1.TokenRequestSpec{}))
	review := "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	eventually(t, "the right to be ann", func() error {
		if mallory.do(t, "POST", review, "{}", "Impersonate-User", "ann").code != http.StatusCreated {
			return errNotYet
		}
		return nil
	})
	for what, header := range map[string][]string{
		"another user":             {"Impersonate-User", "kubernetes-admin"},
		"the user in another case": {"Impersonate-User", "Ann"},
		"the user with a space":    {"Impersonate-User", "ann x"},
		"with a group":             {"Impersonate-User", "ann", "Impersonate-Group", "system:masters"},
		"with a harmless group":    {"Impersonate-User", "ann", "Impersonate-Group", "system:authenticated"},
		"with a uid":               {"Impersonate-User", "ann", "Impersonate-Uid", "1"},
		"with extra":               {"Impersonate-User", "ann", "Impersonate-Extra-Scopes", "x"},
		"with escaped extra":       {"Impersonate-User", "ann", "Impersonate-Extra-Authentication.kubernetes.io%2fnode-Name", "node-a"},
		"a service account":        {"Impersonate-User", "system:serviceaccount:kube-system:default"},
		"a node":                   {"Impersonate-User", "system:node:node-a"},
		"anonymous":                {"Impersonate-User", "system:anonymous"},
		"no user, with a group":    {"Impersonate-Group", "system:masters"},
		"no user, with extra":      {"Impersonate-Extra-Scopes", "x"},
	} {
		for path, body := range map[string]string{review: "{}", "/api/v1/namespaces/" + theirs + "/secrets/victim": ""} {
			method := map[string]string{"{}": "POST", "": "GET"}[body]
			a := mallory.do(t, method, path, body, header...)
			if a.code/100 != 4 || reveals(a.body) {
				t.Errorf("%s: %d %.300s", what, a.code, a.body)
			}
		}
	}
}

func removeClusterRole(t *testing.T, name string) {
	t.Helper()
	root := newCaller(t, server, trusted(stolen(t, "admin")), nil)
	for _, kind := range []string{"clusterrolebindings", "clusterroles"} {
		if a, err := root.send(context.Background(), "DELETE", rbacPath+"/"+kind+"/"+name, ""); err != nil || a.code != http.StatusOK {
			t.Errorf("delete the cluster role %s: %d %v", name, a.code, err)
		}
	}
}
