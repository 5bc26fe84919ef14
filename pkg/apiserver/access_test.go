package apiserver_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/authz/bootstrap"
	"podium/pkg/apiserver/authz/rbac"
	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
	"podium/pkg/storage"
	"podium/pkg/storage/memory"
)

const rbacAPI = "/apis/rbac.authorization.k8s.io/v1/"

// withAccess configures the authorizers of a default cluster. A request header
// names the user and its groups.
func withAccess(t *testing.T) func(*apiserver.Config) {
	t.Helper()
	access, err := apiserver.NewAccess(apiserver.AccessConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *apiserver.Config) {
		c.Access = access
		c.Kinds = registry.Kinds(c.Scheme, registry.Config{
			Store: c.Store, ServiceCIDR: netip.MustParsePrefix("10.96.0.0/16"), NodePorts: registry.PortRange{First: 30000, Last: 32767},
			Now: time.Now, Access: access,
		})
		c.Authenticator = authn.Func(func(r *http.Request) (*request.User, error) {
			name, groups, _ := strings.Cut(r.Header.Get("X-User"), "/")
			if name == "" {
				return &request.User{Name: "admin", Groups: []string{request.Masters, request.Authenticated}}, nil
			}
			u := &request.User{Name: name, Groups: []string{request.Authenticated}}
			if groups != "" {
				u.Groups = append(u.Groups, groups)
			}
			return u, nil
		})
	}
}

// message returns the message of an error's Status.
func message(t *testing.T, body []byte) string {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal(body, &s); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return s.Message
}

func role(rules string) string { return `{"metadata":{"name":"r"},"rules":[` + rules + `]}` }

func binding(name, kind, role, user string) string {
	return `{"metadata":{"name":"` + name + `"},"roleRef":{"kind":"` + kind + `","name":"` + role + `"},"subjects":[{"kind":"User","name":"` + user + `"}]}`
}

const readPods = `{"verbs":["get","list"],"apiGroups":[""],"resources":["pods"]}`

// A role or binding takes effect with the next request after it is created,
// changed or deleted.
func TestABindingCountsAtOnce(t *testing.T) {
	w := start(t, withAccess(t))
	code := func(path string) int { return w.do("GET", path, "", "", "X-User", "joe").Code }
	const pods, bindings, roles = "/api/v1/namespaces/default/pods", rbacAPI + "namespaces/default/rolebindings", rbacAPI + "namespaces/default/roles"
	for range 20 {
		if got := code(pods); got != 403 {
			t.Fatalf("without a binding: %d", got)
		}
		must[any](w, 201, "POST", bindings, jsonType, binding("b", "Role", "r", "joe"))
		if got := code(pods); got != 403 {
			t.Fatalf("without a role: %d", got)
		}
		must[any](w, 201, "POST", roles, jsonType, role(readPods))
		if a, b, c := code(pods), code("/api/v1/pods"), code("/api/v1/namespaces/default/secrets"); a != 200 || b != 403 || c != 403 {
			t.Fatalf("with both: %d, everywhere %d, other things %d", a, b, c)
		}
		must[any](w, 200, "PATCH", roles+"/r", mergeType, `{"rules":[]}`)
		if got := code(pods); got != 403 {
			t.Fatalf("with an empty role: %d", got)
		}
		must[any](w, 200, "DELETE", roles+"/r", "", "")
		must[any](w, 200, "DELETE", bindings+"/b", "", "")
	}
}

func TestForbiddenTexts(t *testing.T) {
	w := start(t, withAccess(t))
	for _, row := range []struct{ user, method, path, want string }{
		{"joe", "GET", "/api/v1/namespaces/a/pods", `pods is forbidden: User "joe" cannot list resource "pods" in API group "" in the namespace "a"`},
		{"joe", "GET", "/apis/apps/v1/deployments", `deployments.apps is forbidden: User "joe" cannot list resource "deployments" in API group "apps" at the cluster scope`},
		{"joe", "GET", "/metrics", `forbidden: User "joe" cannot get path "/metrics"`},
		{"system:node:a/system:nodes", "GET", "/api/v1/namespaces/a/secrets/s", `secrets "s" is forbidden: User "system:node:a" cannot get resource "secrets" in API group "" in the namespace "a": no relationship found between node 'a' and this object`},
	} {
		rec := w.do(row.method, row.path, "", "", "X-User", row.user)
		if got := message(t, rec.Body.Bytes()); rec.Code != 403 || got != row.want {
			t.Errorf("%s %s: %d %s, want %s", row.user, row.path, rec.Code, got, row.want)
		}
	}
}

