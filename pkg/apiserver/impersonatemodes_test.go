package apiserver_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/audit"
	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
)

// agent is a service account whose tokens are for pods on node a.
const agent = "system:serviceaccount:ns:agent"

// Constrained impersonation needs a permission for the identity and one for the request.
func TestConstrainedImpersonation(t *testing.T) {
	var may []string
	w := start(t, func(cfg *apiserver.Config) {
		cfg.Authenticator = authn.Func(func(r *http.Request) (*request.User, error) {
			u := &request.User{Name: r.Header.Get("X-User"), Groups: []string{request.Authenticated}}
			if u.Name == agent {
				u.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {"a"}}
			}
			return u, nil
		})
		cfg.Authorizer = authz.Func(func(_ context.Context, _ *request.User, i *request.Info) (authz.Decision, string) {
			what := strings.Join(strings.Fields(strings.Join([]string{i.Verb, i.Group, i.Resource, i.Subresource, i.Namespace, i.Name}, " ")), " ")
			if !strings.HasPrefix(i.Verb, "impersonate") || slices.Contains(may, what) {
				return authz.Allow, ""
			}
			return authz.NoOpinion, ""
		})
	})
	const group = " authentication.k8s.io "
	on := func(mode string) string { return "impersonate-on:" + mode + ":create" + group + "selfsubjectreviews" }
	be := func(mode, who string) string { return "impersonate:" + mode + group + who }
	as := func(name string, more ...string) []string { return append([]string{"Impersonate-User", name}, more...) }
	user := func(name string, groups ...string) *authenticationv1.UserInfo {
		return &authenticationv1.UserInfo{Username: name, Groups: append(groups, "system:authenticated")}
	}
	robot := "system:serviceaccount:ns:robot"
	few, many, extra := []string{"Impersonate-Extra-Example.com%2fa", "1"}, []string{}, user("joe")
	extra.Extra = map[string]authenticationv1.ExtraValue{}
	for _, key := range []string{"a", "b", "c", "d"} {
		many = append(many, "Impersonate-Extra-Example.com%2f"+key, "1")
		extra.Extra["example.com/"+key] = []string{"1"}
	}
	for name, row := range map[string]struct {
		by     string
		header []string
		needs  []string
		want   *authenticationv1.UserInfo // nil: refused whatever is allowed
	}{
		"a user":            {"ann", as("joe"), []string{on("user-info"), be("user-info", "users joe")}, user("joe")},
		"a user in a group": {"ann", as("joe", "Impersonate-Group", "g"), []string{on("user-info"), be("user-info", "users joe"), be("user-info", "groups g")}, user("joe", "g")},
		"with extras":       {"ann", as("joe", few...), []string{on("user-info"), be("user-info", "users joe"), be("user-info", "userextras * *")}, nil},
		"a plain extra":     {"ann", as("joe", "Impersonate-Extra-Scopes", "x"), []string{on("user-info"), be("user-info", "users joe"), be("user-info", "userextras scopes x")}, nil},
		"with many extras":  {"ann", as("joe", many...), []string{on("user-info"), be("user-info", "users joe"), be("user-info", "userextras * *")}, extra},
		"an administrator":  {"ann", as("joe", "Impersonate-Group", "system:masters"), []string{on("user-info"), be("user-info", "users joe"), be("user-info", "groups system:masters")}, nil},
		"no group":          {"ann", as("joe", "Impersonate-Group", ""), []string{on("user-info"), be("user-info", "users joe"), be("user-info", "groups")}, nil},
		"an account":        {"ann", as(robot), []string{on("serviceaccount"), be("serviceaccount", "serviceaccounts ns robot")}, user(robot, "system:serviceaccounts", "system:serviceaccounts:ns")},
		"an account's uid":  {"ann", as(robot, "Impersonate-Uid", "1"), []string{on("serviceaccount"), be("serviceaccount", "serviceaccounts ns robot"), be("serviceaccount", "uids 1")}, nil},
		"a node":            {"ann", as("system:node:b"), []string{on("arbitrary-node"), be("arbitrary-node", "nodes b")}, user("system:node:b", "system:nodes")},
		"a node as a user":  {"ann", as("system:node:b"), []string{on("user-info"), be("user-info", "users system:node:b")}, nil},
		"its node":          {agent, as("system:node:a"), []string{on("associated-node"), be("associated-node", "nodes *")}, user("system:node:a", "system:nodes")},
		"another node":      {agent, as("system:node:b"), []string{on("associated-node"), be("associated-node", "nodes *")}, nil},
		"without limits":    {"ann", as("system:node:b"), []string{"impersonate users system:node:b"}, user("system:node:b")},
	} {
		t.Run(name, func(t *testing.T) {
			send := func() (int, *authenticationv1.UserInfo) {
				rec := w.do("POST", reviews+"selfsubjectreviews", jsonType, `{}`, append([]string{"X-User", row.by}, row.header...)...)
				var got authenticationv1.SelfSubjectReview
				if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil && rec.Code == http.StatusCreated {
					t.Fatalf("%s: %v", rec.Body, err)
				}
				return rec.Code, &got.Status.UserInfo
			}
			for i, missing := range row.needs {
				may = slices.Delete(slices.Clone(row.needs), i, i+1)
				if code, _ := send(); code != http.StatusForbidden {
					t.Errorf("without %q: %d", missing, code)
				}
			}
			may = row.needs
			code, got := send()
			if row.want == nil {
				if code != http.StatusForbidden {
					t.Errorf("%d %+v, want a refusal", code, got)
				}
				return
			}
			if diff := cmp.Diff(row.want, got); diff != "" || code != http.StatusCreated {
				t.Errorf("%d (-want +got):\n%s", code, diff)
			}
		})
	}
}

// The audit event of a request has the verb that constrains an impersonation.
func TestAuditOfConstrainedImpersonation(t *testing.T) {
	w, j := recorded(t, audit.Rule{Level: audit.LevelMetadata})
	for group, want := range map[string]string{"g": "impersonate:user-info", "system:masters": ""} { // an administrator may do all
		w.do("GET", cms, "", "", "Impersonate-User", "joe", "Impersonate-Group", group)
		events := j.take(t, cms)
		last := events[len(events)-1]
		if last.ImpersonatedUser == nil || last.AuthenticationMetadata.ImpersonationConstraint != want {
			t.Errorf("in the group %s: %+v, want %q", group, last, want)
		}
	}
}
