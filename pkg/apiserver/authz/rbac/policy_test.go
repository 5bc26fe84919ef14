package rbac

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func resource(verbs, groups, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Split(verbs, ","), APIGroups: strings.Split(groups, ","), Resources: strings.Split(resources, ","), ResourceNames: names}
}

func url(verbs string, urls ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Split(verbs, ","), NonResourceURLs: urls}
}

func user(name string, groups ...string) *request.User {
	return &request.User{Name: name, Groups: groups}
}

func on(verb, group, resource, sub, namespace, name string) request.Info {
	return request.Info{IsResource: true, Verb: verb, Group: group, Resource: resource, Subresource: sub, Namespace: namespace, Name: name}
}

func at(verb, path string) request.Info { return request.Info{Verb: verb, Path: path} }

// holding returns a policy with one ClusterRole of these rules, granted to joe.
func holding(rules ...rbacv1.PolicyRule) *Policy {
	p := New()
	p.ClusterRoles().Put(&rbacv1.ClusterRole{ObjectMeta: named("", "r"), Rules: rules})
	p.ClusterRoleBindings().Put(&rbacv1.ClusterRoleBinding{ObjectMeta: named("", "b"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "joe"}}})
	return p
}

func allows(p *Policy, u *request.User, info request.Info) bool {
	d, _ := p.Authorize(context.Background(), u, &info)
	return d == authz.Allow
}

func TestRules(t *testing.T) {
	for name, row := range map[string]struct {
		reason string
		rule   rbacv1.PolicyRule
		info   request.Info
		want   bool
	}{
		"Exact":           {"", resource("get", "", "pods"), on("get", "", "pods", "", "a", "p"), true},
		"OtherVerb":       {"", resource("get", "", "pods"), on("list", "", "pods", "", "a", ""), false},
		"OtherGroup":      {"", resource("get", "apps", "pods"), on("get", "", "pods", "", "a", "p"), false},
		"Subresource":     {"it is a resource of its own", resource("get", "", "pods"), on("get", "", "pods", "log", "a", "p"), false},
		"NamedSub":        {"", resource("get", "", "pods/log"), on("get", "", "pods", "log", "a", "p"), true},
		"SubOnly":         {"", resource("get", "", "pods/log"), on("get", "", "pods", "", "a", "p"), false},
		"AnySub":          {"", resource("update", "*", "*/scale"), on("update", "apps", "deployments", "scale", "a", "d"), true},
		"AnySubOther":     {"", resource("update", "*", "*/scale"), on("update", "apps", "deployments", "status", "a", "d"), false},
		"AnySubNone":      {"", resource("update", "*", "*/scale"), on("update", "apps", "deployments", "", "a", "d"), false},
		"NoSuchPattern":   {"upstream knows no pods/*", resource("get", "", "pods/*"), on("get", "", "pods", "log", "a", "p"), false},
		"SlashAtEnd":      {"names nothing", resource("get", "", "pods/"), on("get", "", "pods", "", "a", "p"), false},
		"Everything":      {"* has all subresources", resource("*", "*", "*"), on("escalate", "x", "y", "z", "", ""), true},
		"AnyGroup":        {"", resource("get", "*", "pods"), on("get", "metrics.k8s.io", "pods", "", "a", "p"), true},
		"RareVerb":        {"", resource("impersonate,bind", "", "users"), on("bind", "", "users", "", "", "u"), true},
		"OtherRareVerb":   {"", resource("impersonate", "", "users"), on("escalate", "", "users", "", "", "u"), false},
		"Name":            {"", resource("get", "", "secrets", "s"), on("get", "", "secrets", "", "a", "s"), true},
		"OtherName":       {"", resource("get", "", "secrets", "s"), on("get", "", "secrets", "", "a", "t"), false},
		"NoName":          {"a list is of more than the one", resource("list", "", "secrets", "s"), on("list", "", "secrets", "", "a", ""), false},
		"ListByName":      {"unless it asks for the one", resource("list", "", "secrets", "s"), on("list", "", "secrets", "", "a", "s"), true},
		"URL":             {"", url("get", "/healthz"), at("get", "/healthz"), true},
		"URLBelow":        {"", url("get", "/healthz"), at("get", "/healthz/etcd"), false},
		"URLPrefix":       {"", url("get", "/healthz/*"), at("get", "/healthz/etcd"), true},
		"URLPrefixItself": {"", url("get", "/healthz/*"), at("get", "/healthz"), false},
		"AnyURL":          {"", url("*", "*"), at("post", "/x"), true},
		"URLVerb":         {"", url("get", "*"), at("post", "/x"), false},
		"ResourceNoURL":   {"", resource("*", "*", "*"), at("get", "/metrics"), false},
		"URLNoResource":   {"", url("*", "*"), on("get", "", "pods", "", "", ""), false},
	} {
		if got := allows(holding(row.rule), user("joe"), row.info); got != row.want {
			t.Errorf("%s: %v, want %v: %s", name, got, row.want, row.reason)
		}
	}
}