func TestPrivilegeEscalationIsRefused(t *testing.T) {
	w := start(t, withAccess(t))
	// ann administers namespace default: she may write roles and bindings there, and read pods.
	must[any](w, 201, "POST", rbacAPI+"namespaces/default/roles", jsonType,
		`{"metadata":{"name":"ann"},"rules":[{"verbs":["*"],"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles","rolebindings"],"resourceNames":[]},`+readPods+`]}`)
	must[any](w, 201, "POST", rbacAPI+"namespaces/default/rolebindings", jsonType, binding("ann", "Role", "ann", "ann"))
	// bob may write the same, but has neither the verb escalate nor bind.
	writer := strings.Replace(`{"metadata":{"name":"bob"},"rules":[{"verbs":["create","update","patch"],"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles","rolebindings"]},RULE]}`, "RULE", readPods, 1)
	must[any](w, 201, "POST", rbacAPI+"namespaces/default/roles", jsonType, writer)
	must[any](w, 201, "POST", rbacAPI+"namespaces/default/rolebindings", jsonType, binding("bob", "Role", "bob", "bob"))
	must[any](w, 201, "POST", rbacAPI+"clusterroles", jsonType, `{"metadata":{"name":"pods"},"rules":[`+readPods+`]}`)

	secrets := `{"verbs":["get","list"],"apiGroups":[""],"resources":["secrets"]}`
	const roles, bindings = rbacAPI + "namespaces/default/roles", rbacAPI + "namespaces/default/rolebindings"
	lacking := `roles.rbac.authorization.k8s.io "r" is forbidden: user "bob" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:` + "\n" +
		`{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}`
	for name, row := range map[string]struct {
		user, path, body string
		code             int
		want             string
	}{
		"HisOwn":          {"bob", roles, `{"metadata":{"name":"own"},"rules":[` + readPods + `]}`, 201, ""},
		"More":            {"bob", roles, role(readPods + "," + secrets), 403, lacking},
		"MoreButEscalate": {"ann", roles, `{"metadata":{"name":"more"},"rules":[` + secrets + `]}`, 201, ""},
		"BindHisOwn":      {"bob", bindings, binding("x", "ClusterRole", "pods", "eve"), 201, ""},
		"BindAdmin": {"bob", bindings, binding("y", "ClusterRole", "cluster-admin", "bob"), 403,
			`rolebindings.rbac.authorization.k8s.io "y" is forbidden: user "bob" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:` + "\n" +
				`{APIGroups:["*"], Resources:["*"], Verbs:["*"]}` + "\n" + `{NonResourceURLs:["*"], Verbs:["*"]}`},
		"BindNothing":     {"bob", bindings, binding("z", "Role", "none", "bob"), 404, `roles.rbac.authorization.k8s.io "none" not found`},
		"BindWithTheVerb": {"ann", bindings, binding("v", "Role", "bob", "eve"), 201, ""},
		"BindElsewhere":   {"ann", rbacAPI + "clusterrolebindings", binding("w", "ClusterRole", "pods", "ann"), 403, `clusterrolebindings.rbac.authorization.k8s.io is forbidden: User "ann" cannot create resource "clusterrolebindings" in API group "rbac.authorization.k8s.io" at the cluster scope`},
	} {
		rec := w.do("POST", row.path, jsonType, row.body, "X-User", row.user)
		got := ""
		if rec.Code >= 300 {
			got = message(t, rec.Body.Bytes())
		}
		if rec.Code != row.code || got != row.want {
			t.Errorf("%s: %d %s\nwant %d %s", name, rec.Code, got, row.code, row.want)
		}
	}
	// An update is checked like a create, unless it changes only labels.
	if rec := w.do("PATCH", roles+"/own", mergeType, `{"rules":[`+secrets+`]}`, "X-User", "bob"); rec.Code != 403 {
		t.Errorf("a changed role: %d", rec.Code)
	}
	if rec := w.do("PATCH", roles+"/more", mergeType, `{"metadata":{"labels":{"a":"b"}}}`, "X-User", "bob"); rec.Code != 200 {
		t.Errorf("a label: %d %s", rec.Code, rec.Body)
	}
}

