package authz_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
)

func TestTheSystemsRules(t *testing.T) {
	rules := authz.Chain(authz.System(), authz.Discovery())
	user := func(name string, groups ...string) *request.User {
		return &request.User{Name: name, Groups: append(groups, "system:authenticated")}
	}
	nobody := &request.User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}
	for _, tc := range []struct {
		user         *request.User
		method, path string
		want         authz.Decision
	}{
		{user("ann", "system:masters"), "DELETE", "/api/v1/nodes/n", authz.Allow},
		{user("system:kube-scheduler"), "POST", "/api/v1/namespaces/a/pods/b/binding", authz.Allow},
		{user("system:kube-controller-manager"), "GET", "/api/v1/secrets", authz.Allow},
		{user("system:kube-proxy"), "GET", "/apis/discovery.k8s.io/v1/endpointslices", authz.Allow},
		{user("system:node:n", "system:nodes"), "PATCH", "/api/v1/nodes/n/status", authz.Allow},
		{user("system:node:n"), "PATCH", "/api/v1/nodes/n/status", authz.NoOpinion},
		{user("system:kube-scheduler2"), "GET", "/api/v1/pods", authz.NoOpinion},
		{user("joe"), "GET", "/api/v1/pods", authz.NoOpinion},
		{user("joe"), "GET", "/apis/apps/v1", authz.Allow},
		{user("joe"), "GET", "/openapi/v3", authz.Allow},
		{user("joe"), "POST", "/apis", authz.NoOpinion},
		{user("joe"), "GET", "/metrics", authz.NoOpinion},
		{nobody, "GET", "/healthz", authz.Allow},
		{nobody, "GET", "/readyz/etcd", authz.Allow},
		{nobody, "GET", "/version", authz.Allow},
		{nobody, "GET", "/apis", authz.NoOpinion},
		{nobody, "GET", "/api/v1/pods", authz.NoOpinion},
	} {
		info := request.Parse(httptest.NewRequest(tc.method, tc.path, nil))
		if got, _ := rules.Authorize(context.Background(), tc.user, &info); got != tc.want {
			t.Errorf("%s: %s %s: %v, want %v", tc.user.Name, tc.method, tc.path, got, tc.want)
		}
	}
}

func TestForbiddenSaysWhoAndWhat(t *testing.T) {
	joe := &request.User{Name: "joe"}
	for _, tc := range []struct{ method, path, want string }{
		{"GET", "/api/v1/nodes", `nodes is forbidden: User "joe" cannot list resource "nodes" in API group "" at the cluster scope`},
		{"GET", "/api/v1/namespaces/a/pods/b/log", `pods "b" is forbidden: User "joe" cannot get resource "pods/log" in API group "" in the namespace "a"`},
		{"POST", "/apis/apps/v1/namespaces/a/deployments", `deployments.apps is forbidden: User "joe" cannot create resource "deployments" in API group "apps" in the namespace "a"`},
		{"GET", "/metrics", `forbidden: User "joe" cannot get path "/metrics"`},
	} {
		info := request.Parse(httptest.NewRequest(tc.method, tc.path, nil))
		if got := authz.Forbidden(joe, &info, "").Error(); got != tc.want {
			t.Errorf("%s %s: %s, want %s", tc.method, tc.path, got, tc.want)
		}
	}
}
