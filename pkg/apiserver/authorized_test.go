package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
)

// witness is an authorizer that allows everything and records the attributes of
// each decision.
type witness struct {
	mu    sync.Mutex
	asked []request.Info
}

func (v *witness) Authorize(_ context.Context, u *request.User, info *request.Info) (authz.Decision, string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if u.Name == "witnessed" {
		v.asked = append(v.asked, *info)
	}
	return authz.Allow, ""
}

func (v *witness) take() []request.Info {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := v.asked
	v.asked = nil
	return out
}

// place identifies an object as far as authorization distinguishes objects.
type place struct{ resource, namespace, name string }

// witnessed are the resources under test, with the API prefix of each.
var witnessed = map[string]string{
	"namespaces": "/api/v1", "nodes": "/api/v1", "secrets": "/api/v1", "leases": "/apis/coordination.k8s.io/v1",
}

func startWitnessed(t *testing.T) (*world, *witness) {
	v := &witness{}
	w := start(t, func(cfg *apiserver.Config) { cfg.Authorizer = v })
	for _, name := range []string{"mine", "theirs"} {
		w.do("POST", "/api/v1/namespaces", jsonType, `{"metadata":{"name":"`+name+`"}}`)
	}
	w.fill()
	return w, v
}

// fill creates the test's objects that are missing.
func (w *world) fill() {
	w.do("POST", "/api/v1/nodes", jsonType, `{"metadata":{"name":"a"}}`)
	w.do("POST", "/api/v1/nodes", jsonType, `{"metadata":{"name":"b"}}`)
	for _, ns := range []string{"mine", "theirs"} {
		for _, name := range []string{"a", "b"} {
			w.do("POST", "/api/v1/namespaces/"+ns+"/secrets", jsonType, `{"metadata":{"name":"`+name+`","labels":{"l":"v"}}}`)
			w.do("POST", "/apis/coordination.k8s.io/v1/namespaces/"+ns+"/leases", jsonType, `{"metadata":{"name":"`+name+`","labels":{"l":"v"}}}`)
		}
	}
}