func TestAccessReviews(t *testing.T) {
	w := start(t, withAccess(t))
	must[any](w, 201, "POST", rbacAPI+"namespaces/default/roles", jsonType, role(readPods))
	must[any](w, 201, "POST", rbacAPI+"namespaces/default/rolebindings", jsonType, binding("b", "Role", "r", "joe"))
	const api = "/apis/authorization.k8s.io/v1/"
	pods := `"resourceAttributes":{"namespace":"default","verb":"list","resource":"pods"}`
	reason := `RBAC: allowed by RoleBinding "b/default" of Role "r" to User "joe"`
	for name, row := range map[string]struct {
		path, body string
		want       authorizationv1.SubjectAccessReviewStatus
	}{
		"Allowed": {"subjectaccessreviews", `{"spec":{"user":"joe",` + pods + `}}`, authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: reason}},
		"Refused": {"subjectaccessreviews", `{"spec":{"user":"ann",` + pods + `}}`, authorizationv1.SubjectAccessReviewStatus{}},
		"Group":   {"subjectaccessreviews", `{"spec":{"groups":["system:masters"],` + pods + `}}`, authorizationv1.SubjectAccessReviewStatus{Allowed: true}},
		"Path":    {"subjectaccessreviews", `{"spec":{"user":"x","groups":["system:authenticated"],"nonResourceAttributes":{"verb":"get","path":"/version"}}}`, authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: `RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" to Group "system:authenticated"`}},
		"Local":   {"namespaces/default/localsubjectaccessreviews", `{"spec":{"user":"joe",` + pods + `}}`, authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: reason}},
	} {
		got := must[authorizationv1.SubjectAccessReview](w, 201, "POST", api+row.path, jsonType, row.body)
		if name == "Path" {
			got.Status.Reason = row.want.Reason // any of several bindings may be the reason
		}
		if diff := cmp.Diff(row.want, got.Status); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	self := must[authorizationv1.SelfSubjectAccessReview](w, 201, "POST", api+"selfsubjectaccessreviews", jsonType, `{"spec":{`+pods+`}}`, "X-User", "joe")
	if !self.Status.Allowed || self.Status.Reason != reason {
		t.Errorf("oneself: %+v", self.Status)
	}
	rules := must[authorizationv1.SelfSubjectRulesReview](w, 201, "POST", api+"selfsubjectrulesreviews", jsonType, `{"spec":{"namespace":"default"}}`, "X-User", "joe")
	found := false
	for _, r := range rules.Status.ResourceRules {
		found = found || cmp.Equal(r, authorizationv1.ResourceRule{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"pods"}})
	}
	if !found || rules.Status.Incomplete || len(rules.Status.NonResourceRules) == 0 {
		t.Errorf("rules: %+v", rules.Status)
	}
	for name, row := range map[string]struct {
		path, body string
		code       int
		want       string
	}{
		"Nobody":  {"subjectaccessreviews", `{"spec":{` + pods + `}}`, 422, `at least one of user or group must be specified`},
		"Nothing": {"subjectaccessreviews", `{"spec":{"user":"joe"}}`, 422, `exactly one of nonResourceAttributes or resourceAttributes must be specified`},
		"Both":    {"selfsubjectaccessreviews", `{"spec":{` + pods + `,"nonResourceAttributes":{"path":"/"}}}`, 422, `cannot be specified in combination with resourceAttributes`},
		"Other":   {"namespaces/a/localsubjectaccessreviews", `{"spec":{"user":"joe",` + pods + `}}`, 422, `must match metadata.namespace`},
		"Where":   {"selfsubjectrulesreviews", `{"spec":{}}`, 400, `no namespace on request`},
		"Selectors": {"selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"list","resource":"pods","fieldSelector":{"rawSelector":"a=b","requirements":[{"key":"a","operator":"In","values":["b"]}]}}}}`, 422,
			`may not specified at the same time as requirements`},
	} {
		rec := w.do("POST", api+row.path, jsonType, row.body)
		if rec.Code != row.code || !strings.Contains(message(t, rec.Body.Bytes()), row.want) {
			t.Errorf("%s: %d %s, want %d %s", name, rec.Code, rec.Body, row.code, row.want)
		}
	}
}