func TestABindingReachesItsSubjectsInItsNamespace(t *testing.T) {
	p := New()
	p.ClusterRoles().Put(&rbacv1.ClusterRole{ObjectMeta: named("", "view"), Rules: []rbacv1.PolicyRule{resource("get", "", "pods"), url("get", "*")}})
	p.RoleBindings().Put(&rbacv1.RoleBinding{ObjectMeta: named("a", "b"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: "joe"}, {Kind: "Group", Name: "devs"}, {Kind: "ServiceAccount", Name: "robot"}, {Kind: "ServiceAccount", Namespace: "c", Name: "other"}}})
	pods := func(namespace string) request.Info { return on("get", "", "pods", "", namespace, "p") }
	for name, row := range map[string]struct {
		user *request.User
		info request.Info
		want bool
	}{
		"User":            {user("joe"), pods("a"), true},
		"OtherNamespace":  {user("joe"), pods("b"), false},
		"Everywhere":      {user("joe"), pods(""), false},
		"Group":           {user("ann", "x", "devs"), pods("a"), true},
		"GroupIsNoUser":   {user("devs"), pods("a"), false},
		"UserIsNoGroup":   {user("ann", "joe"), pods("a"), false},
		"OwnAccount":      {user("system:serviceaccount:a:robot"), pods("a"), true},
		"AccountOfOther":  {user("system:serviceaccount:b:robot"), pods("a"), false},
		"ForeignAccount":  {user("system:serviceaccount:c:other"), pods("a"), true},
		"URLsAreNowhere":  {user("joe"), at("get", "/x"), false},
		"OtherVerb":       {user("joe"), on("delete", "", "pods", "", "a", "p"), false},
		"NobodyInNoGroup": {user(""), pods("a"), false},
	} {
		if got := allows(p, row.user, row.info); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
	info := pods("a")
	if _, reason := p.Authorize(t.Context(), user("ann", "devs"), &info); reason != `RBAC: allowed by RoleBinding "b/a" of ClusterRole "view" to Group "devs"` {
		t.Error(reason)
	}
	if diff := cmp.Diff([]rbacv1.PolicyRule{resource("get", "", "pods"), url("get", "*")}, p.RulesFor(user("joe"), "a")); diff != "" {
		t.Error(diff)
	}
}

// After any sequence of changes a policy decides as a linear search through the
// stored objects does.
func TestAgainstAPlainReading(t *testing.T) {
	for seed := range uint64(300) {
		w := newWorld(seed)
		p := New()
		for range 60 {
			w.step(p)
		}
		for range 200 {
			u, info := w.user(), w.info()
			_, want := w.allows(u, &info)
			if got := allows(p, u, info); got != want {
				t.Fatalf("seed %d: %+v %+v: %v, want %v\n%s", seed, u, info, got, want, w)
			}
		}
		if n := len(w.roles) + len(w.bindings); n == 0 && (len(p.roles) > 0 || len(p.grants.Load().users) > 0) {
			t.Fatalf("seed %d: something is left of nothing", seed)
		}
	}
}

// world holds roles and bindings as stored, and authorizes by linear search.
type world struct {
	*rand.Rand
	roles    map[key]scheme.Object
	bindings map[key]scheme.Object
}

func newWorld(seed uint64) *world {
	return &world{rand.New(rand.NewPCG(seed, 1)), map[key]scheme.Object{}, map[key]scheme.Object{}}
}

func pick[T any](w *world, from ...T) T { return from[w.IntN(len(from))] }

func some(w *world, from ...string) []string {
	var out []string
	for range 1 + w.IntN(2) {
		out = append(out, pick(w, from...))
	}
	return out
}

func (w *world) rules() []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for range w.IntN(3) {
		r := rbacv1.PolicyRule{Verbs: some(w, "get", "list", "create", "bind", "escalate", "*")}
		if w.IntN(5) == 0 {
			r.NonResourceURLs = some(w, "/a", "/a/*", "*", "/b*")
		} else {
			r.APIGroups = some(w, "", "apps", "*")
			r.Resources = some(w, "pods", "pods/log", "*/log", "*", "roles", "pods/*")
			if w.IntN(3) == 0 {
				r.ResourceNames = some(w, "x", "y", "")
			}
		}
		out = append(out, r)
	}
	return out
}

