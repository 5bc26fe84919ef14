package request

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		method, url string
		want        Info
	}{
		{"GET", "/version", Info{Verb: "get"}},
		{"GET", "/api/v1", Info{Verb: "get"}},
		{"GET", "/apis/apps/v1", Info{Verb: "get"}},
		{"GET", "/api/v1/pods", Info{Verb: "list", IsResource: true, Version: "v1", Resource: "pods"}},
		{"GET", "/api/v1/pods?watch=true", Info{Verb: "watch", IsResource: true, Version: "v1", Resource: "pods"}},
		{"GET", "/api/v1/pods?watch=0", Info{Verb: "list", IsResource: true, Version: "v1", Resource: "pods"}},
		{"GET", "/api/v1/watch/namespaces/a/pods", Info{Verb: "watch", IsResource: true, Version: "v1", Resource: "pods", Namespace: "a"}},
		{"POST", "/api/v1/namespaces/a/pods", Info{Verb: "create", IsResource: true, Version: "v1", Resource: "pods", Namespace: "a"}},
		{"DELETE", "/api/v1/namespaces/a/pods", Info{Verb: "deletecollection", IsResource: true, Version: "v1", Resource: "pods", Namespace: "a"}},
		{"DELETE", "/api/v1/namespaces/a", Info{Verb: "delete", IsResource: true, Version: "v1", Resource: "namespaces", Namespace: "a", Name: "a"}},
		{"PUT", "/api/v1/namespaces/a/finalize", Info{Verb: "update", IsResource: true, Version: "v1", Resource: "namespaces", Namespace: "a", Name: "a", Subresource: "finalize"}},
		{"PATCH", "/apis/apps/v1/namespaces/a/deployments/b/scale", Info{Verb: "patch", IsResource: true, Group: "apps", Version: "v1", Resource: "deployments", Namespace: "a", Name: "b", Subresource: "scale"}},
		{"GET", "/api/v1/namespaces/a/pods/b/proxy/x/y/", Info{Verb: "get", IsResource: true, Version: "v1", Resource: "pods", Namespace: "a", Name: "b", Subresource: "proxy", Rest: "/x/y/"}},
		{"GET", "/api/v1/nodes/b/proxy/metrics", Info{Verb: "get", IsResource: true, Version: "v1", Resource: "nodes", Name: "b", Subresource: "proxy", Rest: "/metrics"}},
		{"GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Db", Info{Verb: "list", IsResource: true, Version: "v1", Resource: "pods", Namespace: "a", Name: "b", FieldSelector: "metadata.name=b"}},
		{"LIST", "/api/v1/namespaces/a/secrets/b?fieldSelector=metadata.name!%3Dx", Info{IsResource: true, Version: "v1", Resource: "secrets", Namespace: "a", Name: "b"}},
		{"list", "/api/v1/secrets", Info{IsResource: true, Version: "v1", Resource: "secrets"}},
		{"DELETECOLLECTION", "/api/v1/namespaces/a/secrets/b", Info{IsResource: true, Version: "v1", Resource: "secrets", Namespace: "a", Name: "b"}},
		{"PROPFIND", "/version", Info{}},
		{"POST", "/api/v1/watch/namespaces/a/pods", Info{IsResource: true, Version: "v1", Resource: "pods", Namespace: "a"}},
		{"GET", "/api/v1/watch/namespaces/a/pods/b?fieldSelector=spec.nodeName%3Dn", Info{Verb: "watch", IsResource: true, Version: "v1", Resource: "pods", Namespace: "a", Name: "b", FieldSelector: "spec.nodeName=n"}},
		{"GET", "/api/v1/namespaces/a/pods?field%53elector=metadata.name%3Db", Info{Verb: "list", IsResource: true, Version: "v1", Resource: "pods", Namespace: "a", Name: "b", FieldSelector: "metadata.name=b"}},
		{"GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Db%2Fc", Info{Verb: "list", IsResource: true, Version: "v1", Resource: "pods", Namespace: "a", FieldSelector: "metadata.name=b/c"}},
		{"GET", "/api/v1/namespaces/a/pods/b?fieldSelector=metadata.name%3Dc", Info{Verb: "get", IsResource: true, Version: "v1", Resource: "pods", Namespace: "a", Name: "b"}},
		{"DELETE", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Db", Info{Verb: "deletecollection", IsResource: true, Version: "v1", Resource: "pods", Namespace: "a", FieldSelector: "metadata.name=b"}},
		{"GET", "/api/v1/pods?watch=1&labelSelector=a%3Db", Info{Verb: "watch", IsResource: true, Version: "v1", Resource: "pods", LabelSelector: "a=b"}},
	} {
		t.Run(tc.method+" "+tc.url, func(t *testing.T) {
			r := httptest.NewRequest(tc.method, tc.url, nil)
			tc.want.Path = r.URL.Path
			if diff := cmp.Diff(tc.want, Parse(r)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// FuzzParse checks the properties of Info that authorizers and handlers rely
// on.
func FuzzParse(f *testing.F) {
	f.Add("GET", "/api/v1/namespaces/a/pods/b/proxy/x")
	f.Add("DELETE", "/apis/apps/v1/watch//")
	f.Add("LIST", "/api/v1/namespaces/a/secrets/b?fieldSelector=metadata.name!%3Dx")
	f.Add("GET", "/api/v1/watch/namespaces/a/secrets/b?fieldSelector=type%3DOpaque")
	f.Add("PUT", "/api/v1/watch/namespaces/a/secrets/b")
	f.Add("GET", "/api/v1/secrets?watch=1&field%53elector=metadata.name%3Da,metadata.name%3Db")
	f.Fuzz(func(t *testing.T, method, path string) {
		u, err := url.Parse(path)
		if err != nil {
			return
		}
		info := Parse(&http.Request{Method: method, URL: u})
		if !KnownMethod(method) && info.Verb != "" {
			t.Errorf("the method %q is the verb %q", method, info.Verb)
		}
		if !info.IsResource {
			if info != (Info{Verb: info.Verb, Path: u.Path}) {
				t.Errorf("no resource, and yet %+v", info)
			}
			return
		}
		methods := map[string][]string{
			"": nil, "get": {"GET", "HEAD"}, "list": {"GET", "HEAD"}, "watch": {"GET", "HEAD"}, "create": {"POST"}, "update": {"PUT"},
			"patch": {"PATCH"}, "delete": {"DELETE"}, "deletecollection": {"DELETE"}, "options": {"OPTIONS"},
		}
		from, known := methods[info.Verb]
		if !known || info.Verb != "" && !slices.Contains(from, method) {
			t.Errorf("%s is the verb %q", method, info.Verb)
		}
		if info.Name == "" && (info.Verb == "get" || info.Verb == "delete") || info.Name != "" && info.Verb == "deletecollection" {
			t.Errorf("the verb %s of the name %q", info.Verb, info.Name)
		}
	})
}