// An update or patch that creates its object needs the verb create as well.
func TestCreateOnUpdateNeedsCreate(t *testing.T) {
	w := start(t, withAccess(t))
	rule := func(verbs, more string) string {
		return `{"verbs":` + verbs + `,"apiGroups":["","coordination.k8s.io"],"resources":["secrets","leases"]` + more + `}`
	}
	give := func(user, rules string) {
		must[any](w, 201, "POST", rbacAPI+"namespaces/default/roles", jsonType, `{"metadata":{"name":"`+user+`"},"rules":[`+rules+`]}`)
		must[any](w, 201, "POST", rbacAPI+"namespaces/default/rolebindings", jsonType, binding(user, "Role", user, user))
	}
	give("writer", rule(`["get","update","patch"]`, ""))
	give("creator", rule(`["get","update","patch","create"]`, ""))
	give("named", rule(`["update","patch"]`, "")+","+rule(`["create"]`, `,"resourceNames":["ours"]`))
	const secrets, leases = "/api/v1/namespaces/default/secrets/", "/apis/coordination.k8s.io/v1/namespaces/default/leases/"
	secret := func(name string) string {
		return `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"` + name + `"}}`
	}
	lease := func(name string) string { return `{"metadata":{"name":"` + name + `"}}` }
	for _, row := range []struct {
		reason, user, method, path, media, body string
		code                                    int
	}{
		{"an apply of an absent object creates", "writer", "PATCH", secrets + "a?fieldManager=m", applyType, secret("a"), 403},
		{"a dry run, too", "writer", "PATCH", secrets + "a?fieldManager=m&dryRun=All", applyType, secret("a"), 403},
		{"as does a PUT", "writer", "PUT", leases + "a", jsonType, lease("a"), 403},
		{"a merge patch never creates", "writer", "PATCH", secrets + "a", mergeType, `{}`, 404},
		{"where PUT does not create it is not asked", "writer", "PUT", secrets + "a", jsonType, secret("a"), 404},
		{"create allows it", "creator", "PATCH", secrets + "a?fieldManager=m", applyType, secret("a"), 201},
		{"create allows it", "creator", "PUT", leases + "a", jsonType, lease("a"), 201},
		{"what exists is only changed", "writer", "PATCH", secrets + "a?fieldManager=n", applyType, secret("a"), 200},
		{"what exists is only changed", "writer", "PUT", leases + "a", jsonType, lease("a"), 422}, // it lacks the resourceVersion
		{"the name counts, as upstream: the URL has it", "named", "PATCH", secrets + "ours?fieldManager=m", applyType, secret("ours"), 201},
		{"and no other name", "named", "PATCH", secrets + "other?fieldManager=m", applyType, secret("other"), 403},
	} {
		rec := w.do(row.method, row.path, row.media, row.body, "X-User", row.user)
		if rec.Code != row.code {
			t.Errorf("%s: %s %s of %s: %d, want %d: %s", row.reason, row.method, row.path, row.user, rec.Code, row.code, rec.Body)
		}
	}
	refused := w.do("PATCH", secrets+"b?fieldManager=m", applyType, secret("b"), "X-User", "writer")
	want := `secrets "b" is forbidden: User "writer" cannot create resource "secrets" in API group "" in the namespace "default"`
	if got := message(t, refused.Body.Bytes()); got != want {
		t.Errorf("the refusal is %q, want %q", got, want)
	}
}

// A starting server adds missing rules to the default roles and leaves objects
// alone that are marked as protected.
func TestDefaultRolesAreReconciledAtStart(t *testing.T) {
	w := start(t, withAccess(t))
	must[any](w, 200, "PATCH", rbacAPI+"clusterroles/system:discovery", mergeType, `{"rules":[{"verbs":["get"],"nonResourceURLs":["/mine"]}]}`)
	must[any](w, 200, "PATCH", rbacAPI+"clusterroles/system:basic-user", mergeType, `{"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"false"}},"rules":[]}`)
	must[any](w, 200, "DELETE", rbacAPI+"clusterrolebindings/system:discovery", "", "")
	must[any](w, 201, "POST", rbacAPI+"clusterrolebindings", jsonType,
		`{"metadata":{"name":"system:discovery"},"roleRef":{"kind":"ClusterRole","name":"system:basic-user"},"subjects":[{"kind":"User","name":"joe"}]}`)
	must[any](w, 200, "DELETE", rbacAPI+"clusterroles/view", "", "")
	w.stop()

	again := start(t, withAccess(t), func(c *apiserver.Config) { c.Store = w.store })
	paths := map[string]bool{}
	for _, r := range must[rbacv1.ClusterRole](again, 200, "GET", rbacAPI+"clusterroles/system:discovery", "", "").Rules {
		for _, u := range r.NonResourceURLs {
			paths[u] = true
		}
	}
	if !paths["/mine"] || !paths["/apis/*"] {
		t.Errorf("system:discovery: %v", paths)
	}
	if r := must[rbacv1.ClusterRole](again, 200, "GET", rbacAPI+"clusterroles/system:basic-user", "", ""); len(r.Rules) > 0 {
		t.Errorf("system:basic-user: %+v", r.Rules)
	}
	b := must[rbacv1.ClusterRoleBinding](again, 200, "GET", rbacAPI+"clusterrolebindings/system:discovery", "", "")
	if b.RoleRef.Name != "system:discovery" || len(b.Subjects) != 1 || b.Subjects[0].Name != request.Authenticated {
		t.Errorf("the binding: %+v %+v", b.RoleRef, b.Subjects)
	}
	must[any](again, 200, "GET", rbacAPI+"clusterroles/view", "", "")
	if n := len(must[rbacv1.ClusterRoleList](again, 200, "GET", rbacAPI+"clusterroles", "", "").Items); n != len(bootstrap.Default().ClusterRoles) {
		t.Errorf("%d cluster roles, want %d", n, len(bootstrap.Default().ClusterRoles))
	}
}

