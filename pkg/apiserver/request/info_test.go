package request

import (
	"net/http"
	"net/http/httptest"
	"net/url"
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

func FuzzParse(f *testing.F) {
	f.Add("GET", "/api/v1/namespaces/a/pods/b/proxy/x")
	f.Add("DELETE", "/apis/apps/v1/watch//")
	f.Fuzz(func(t *testing.T, method, path string) {
		u, err := url.Parse(path)
		if err != nil {
			return
		}
		Parse(&http.Request{Method: method, URL: u})
	})
}