// revision returns the store's revision, which every write changes.
func (w *world) revision() int64 {
	rev, err := w.store.Revision(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return rev
}

// versions returns the existing objects and their resource versions.
func (w *world) versions() map[place]string {
	out := map[place]string{}
	for resource, api := range witnessed {
		for p, version := range places(resource, w.do("GET", api+"/"+resource, "", "").Body.Bytes()) {
			if p.namespace != "" && p.namespace != "mine" && p.namespace != "theirs" {
				continue // objects of the server, which change by themselves
			}
			out[p] = version
		}
	}
	return out
}

// places returns the objects in a response: an object, a list, or watch events.
func places(resource string, body []byte) map[place]string {
	type object struct {
		Kind     string
		Metadata struct{ Name, Namespace, ResourceVersion string }
	}
	out := map[place]string{}
	note := func(o object) {
		if o.Kind != "Status" && (o.Metadata.Name != "" || o.Metadata.Namespace != "") {
			out[place{resource, o.Metadata.Namespace, o.Metadata.Name}] = o.Metadata.ResourceVersion
		}
	}
	for d := json.NewDecoder(strings.NewReader(string(body))); ; {
		var answer struct {
			object
			Items  []object
			Object *object
		}
		if d.Decode(&answer) != nil {
			return out
		}
		note(answer.object)
		if answer.Object != nil {
			note(*answer.Object)
		}
		for _, item := range answer.Items {
			note(item)
		}
	}
}

// covers reports whether permission for info includes an object.
func covers(info request.Info, p place) bool {
	if !info.IsResource || info.Resource != p.resource {
		return false
	}
	if info.Namespace != "" && info.Namespace != p.namespace && (p.resource != "namespaces" || info.Namespace != p.name) {
		return false
	}
	return info.Name == "" || info.Name == p.name
}

func coveredBy(asked []request.Info, p place, verbs ...string) bool {
	return slices.ContainsFunc(asked, func(info request.Info) bool { return slices.Contains(verbs, info.Verb) && covers(info, p) })
}

// shapes returns valid and invalid paths of a resource.
func shapes(resource, api string) []string {
	return []string{
		api + "/" + resource, api + "/" + resource + "/", api + "/" + resource + "/a", api + "/" + resource + "//a",
		api + "/namespaces/mine/" + resource, api + "/namespaces/mine/" + resource + "/a", api + "/namespaces/mine/" + resource + "/theirs",
		api + "/namespaces/mine/" + resource + "/mine", api + "/namespaces//" + resource, api + "/namespaces/mine/" + resource + "//status",
		api + "/namespaces/mine/namespaces/theirs/" + resource + "/a",
		api + "/watch/" + resource, api + "/watch/" + resource + "/a", api + "/watch/" + resource + "/mine",
		api + "/watch/namespaces/mine/" + resource, api + "/watch/namespaces/mine/" + resource + "/a",
		api + "/watch/namespaces/mine/" + resource + "/theirs", api + "/watch/watch/" + resource,
	}
}

var selectors = []string{
	"", "fieldSelector=metadata.name%3Da", "fieldSelector=metadata.name%3Db", "fieldSelector=metadata.name!%3Da", "fieldSelector=metadata.name!%3Dx",
	"fieldSelector=metadata.name%3Da,metadata.name%3Db", "fieldSelector=metadata.name%3Da&fieldSelector=metadata.name%3Db",
	"fieldSelector=metadata.namespace%3Dtheirs", "fieldSelector=metadata.name%3Da,metadata.namespace%3Dtheirs",
	"fieldSelector=type%3DOpaque", "fieldSelector=metadata.name%3Da,type%3DOpaque", "fieldSelector=metadata.name%3Dtheirs",
	"fieldSelector=metadata.name%3Dtheirs%2Fa", "field%53elector=metadata.name%3Da", "labelSelector=l%3Dv", "labelSelector=l%3Dv&fieldSelector=metadata.name!%3Dx",
	"fieldSelector=%25", "fieldSelector=metadata.name",
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "LIST", "WATCH", "DELETECOLLECTION", "list", "get", "PROPFIND", "TRACE", "CONNECT"}

// The server serves what it has authorized: over all methods, path shapes and
// selectors, every object in a response was authorized under a verb that reads
// it, and every changed object under a verb that writes it.
func TestServedIsAuthorized(t *testing.T) {
	w, v := startWitnessed(t)
	before, revision := w.versions(), w.revision()
	seen := map[int]int{}
	for _, resource := range slices.Sorted(maps.Keys(witnessed)) {
		for _, path := range shapes(resource, witnessed[resource]) {
			for _, method := range methods {
				for _, query := range append(selectors, "watch=1", "watch=1&fieldSelector=metadata.name!%3Dx") {
					target := path + "?timeoutSeconds=1&" + query
					v.take()
					rec := w.once(method, target, resource)
					seen[rec.Code]++
					asked := v.take()
					for p := range places(resource, rec.Body.Bytes()) {
						if !coveredBy(asked, p, "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection") {
							t.Errorf("%s %s: %d serves %v, authorized was %+v", method, target, rec.Code, p, asked)
						}
					}
					if w.revision() != revision {
						before = w.checkChanges(fmt.Sprint(method, " ", target), before, asked)
						revision = w.revision()
					}
				}
			}
		}
	}
	for _, code := range []int{200, 400, 404, 405} {
		if seen[code] == 0 {
			t.Errorf("answers %v: none of %d, the test tries too little", seen, code)
		}
	}
}

// once sends one request as the test's user; a watch ends after its initial
// events.
func (w *world) once(method, target, resource string) *httptest.ResponseRecorder {
	body, media := "", ""
	switch method {
	case "POST", "PUT":
		body, media = `{"metadata":{"name":"made"}}`, jsonType
	case "PATCH":
		body, media = `{"metadata":{"labels":{"x":"`+fmt.Sprint(time.Now().UnixNano())+`"}}}`, mergeType
	}
	r := httptest.NewRequest("GET", target, strings.NewReader(body))
	r.Method = method
	r.Header.Set("X-User", "witnessed")
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	ctx, cancel := context.WithTimeout(w.Context(), 5*time.Second)
	defer cancel()
	rec := httptest.NewRecorder()
	if info := request.Parse(r); info.Verb != "watch" {
		w.handler.ServeHTTP(rec, r.WithContext(ctx))
		return rec
	}
	r.URL.RawQuery += "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	w.handler.ServeHTTP(&untilBookmark{rec, cancel}, r.WithContext(ctx))
	return rec
}

// untilBookmark ends a watch after the bookmark that follows its initial
// events.
type untilBookmark struct {
	*httptest.ResponseRecorder
	end context.CancelFunc
}

func (u *untilBookmark) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "BOOKMARK") {
		defer u.end()
	}
	return u.ResponseRecorder.Write(p)
}

// checkChanges checks that each changed object was authorized for a write,
// recreates missing objects, and returns the current state.
func (w *world) checkChanges(what string, before map[place]string, asked []request.Info) map[place]string {
	now := w.versions()
	if maps.Equal(before, now) {
		return now
	}
	for p, version := range before {
		switch got, ok := now[p]; {
		case !ok && !coveredBy(asked, p, "delete", "deletecollection"):
			w.Errorf("%s deletes %v, authorized was %+v", what, p, asked)
		case ok && got != version && !coveredBy(asked, p, "update", "patch", "delete", "deletecollection"):
			w.Errorf("%s changes %v, authorized was %+v", what, p, asked)
		}
	}
	for p := range now {
		if _, ok := before[p]; !ok && !coveredBy(asked, p, "create") && !coveredBy(asked, place{p.resource, p.namespace, ""}, "create") {
			w.Errorf("%s creates %v, authorized was %+v", what, p, asked)
		}
	}
	w.do("DELETE", "/api/v1/nodes/made", "", "")
	w.fill()
	return w.versions()
}