func TestRoleUsageIsForAdministrators(t *testing.T) {
	w := start(t, withAccess(t), func(c *apiserver.Config) { c.Profiling = true })
	must[any](w, 200, "GET", "/api/v1/nodes", "", "", "X-User", "system:kube-scheduler")
	must[any](w, 200, "GET", "/api/v1/services", "", "", "X-User", "system:node:n/system:nodes")
	used := map[string][]string{}
	for _, l := range *must[[]rbac.Line](w, 200, "GET", "/debug/authorization/roles", "", "") {
		if len(l.Used) > 0 {
			used[l.Role+" "+l.Resource] = l.Used
		}
	}
	want := map[string][]string{"system:kube-scheduler nodes": {"list"}, "system:node services": {"list"}}
	if diff := cmp.Diff(want, used); diff != "" {
		t.Error(diff)
	}
	if rec := w.do("GET", "/debug/authorization/roles", "", "", "X-User", "joe"); rec.Code != 403 {
		t.Errorf("joe: %d", rec.Code)
	}
}

// slow is a store whose first reads block, as on a server that has just
// started.
type slow struct {
	storage.Store
	until chan struct{}
}

func (s *slow) List(ctx context.Context, prefix string, opts storage.ListOptions) (storage.Page, error) {
	<-s.until
	return s.Store.List(ctx, prefix, opts)
}

// A server that has not synced the roles answers 503: it neither refuses
// permanently nor allows what was allowed in the past.
func TestStartingServerAnswersUnavailable(t *testing.T) {
	until := make(chan struct{})
	s := scheme.New()
	cfg := apiserver.Config{Scheme: s, Store: &slow{memory.New(), until}, Log: slog.New(slog.DiscardHandler), CompactEvery: -1}
	withAccess(t)(&cfg)
	server, err := apiserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	w := &world{TB: t, server: server, handler: server.Handler()}
	if code := w.do("GET", "/apis", "", "", "X-User", "joe").Code; code != 503 {
		t.Errorf("before the roles are known: %d", code)
	}
	if code := w.do("GET", "/apis", "", "").Code; code != 200 {
		t.Errorf("an administrator: %d", code)
	}
	close(until)
	for w.do("GET", "/readyz", "", "").Code != http.StatusOK {
		time.Sleep(time.Millisecond) // outside a synctest bubble there is nothing to wait on
	}
	if a, b := w.do("GET", "/apis", "", "", "X-User", "joe").Code, w.do("GET", "/api/v1/nodes", "", "", "X-User", "joe").Code; a != 200 || b != 403 {
		t.Errorf("afterwards: %d, %d", a, b)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestModes(t *testing.T) {
	get := &request.Info{IsResource: true, Verb: "get", Resource: "pods"}
	joe, master := &request.User{Name: "joe"}, &request.User{Name: "ann", Groups: []string{request.Masters}}
	for name, row := range map[string]struct {
		modes  []string
		user   *request.User
		want   authz.Decision
		reason string
	}{
		"Default":     {nil, joe, authz.NoOpinion, ""},
		"Master":      {[]string{"AlwaysDeny"}, master, authz.Allow, ""},
		"AlwaysAllow": {[]string{"AlwaysAllow"}, joe, authz.Allow, ""},
		"AlwaysDeny":  {[]string{"AlwaysDeny"}, joe, authz.NoOpinion, "Everything is forbidden."},
		"InOrder":     {[]string{"RBAC", "AlwaysAllow"}, joe, authz.Allow, ""},
	} {
		a, err := apiserver.NewAccess(apiserver.AccessConfig{Modes: row.modes})
		if err != nil {
			t.Fatal(err)
		}
		if d, reason := a.Authorize(t.Context(), row.user, get); d != row.want || reason != row.reason {
			t.Errorf("%s: %v %q, want %v %q", name, d, reason, row.want, row.reason)
		}
	}
	if _, err := apiserver.NewAccess(apiserver.AccessConfig{Modes: []string{"ABAC"}}); err == nil {
		t.Error("a mode that is none")
	}
}
