package audit

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"podium/pkg/apiserver/request"
)

const policyHead = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"

func TestParsePolicy(t *testing.T) {
	for name, row := range map[string]struct {
		reason string
		file   string
		want   []string
	}{
		"upstream's example": {reason: "every field that there is", file: `
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: RequestResponse
  resources: [{group: "", resources: [pods]}]
- level: None
  users: ["system:kube-proxy"]
  verbs: [watch]
  resources: [{group: "", resources: [endpoints, services]}]
- level: None
  userGroups: ["system:authenticated"]
  nonResourceURLs: ["/api*", "/version"]
- level: Request
  resources: [{group: "", resources: [configmaps], resourceNames: [a]}, {group: "*"}]
  namespaces: [kube-system]
  omitManagedFields: false
- level: Metadata
  omitStages: [ResponseStarted, Panic]
`},
		"no rules":      {reason: "it would record nothing, silently", file: "rules: []\n", want: []string{"rules: Required value"}},
		"unknown field": {reason: "a slip must not widen a rule", file: "rules: [{level: None, user: [a]}]\n", want: []string{`unknown field "rules[0].user"`}},
		"all at once": {reason: "who mends a file wants to know all that is wrong",
			file: "omitStages: [Begin]\nrules:\n- level: All\n- {}\n- level: None\n  nonResourceURLs: [api, '/a*b']\n  namespaces: [a]\n- level: None\n  resources: [{group: v1/Pods}, {resourceNames: [a]}]\n  omitStages: [End]\n",
			want: []string{"omitStages[0]: Unsupported value", "rules[0].level: Unsupported value: \"All\"", "rules[1].level: Required value",
				"rules[2].nonResourceURLs[0]", "begin with a '/'", "rules[2].nonResourceURLs[1]", "final character", "cannot apply to both",
				"rules[3].resources[0].group", "rules[3].resources[1].resourceNames", "requires at least one resource", "rules[3].omitStages[0]"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParsePolicy([]byte(policyHead + row.file))
			if (err == nil) != (row.want == nil) {
				t.Fatalf("%s: got %v", row.reason, err)
			}
			for _, part := range row.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: the error does not say %q:\n%v", row.reason, part, err)
				}
			}
		})
	}
}

func TestRulesMatch(t *testing.T) {
	get := func(group, resource, sub, namespace, name string) request.Info {
		return request.Info{IsResource: true, Verb: "get", Group: group, Resource: resource, Subresource: sub, Namespace: namespace, Name: name, Path: "/x"}
	}
	page := func(path string) request.Info { return request.Info{Verb: "get", Path: path} }
	of := func(group string, names ...string) Rule {
		return Rule{Resources: []GroupResources{{Group: group, Resources: names}}}
	}
	ann := &request.User{Name: "ann", Groups: []string{"a", "b"}}
	for name, row := range map[string]struct {
		rule Rule
		info request.Info
		user *request.User
		want bool
	}{
		"all":                      {Rule{}, page("/healthz"), nil, true},
		"user":                     {Rule{Users: []string{"ann"}}, page("/"), ann, true},
		"another user":             {Rule{Users: []string{"joe"}}, page("/"), ann, false},
		"a user who is not known":  {Rule{Users: []string{""}}, page("/"), nil, false},
		"one of the groups":        {Rule{UserGroups: []string{"x", "b"}}, page("/"), ann, true},
		"none of the groups":       {Rule{UserGroups: []string{"x"}}, page("/"), ann, false},
		"verb":                     {Rule{Verbs: []string{"list"}}, page("/"), ann, false},
		"URL":                      {Rule{NonResourceURLs: []string{"/healthz*"}}, page("/healthz/ping"), ann, true},
		"URL, whole":               {Rule{NonResourceURLs: []string{"/healthz"}}, page("/healthz/ping"), ann, false},
		"URL of a resource":        {Rule{NonResourceURLs: []string{"*"}}, get("", "pods", "", "n", "a"), ann, false},
		"resource":                 {of("", "pods"), get("", "pods", "", "n", "a"), ann, true},
		"resource, not its parts":  {of("", "pods"), get("", "pods", "log", "n", "a"), ann, false},
		"another group":            {of("apps", "pods"), get("", "pods", "", "n", "a"), ann, false},
		"any group":                {of("*", "pods"), get("", "pods", "", "n", "a"), ann, true},
		"all of a group":           {of(""), get("", "pods", "log", "n", "a"), ann, true},
		"any":                      {of("", "*"), get("", "pods", "log", "n", "a"), ann, true},
		"subresource":              {of("", "pods/log"), get("", "pods", "log", "n", "a"), ann, true},
		"any subresource":          {of("", "pods/*"), get("", "pods", "log", "n", "a"), ann, true},
		"a subresource of any":     {of("", "*/log"), get("", "pods", "log", "n", "a"), ann, true},
		"a subresource, none":      {of("", "*/log"), get("", "pods", "", "n", "a"), ann, false},
		"a page is no resource":    {of("", "*"), page("/version"), ann, false},
		"namespace":                {Rule{Namespaces: []string{"n"}}, get("", "pods", "", "n", "a"), ann, true},
		"no namespace":             {Rule{Namespaces: []string{""}}, get("", "nodes", "", "", "a"), ann, true},
		"another namespace":        {Rule{Namespaces: []string{"m"}}, get("", "pods", "", "n", "a"), ann, false},
		"a page has no namespace":  {Rule{Namespaces: []string{""}}, page("/version"), ann, false},
		"name":                     {Rule{Resources: []GroupResources{{Resources: []string{"pods"}, ResourceNames: []string{"a"}}}}, get("", "pods", "", "n", "a"), ann, true},
		"another name":             {Rule{Resources: []GroupResources{{Resources: []string{"pods"}, ResourceNames: []string{"b"}}}}, get("", "pods", "", "n", "a"), ann, false},
		"all conditions must hold": {Rule{Users: []string{"ann"}, Verbs: []string{"get"}, Namespaces: []string{"m"}}, get("", "pods", "", "n", "a"), ann, false},
	} {
		if got := row.rule.matches(row.user, &row.info); got != row.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestTheFirstRuleCounts(t *testing.T) {
	no := false
	p := &Policy{
		OmitStages: []Stage{StageRequestReceived}, OmitManagedFields: true,
		Rules: []Rule{
			{Level: LevelNone, Verbs: []string{"watch"}},
			{Level: LevelRequest, Verbs: []string{"watch", "get"}, OmitStages: []Stage{StagePanic}, OmitManagedFields: &no},
		},
	}
	got := map[string]decision{}
	for _, verb := range []string{"watch", "get", "list"} {
		got[verb] = p.decide(nil, &request.Info{Verb: verb})
	}
	received := []Stage{StageRequestReceived}
	want := map[string]decision{
		"watch": {LevelNone, [2][]Stage{received}, true},
		"get":   {LevelRequest, [2][]Stage{received, {StagePanic}}, false},
		"list":  {LevelNone, [2][]Stage{received}, true},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(decision{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte(policyHead + "rules: [{level: Metadata, resources: [{group: '*', resources: ['*/scale', pods/*]}], users: [a]}]\n"))
	f.Add([]byte(policyHead + "omitStages: [Panic]\nrules: [{level: None, nonResourceURLs: ['/a*']}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParsePolicy(data)
		if err != nil {
			return
		}
		for _, info := range []request.Info{{Verb: "get", Path: "/a"}, {IsResource: true, Resource: "pods", Subresource: "scale"}} {
			if d := p.decide(&request.User{Name: "a"}, &info); d.level == "" {
				t.Error("a request without a level")
			}
		}
	})
}