func (w *world) subjects() []rbacv1.Subject {
	var out []rbacv1.Subject
	for range w.IntN(4) {
		out = append(out, pick(w, rbacv1.Subject{Kind: "User", Name: pick(w, "u", "v")}, rbacv1.Subject{Kind: "Group", Name: pick(w, "g", "h")},
			rbacv1.Subject{Kind: "ServiceAccount", Name: "s", Namespace: pick(w, "", "n", "m")}))
	}
	return out
}

// step makes one random change, or replaces all objects of a follower.
func (w *world) step(p *Policy) {
	namespace, name := pick(w, "", "n", "m"), pick(w, "a", "b", "c")
	k := key{namespace, name}
	switch w.IntN(12) {
	case 0, 1, 2, 3:
		obj := scheme.Object(&rbacv1.Role{ObjectMeta: named(namespace, name), Rules: w.rules()})
		if namespace == "" {
			obj = &rbacv1.ClusterRole{ObjectMeta: named("", name), Rules: w.rules()}
		}
		w.roles[k] = obj
		(&Roles{p, namespace == ""}).Put(obj)
	case 4, 5, 6, 7, 8:
		ref := rbacv1.RoleRef{Kind: pick(w, "Role", "ClusterRole"), Name: pick(w, "a", "b", "c")}
		obj := scheme.Object(&rbacv1.RoleBinding{ObjectMeta: named(namespace, name), RoleRef: ref, Subjects: w.subjects()})
		if namespace == "" {
			obj = &rbacv1.ClusterRoleBinding{ObjectMeta: named("", name), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: ref.Name}, Subjects: w.subjects()}
		}
		w.bindings[k] = obj
		(&Bindings{p, namespace == ""}).Put(obj)
	case 9:
		delete(w.roles, k)
		(&Roles{p, namespace == ""}).Remove(namespace, name)
	case 10:
		delete(w.bindings, k)
		(&Bindings{p, namespace == ""}).Remove(namespace, name)
	case 11:
		for _, cluster := range []bool{true, false} {
			lose(w, w.roles, cluster, (&Roles{p, cluster}).Replace)
			lose(w, w.bindings, cluster, (&Bindings{p, cluster}).Replace)
		}
	}
}

// lose drops some objects and replaces the follower's with the rest.
func lose(w *world, from map[key]scheme.Object, cluster bool, tell func([]scheme.Object)) {
	var all []scheme.Object
	for k, obj := range from {
		if (k.namespace == "") == cluster {
			if w.IntN(4) == 0 {
				delete(from, k)
				continue
			}
			all = append(all, obj)
		}
	}
	tell(all)
}

func (w *world) user() *request.User {
	u := user(pick(w, "u", "v", "w", "system:serviceaccount:n:s", "system:serviceaccount:m:s"))
	for range w.IntN(3) {
		u.Groups = append(u.Groups, pick(w, "g", "h", "i"))
	}
	return u
}

func (w *world) info() request.Info {
	if w.IntN(5) == 0 {
		return at(pick(w, "get", "post"), pick(w, "/a", "/a/x", "/b", "/bc", "/"))
	}
	return on(pick(w, "get", "list", "create", "bind", "escalate", "watch"), pick(w, "", "apps", "x"), pick(w, "pods", "roles", "nodes"), pick(w, "", "", "log", "x"), pick(w, "", "n", "m"), pick(w, "", "x", "y", "z"))
}

// allows authorizes by reading every binding and every rule.
func (w *world) allows(u *request.User, info *request.Info) (string, bool) {
	for k, obj := range w.bindings {
		var ref rbacv1.RoleRef
		var subjects []rbacv1.Subject
		switch b := obj.(type) {
		case *rbacv1.ClusterRoleBinding:
			ref, subjects = b.RoleRef, b.Subjects
		case *rbacv1.RoleBinding:
			if !info.IsResource || b.Namespace != info.Namespace {
				continue
			}
			ref, subjects = b.RoleRef, b.Subjects
		}
		var rules []rbacv1.PolicyRule
		if ref.Kind == "ClusterRole" {
			if r, ok := w.roles[key{"", ref.Name}]; ok {
				rules = r.(*rbacv1.ClusterRole).Rules
			}
		} else if r, ok := w.roles[key{k.namespace, ref.Name}]; ok {
			rules = r.(*rbacv1.Role).Rules
		}
		isSubject := slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
			switch s.Kind {
			case "User":
				return s.Name == u.Name
			case "Group":
				return slices.Contains(u.Groups, s.Name)
			}
			namespace := s.Namespace
			if namespace == "" {
				namespace = k.namespace
			}
			return namespace != "" && u.Name == "system:serviceaccount:"+namespace+":"+s.Name
		})
		if isSubject && slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return plain(r, info) }) {
			return k.name, true
		}
	}
	return "", false
}

