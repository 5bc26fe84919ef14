package authz_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
)

func TestTheFirstOpinionCounts(t *testing.T) {
	none := func(reason string) authz.Authorizer {
		return authz.Func(func(context.Context, *request.User, *request.Info) (authz.Decision, string) {
			return authz.NoOpinion, reason
		})
	}
	joe, master := &request.User{Name: "joe"}, &request.User{Name: "ann", Groups: []string{"system:masters"}}
	for name, row := range map[string]struct {
		chain  []authz.Authorizer
		user   *request.User
		want   authz.Decision
		reason string
	}{
		"Nobody":     {nil, joe, authz.NoOpinion, ""},
		"Reasons":    {[]authz.Authorizer{none("a"), none(""), none("b")}, joe, authz.NoOpinion, "a\nb"},
		"Allowed":    {[]authz.Authorizer{none("a"), authz.Always(authz.Allow, ""), authz.Always(authz.Deny, "never")}, joe, authz.Allow, ""},
		"Denied":     {[]authz.Authorizer{authz.Always(authz.Deny, "never"), authz.Always(authz.Allow, "")}, joe, authz.Deny, "never"},
		"Master":     {[]authz.Authorizer{authz.Privileged("system:masters"), authz.Always(authz.Deny, "never")}, master, authz.Allow, ""},
		"NoMaster":   {[]authz.Authorizer{authz.Privileged("system:masters"), authz.Always(authz.Deny, "never")}, joe, authz.Deny, "never"},
		"NotByNames": {[]authz.Authorizer{authz.Privileged("system:masters")}, &request.User{Name: "system:masters"}, authz.NoOpinion, ""},
	} {
		if d, reason := authz.Chain(row.chain...).Authorize(t.Context(), row.user, &request.Info{}); d != row.want || reason != row.reason {
			t.Errorf("%s: %v %q, want %v %q", name, d, reason, row.want, row.reason)
		}
	}
}

func TestForbiddenMessage(t *testing.T) {
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
