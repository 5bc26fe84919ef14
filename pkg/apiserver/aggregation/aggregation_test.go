package aggregation

import (
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
)

func TestDecide(t *testing.T) {
	s := func(label string) *apiregistrationv1.APIService {
		out := &apiregistrationv1.APIService{}
		if label != "" {
			out.Labels = map[string]string{managedLabel: label}
		}
		return out
	}
	for name, row := range map[string]struct {
		have, want      *apiregistrationv1.APIService
		atStart, synced bool
		do              action
	}{
		"neither":                            {do: nothing},
		"missing, built in":                  {want: s(onStart), do: create},
		"deleted, built in":                  {want: s(onStart), synced: true, do: nothing},
		"missing, custom":                    {want: s(always), do: create},
		"deleted, custom":                    {want: s(always), synced: true, do: create},
		"a user's":                           {have: s(""), want: s(always), atStart: true, do: nothing},
		"a user's, not wanted":               {have: s(""), atStart: true, do: nothing},
		"another value":                      {have: s("maybe"), atStart: true, do: nothing},
		"another server's, newer":            {have: s(onStart), do: nothing},
		"built in, gone":                     {have: s(onStart), atStart: true, do: remove},
		"built in, gone, handled":            {have: s(onStart), atStart: true, synced: true, do: nothing},
		"built in, of an earlier version":    {have: s(onStart), want: s(onStart), atStart: true, do: update},
		"built in, changed by a user":        {have: s(onStart), want: s(onStart), atStart: true, synced: true, do: nothing},
		"custom, gone":                       {have: s(always), synced: true, do: remove},
		"custom, changed by a user":          {have: s(always), want: s(always), synced: true, do: update},
		"custom, now built in":               {have: s(always), want: s(onStart), atStart: true, do: update},
		"custom, now built in, by a user":    {have: s(always), want: s(onStart), atStart: true, synced: true, do: nothing},
		"built in, now custom":               {have: s(onStart), want: s(always), atStart: true, do: update},
		"built in since the start, now gone": {have: s(onStart), synced: true, do: nothing},
	} {
		if got := decide(row.have, row.want, row.atStart, row.synced); got != row.do {
			t.Errorf("%s: %d, want %d", name, got, row.do)
		}
	}
}

// lower is what happens to letters in the names of headers: others than ASCII's are escaped.
func lower(r rune) rune {
	if 'A' <= r && r <= 'Z' {
		return r + 'a' - 'A'
	}
	return r
}

// Whatever a client sends, the other server sees one user: the authenticated one.
func FuzzIdentify(f *testing.F) {
	for _, name := range []string{"X-Remote-User", "x-remote-user", "X_Remote_User", "X-Remote_Group", "X-Remote-Extra-Scopes", "Authorization", "Impersonate-User", "X-Remote-Uid", "Accept"} {
		f.Add(name, "value", "example.com/scope")
	}
	f.Add("Accept", "value", "Ṟ")
	f.Fuzz(func(t *testing.T, name, value, key string) {
		h := http.Header{name: {value}}
		h.Add(name, value)
		user := &request.User{Name: "jane", Groups: []string{"dev"}, Extra: map[string][]string{key: {"v"}}}
		identify(h, user)
		for name, values := range h {
			plain := strings.ToLower(strings.ReplaceAll(name, "_", "-"))
			switch {
			case plain == "authorization" || strings.HasPrefix(plain, "impersonate-"):
				t.Errorf("%q is passed on", name)
			case !strings.HasPrefix(plain, "x-remote-"):
			case name == "X-Remote-User" && cmp.Equal(values, []string{"jane"}), name == "X-Remote-Group" && cmp.Equal(values, []string{"dev"}):
			case strings.HasPrefix(name, "X-Remote-Extra-") && cmp.Equal(values, []string{"v"}):
				if got := authn.ExtraKey(name[len("X-Remote-Extra-"):]); !strings.EqualFold(got, key) || utf8.ValidString(key) && got != strings.Map(lower, key) {
					t.Errorf("the extra %q arrives as %q", key, got)
				}
			default:
				t.Errorf("%q: %q", name, values)
			}
		}
	})
}

func TestPlainVersion(t *testing.T) {
	gv := schema.GroupVersion{Group: "g", Version: "v1"}
	got, err := plainVersion([]byte(`{"resources":[
		{"name":"a/scale","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale","verbs":["get"]},
		{"name":"a","singularName":"one","namespaced":true,"kind":"A","verbs":["list"],"shortNames":["x"],"categories":["all"]},
		{"name":"b/status","kind":"B","verbs":["get"]}]}`), gv)
	want := &apidiscoveryv2.APIVersionDiscovery{Version: "v1", Resources: []apidiscoveryv2.APIResourceDiscovery{
		{
			Resource: "a", SingularResource: "one", Scope: apidiscoveryv2.ScopeNamespace, Verbs: []string{"list"}, ShortNames: []string{"x"}, Categories: []string{"all"},
			ResponseKind: &metav1.GroupVersionKind{Group: "g", Version: "v1", Kind: "A"},
			Subresources: []apidiscoveryv2.APISubresourceDiscovery{{Subresource: "scale", ResponseKind: &metav1.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, Verbs: []string{"get"}}},
		},
		{
			Resource: "b", Scope: apidiscoveryv2.ScopeCluster, ResponseKind: &metav1.GroupVersionKind{},
			Subresources: []apidiscoveryv2.APISubresourceDiscovery{{Subresource: "status", ResponseKind: &metav1.GroupVersionKind{Group: "g", Version: "v1", Kind: "B"}, Verbs: []string{"get"}}},
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

// Documents of another server never cause a panic, and list every kind.
func FuzzDiscoveryDocuments(f *testing.F) {
	f.Add([]byte(`{"resources":[{"name":"a/b/c"},{"name":"a"},{"name":"/"},{"name":""}]}`))
	f.Add([]byte(`{"items":[{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[{"resource":"a","subresources":[{}]}]}]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		gv := schema.GroupVersion{Group: "g", Version: "v1"}
		for _, read := range []func([]byte, schema.GroupVersion) (*apidiscoveryv2.APIVersionDiscovery, error){plainVersion, aggregatedVersion} {
			got, err := read(body, gv)
			if err != nil {
				continue
			}
			if got.Version != "v1" || got.Resources == nil {
				t.Errorf("%+v", got)
			}
			for _, r := range got.Resources {
				if r.ResponseKind == nil {
					t.Errorf("%s has no kind", r.Resource)
				}
			}
		}
	})
}