func plain(r rbacv1.PolicyRule, info *request.Info) bool {
	has := func(list []string, value string) bool {
		return slices.Contains(list, "*") || slices.Contains(list, value)
	}
	if !has(r.Verbs, info.Verb) {
		return false
	}
	if !info.IsResource {
		return slices.ContainsFunc(r.NonResourceURLs, func(u string) bool {
			return u == info.Path || strings.HasSuffix(u, "*") && strings.HasPrefix(info.Path, strings.TrimSuffix(u, "*"))
		})
	}
	full := info.Resource
	if info.Subresource != "" {
		full += "/" + info.Subresource
	}
	anySub := info.Subresource != "" && slices.Contains(r.Resources, "*/"+info.Subresource)
	return has(r.APIGroups, info.Group) && (has(r.Resources, full) || anySub) &&
		(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, info.Name))
}

func (w *world) String() string {
	var out strings.Builder
	for _, obj := range w.roles {
		fmt.Fprintf(&out, "%+v\n", obj)
	}
	for _, obj := range w.bindings {
		fmt.Fprintf(&out, "%+v\n", obj)
	}
	return out.String()
}

func TestUsageListsUsedRules(t *testing.T) {
	p := holding(resource("get,list,bind", "", "pods/log,nodes"), url("get", "/x"))
	allows(p, user("joe"), on("list", "", "nodes", "", "", ""))
	allows(p, user("ann"), on("get", "", "nodes", "", "", ""))
	want := []Line{
		{Role: "r", URL: "/x", Unused: []string{"get"}},
		{Role: "r", Resource: "nodes", Used: []string{"list"}, Unused: []string{"get", "bind"}},
		{Role: "r", Resource: "pods/log", Unused: []string{"get", "list", "bind"}},
	}
	if diff := cmp.Diff(want, p.Usage()); diff != "" {
		t.Error(diff)
	}
	p.ClusterRoles().Put(&rbacv1.ClusterRole{ObjectMeta: named("", "r"), Rules: []rbacv1.PolicyRule{resource("list,watch", "", "nodes")}})
	want = []Line{{Role: "r", Resource: "nodes", Used: []string{"list"}, Unused: []string{"watch"}}}
	if diff := cmp.Diff(want, p.Usage()); diff != "" {
		t.Errorf("after a change: %s", diff)
	}
}

// big returns a policy of many namespaces and users.
func big() *Policy {
	p := New()
	rules := []rbacv1.PolicyRule{resource("get,list,watch", "", "pods,services,configmaps"), resource("*", "apps", "deployments"), resource("get", "*", "*/scale")}
	var roles, bindings []scheme.Object
	for i := range 100 {
		roles = append(roles, &rbacv1.ClusterRole{ObjectMeta: named("", fmt.Sprint("role-", i)), Rules: rules})
	}
	for i := range 5000 {
		bindings = append(bindings, &rbacv1.RoleBinding{ObjectMeta: named(fmt.Sprint("ns-", i%500), fmt.Sprint("b-", i)), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: fmt.Sprint("role-", i%100)},
			Subjects: []rbacv1.Subject{{Kind: "User", Name: fmt.Sprint("user-", i%1000)}, {Kind: "Group", Name: fmt.Sprint("team-", i%50)}}})
	}
	p.ClusterRoles().Replace(roles)
	p.RoleBindings().Replace(bindings)
	return p
}

func TestADecisionAllocatesNothing(t *testing.T) {
	p, u := big(), user("user-7", "team-7", "system:authenticated")
	for _, info := range []request.Info{on("get", "", "pods", "", "ns-7", "p"), on("delete", "", "pods", "", "ns-7", "p"), at("get", "/metrics")} {
		if n := testing.AllocsPerRun(100, func() { p.Authorize(t.Context(), u, &info) }); n > 0 {
			t.Errorf("%+v: %v allocations", info, n)
		}
	}
}

func BenchmarkAuthorize(b *testing.B) {
	p, u := big(), user("user-7", "team-7", "system:authenticated")
	for name, info := range map[string]request.Info{
		"allowed": on("get", "", "pods", "", "ns-7", "p"), "refused": on("delete", "", "pods", "", "ns-7", "p"),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Authorize(b.Context(), u, &info)
			}
		})
	}
}

func BenchmarkBind(b *testing.B) {
	p := big()
	binding := &rbacv1.RoleBinding{ObjectMeta: named("ns-7", "new"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "role-1"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "new"}}}
	for b.Loop() {
		p.RoleBindings().Put(binding)
	}
}
