package apiserver_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"podium/pkg/apiserver"
)

// The answer to any bad input is a Status that explains the error; never a 500,
// never a panic.
func TestBadInput(t *testing.T) {
	w := start(t)
	must[any](w, 201, "POST", cms, jsonType, configMap("present"))
	stale := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"present","resourceVersion":"1"}}`
	deployment := func(spec string) string {
		return `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"x"},"spec":` + spec + `}`
	}
	const deployments = "/apis/apps/v1/namespaces/default/deployments"
	const pods = "/api/v1/namespaces/default/pods"
	good := `{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`
	type row struct {
		name, method, path, contentType, body string
		header                                []string
		code                                  int
		reason                                metav1.StatusReason
		message                               string // a part of it
		causes                                []string
	}
	for _, tc := range []row{
		{name: "malformed JSON", method: "POST", path: cms, contentType: jsonType, body: `{"kind":`, code: 400, reason: metav1.StatusReasonBadRequest, message: "cannot be handled as a ConfigMap"},
		{name: "no body", method: "POST", path: cms, contentType: jsonType, code: 400, reason: metav1.StatusReasonBadRequest, message: "unexpected end of JSON input"},
		{name: "JSON that is no object", method: "POST", path: cms, contentType: jsonType, body: `[1]`, code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "a number too far", method: "POST", path: deployments, contentType: jsonType, body: deployment(`{"replicas":99999999999999999999}`), code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "malformed YAML", method: "POST", path: cms, contentType: yamlType, body: "a: [", code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "malformed protobuf", method: "POST", path: cms, contentType: protoType, body: "k8s\x00\xff\xff", code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "JSON sent as protobuf", method: "POST", path: cms, contentType: protoType, body: configMap("x"), code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "unknown field, strict", method: "POST", path: deployments + "?fieldValidation=Strict", contentType: jsonType,
			body: deployment(`{"foo":1,` + good[1:]), code: 400, reason: metav1.StatusReasonBadRequest,
			message: `Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: unknown field "spec.foo"`},
		{name: "duplicate field, strict", method: "POST", path: cms + "?fieldValidation=Strict", contentType: jsonType,
			body: `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","name":"x"}}`, code: 400, reason: metav1.StatusReasonBadRequest,
			message: `strict decoding error: duplicate field "metadata.name"`},
		{name: "unknown field in YAML, strict", method: "POST", path: cms + "?fieldValidation=Strict", contentType: yamlType,
			body: "kind: ConfigMap\napiVersion: v1\nmetadata: {name: x}\nfoo: 1\n", code: 400, reason: metav1.StatusReasonBadRequest, message: `strict decoding error: unknown field "foo"`},
		{name: "bad fieldValidation", method: "POST", path: cms + "?fieldValidation=Maybe", contentType: jsonType, body: configMap("x"), code: 422, reason: metav1.StatusReasonInvalid, causes: []string{"fieldValidation"}},
		{name: "bad dryRun", method: "POST", path: cms + "?dryRun=Some", contentType: jsonType, body: configMap("x"), code: 422, reason: metav1.StatusReasonInvalid, causes: []string{"dryRun"}},
		{name: "wrong kind", method: "POST", path: cms, contentType: jsonType, body: `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x"}}`, code: 400, reason: metav1.StatusReasonBadRequest, message: `Secret in version "v1" cannot be handled as a ConfigMap`},
		{name: "wrong API version", method: "POST", path: cms, contentType: jsonType, body: `{"kind":"ConfigMap","apiVersion":"v2","metadata":{"name":"x"}}`, code: 400, reason: metav1.StatusReasonBadRequest, message: "the API version in the data (v2) does not match the expected API version (v1)"},
		{name: "resourceVersion on create", method: "POST", path: cms, contentType: jsonType, body: `{"metadata":{"name":"x","resourceVersion":"5"}}`, code: 400, reason: metav1.StatusReasonBadRequest, message: "resourceVersion should not be set on objects to be created"},
		{name: "bad name", method: "POST", path: cms, contentType: jsonType, body: configMap("Not_A_Name"), code: 422, reason: metav1.StatusReasonInvalid, causes: []string{"metadata.name"}},
		{name: "no name", method: "POST", path: cms, contentType: jsonType, body: `{"metadata":{}}`, code: 422, reason: metav1.StatusReasonInvalid, message: "name or generateName is required", causes: []string{"metadata.name"}},
		{name: "bad label", method: "POST", path: cms, contentType: jsonType, body: `{"metadata":{"name":"x","labels":{"a b":"c"}}}`, code: 422, reason: metav1.StatusReasonInvalid, causes: []string{"metadata.labels"}},
		{name: "bad annotation", method: "POST", path: cms, contentType: jsonType, body: `{"metadata":{"name":"x","annotations":{"/":"c"}}}`, code: 422, reason: metav1.StatusReasonInvalid, causes: []string{"metadata.annotations", "metadata.annotations"}},
		{name: "bad owner", method: "POST", path: cms, contentType: jsonType, body: `{"metadata":{"name":"x","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p"}]}}`, code: 422, reason: metav1.StatusReasonInvalid, causes: []string{"metadata.ownerReferences.uid"}},
		{name: "bad finalizer", method: "POST", path: cms, contentType: jsonType, body: `{"metadata":{"name":"x","finalizers":["a b"]}}`, code: 422, reason: metav1.StatusReasonInvalid, causes: []string{"metadata.finalizers"}},
		{name: "required fields missing", method: "POST", path: deployments, contentType: jsonType, body: deployment(`{}`), code: 422, reason: metav1.StatusReasonInvalid, causes: []string{"spec.selector"}},
		{name: "another namespace", method: "POST", path: cms, contentType: jsonType, body: `{"metadata":{"name":"x","namespace":"other"}}`, code: 400, reason: metav1.StatusReasonBadRequest, message: "the namespace of the provided object does not match the namespace sent on the request"},
		{name: "namespace not there", method: "POST", path: "/api/v1/namespaces/nowhere/configmaps", contentType: jsonType, body: configMap("x"), code: 404, reason: metav1.StatusReasonNotFound, message: `namespaces "nowhere" not found`},
		{name: "exists already", method: "POST", path: cms, contentType: jsonType, body: configMap("present"), code: 409, reason: metav1.StatusReasonAlreadyExists, message: `configmaps "present" already exists`},
		{name: "stale update", method: "PUT", path: cms + "/present", contentType: jsonType, body: stale, code: 409, reason: metav1.StatusReasonConflict,
			message: `Operation cannot be fulfilled on configmaps "present": the object has been modified; please apply your changes to the latest version and try again`},
		{name: "stale patch", method: "PATCH", path: cms + "/present", contentType: mergeType, body: `{"metadata":{"resourceVersion":"1"}}`, code: 409, reason: metav1.StatusReasonConflict},
		{name: "another UID", method: "PUT", path: cms + "/present", contentType: jsonType, body: `{"metadata":{"name":"present","uid":"abc"}}`, code: 409, reason: metav1.StatusReasonConflict, message: "Precondition failed: UID in precondition: abc"},
		{name: "name and URL differ", method: "PUT", path: cms + "/present", contentType: jsonType, body: configMap("other"), code: 400, reason: metav1.StatusReasonBadRequest, message: "the name of the object (other) does not match the name on the URL (present)"},
		{name: "update of nothing", method: "PUT", path: cms + "/absent", contentType: jsonType, body: configMap("absent"), code: 404, reason: metav1.StatusReasonNotFound, message: `configmaps "absent" not found`},
		{name: "too large", method: "POST", path: cms, contentType: jsonType, body: `{"data":{"a":"` + strings.Repeat("x", 3<<20) + `"}}`, code: 413, reason: metav1.StatusReasonRequestEntityTooLarge, message: "limit is 3145728"},
		{name: "too large for the store", method: "POST", path: deployments, contentType: jsonType,
			body: deployment(strings.Replace(good, `"image":"i"`, `"image":"i","args":["`+strings.Repeat("x", 1500<<10)+`"]`, 1)), code: 413, reason: metav1.StatusReasonRequestEntityTooLarge},
		{name: "unsupported body", method: "POST", path: cms, contentType: "text/plain", body: "x", code: 415, reason: metav1.StatusReasonUnsupportedMediaType, message: "accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		{name: "unsupported patch", method: "PATCH", path: cms + "/present", contentType: jsonType, body: "{}", code: 415, reason: metav1.StatusReasonUnsupportedMediaType, message: "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml"},
		{name: "unacceptable answer", method: "GET", path: cms + "/present", header: []string{"Accept", "text/html"}, code: 406, reason: metav1.StatusReasonNotAcceptable, message: "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		{name: "a watch as YAML", method: "GET", path: cms + "?watch=1", header: []string{"Accept", yamlType}, code: 406, reason: metav1.StatusReasonNotAcceptable},
		{name: "a table as protobuf", method: "GET", path: cms, header: []string{"Accept", protoType + ";as=Table;g=meta.k8s.io;v=v1"}, code: 406, reason: metav1.StatusReasonNotAcceptable},
		{name: "unknown resource", method: "GET", path: "/api/v1/namespaces/default/widgets", code: 404, reason: metav1.StatusReasonNotFound, message: "the server could not find the requested resource"},
		{name: "unknown group", method: "GET", path: "/apis/example.com/v1/widgets", code: 404, reason: metav1.StatusReasonNotFound},
		{name: "unknown subresource", method: "GET", path: cms + "/present/status", code: 404, reason: metav1.StatusReasonNotFound},
		{name: "unknown page", method: "GET", path: "/foo", code: 404, reason: metav1.StatusReasonNotFound},
		{name: "a namespace where there is none", method: "GET", path: "/api/v1/namespaces/default/nodes", code: 404, reason: metav1.StatusReasonNotFound},
		{name: "no namespace where there is one", method: "GET", path: "/api/v1/configmaps/present", code: 404, reason: metav1.StatusReasonNotFound},
		{name: "wrong method", method: "PUT", path: cms, contentType: jsonType, body: configMap("x"), code: 405, reason: metav1.StatusReasonMethodNotAllowed},
		{name: "no such method", method: "BREW", path: cms, code: 405, reason: metav1.StatusReasonMethodNotAllowed},
		{name: "post to an object", method: "POST", path: cms + "/present", contentType: jsonType, body: configMap("x"), code: 405, reason: metav1.StatusReasonMethodNotAllowed},
		{name: "bad label selector", method: "GET", path: cms + "?labelSelector=a%20in%20(", code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "bad field selector", method: "GET", path: cms + "?fieldSelector=a", code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "unsupported field", method: "GET", path: pods + "?fieldSelector=spec.foo%3Dbar", code: 400, reason: metav1.StatusReasonBadRequest, message: "field label not supported: spec.foo"},
		{name: "unsupported field of a kind that has none", method: "GET", path: deployments + "?fieldSelector=foo%3Dbar", code: 400, reason: metav1.StatusReasonBadRequest, message: `"foo" is not a known field selector: only "metadata.name", "metadata.namespace"`},
		{name: "bad limit", method: "GET", path: cms + "?limit=many", code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "bad token", method: "GET", path: cms + "?limit=1&continue=%21", code: 400, reason: metav1.StatusReasonBadRequest, message: "continue key is not valid"},
		{name: "version and token", method: "GET", path: cms + "?resourceVersion=5&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiJkZWZhdWx0L2EifQ", code: 400, reason: metav1.StatusReasonBadRequest, message: "specifying resource version is not allowed when using continue"},
		{name: "bad version", method: "GET", path: cms + "?resourceVersion=new", code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "bad version of a get", method: "GET", path: cms + "/present?resourceVersion=-1", code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "match without version", method: "GET", path: cms + "?resourceVersionMatch=Exact", code: 422, reason: metav1.StatusReasonInvalid, causes: []string{"resourceVersionMatch"}},
		{name: "exactly anything", method: "GET", path: cms + "?resourceVersionMatch=Exact&resourceVersion=0", code: 422, reason: metav1.StatusReasonInvalid, causes: []string{"resourceVersionMatch"}},
		{name: "initial events without match", method: "GET", path: cms + "?watch=1&sendInitialEvents=true", code: 422, reason: metav1.StatusReasonInvalid, causes: []string{"resourceVersionMatch"}},
		{name: "initial events of a list", method: "GET", path: cms + "?sendInitialEvents=true", code: 422, reason: metav1.StatusReasonInvalid, causes: []string{"sendInitialEvents"}},
		{name: "bad includeObject", method: "GET", path: cms + "?includeObject=Some", header: []string{"Accept", "application/json;as=Table;g=meta.k8s.io;v=v1"}, code: 422, reason: metav1.StatusReasonInvalid, causes: []string{"includeObject"}},
		{name: "malformed JSON patch", method: "PATCH", path: cms + "/present", contentType: jsonPatch, body: `{`, code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "JSON patch of nothing", method: "PATCH", path: cms + "/present", contentType: jsonPatch, body: `[{"op":"remove","path":"/data/zzz"}]`, code: 422, reason: metav1.StatusReasonInvalid, message: "the server rejected our request due to an error in our request"},
		{name: "JSON patch test fails", method: "PATCH", path: cms + "/present", contentType: jsonPatch, body: `[{"op":"test","path":"/data/a","value":"2"}]`, code: 422, reason: metav1.StatusReasonInvalid},
		{name: "JSON patch to a wrong type", method: "PATCH", path: cms + "/present", contentType: jsonPatch, body: `[{"op":"add","path":"/data/a","value":2}]`, code: 422, reason: metav1.StatusReasonInvalid, causes: []string{"patch"}},
		{name: "JSON patch too long", method: "PATCH", path: cms + "/present", contentType: jsonPatch, body: "[" + strings.Repeat(`{"op":"remove","path":"/a"},`, 10000) + `{"op":"remove","path":"/a"}]`, code: 413, reason: metav1.StatusReasonRequestEntityTooLarge, message: "The allowed maximum operations in a JSON patch is 10000, got 10001"},
		{name: "malformed merge patch", method: "PATCH", path: cms + "/present", contentType: mergeType, body: `{"a"`, code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "merge patch that is null", method: "PATCH", path: cms + "/present", contentType: mergeType, body: `null`, code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "merge patch to a wrong type", method: "PATCH", path: cms + "/present", contentType: mergeType, body: `{"data":"x"}`, code: 422, reason: metav1.StatusReasonInvalid, causes: []string{"patch"}},
		{name: "merge patch with an unknown field, strict", method: "PATCH", path: cms + "/present?fieldValidation=Strict", contentType: mergeType, body: `{"metadata":{"foo":"x"}}`, code: 422, reason: metav1.StatusReasonInvalid, message: `strict decoding error: unknown field "metadata.foo"`},
		{name: "patch that renames", method: "PATCH", path: cms + "/present", contentType: mergeType, body: `{"metadata":{"name":"y"}}`, code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "patch of another kind", method: "PATCH", path: cms + "/present", contentType: mergeType, body: `{"kind":"Secret"}`, code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "strategic patch that makes no sense", method: "PATCH", path: cms + "/present", contentType: smpType, body: `{"data":{"$patch":"explode"}}`, code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "force without apply", method: "PATCH", path: cms + "/present?force=true", contentType: mergeType, body: `{}`, code: 422, reason: metav1.StatusReasonInvalid, causes: []string{"force"}},
		{name: "apply without manager", method: "PATCH", path: cms + "/present", contentType: applyType, body: configMap("present"), code: 422, reason: metav1.StatusReasonInvalid, message: "is required for apply patch", causes: []string{"fieldManager"}},
		{name: "apply of nothing", method: "PATCH", path: cms + "/present?fieldManager=m", contentType: applyType, body: ``, code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "apply of malformed YAML", method: "PATCH", path: cms + "/present?fieldManager=m", contentType: applyType, body: `a: [`, code: 400, reason: metav1.StatusReasonBadRequest, message: "error decoding YAML"},
		{name: "apply of a list", method: "PATCH", path: cms + "/present?fieldManager=m", contentType: applyType, body: `[1]`, code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "apply with strange metadata", method: "PATCH", path: cms + "/present?fieldManager=m", contentType: applyType, body: `{"kind":"ConfigMap","apiVersion":"v1","metadata":[1]}`, code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "apply of another version", method: "PATCH", path: cms + "/present?fieldManager=m", contentType: applyType, body: `{"kind":"ConfigMap","apiVersion":"v2"}`, code: 400, reason: metav1.StatusReasonBadRequest, message: "Incorrect version specified in apply patch. Specified patch version: v2, expected: v1"},
		{name: "apply of an unknown field", method: "PATCH", path: cms + "/present?fieldManager=m", contentType: applyType, body: `{"kind":"ConfigMap","apiVersion":"v1","foo":1}`, code: 400, reason: metav1.StatusReasonBadRequest, message: ".foo: field not declared in schema"},
		{name: "a limit of nothing", method: "POST", path: "/api/v1/namespaces/default/limitranges", contentType: jsonType, body: `{"metadata":{"name":"x"},"spec":{"limits":[{"type":"Thing","max":{"cpu":"1"},"min":{"cpu":"2"}}]}}`,
			code: 422, reason: metav1.StatusReasonInvalid, causes: []string{"spec.limits.type", "spec.limits.min[cpu]"}},
		{name: "a limit that is no quantity", method: "POST", path: "/api/v1/namespaces/default/limitranges", contentType: jsonType, body: `{"metadata":{"name":"x"},"spec":{"limits":[{"type":"Pod","max":{"cpu":"much"}}]}}`, code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "a quota of nothing", method: "POST", path: quotaPath, contentType: jsonType, body: `{"metadata":{"name":"x"},"spec":{"hard":{"things":"1","pods":"-1"},"scopes":["Never"]}}`,
			code: 422, reason: metav1.StatusReasonInvalid, causes: []string{"spec.hard[things]", "spec.hard[pods]", "spec.scopes"}},
		{name: "delete of nothing", method: "DELETE", path: cms + "/absent", code: 404, reason: metav1.StatusReasonNotFound},
		{name: "delete with bad options", method: "DELETE", path: cms + "/present", contentType: jsonType, body: `{"propagationPolicy":"Sideways"}`, code: 422, reason: metav1.StatusReasonInvalid, causes: []string{"propagationPolicy"}},
		{name: "delete with malformed options", method: "DELETE", path: cms + "/present", contentType: jsonType, body: `{"gracePeriodSeconds":"x"}`, code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "delete with an object for options", method: "DELETE", path: cms + "/present", contentType: jsonType, body: configMap("present"), code: 400, reason: metav1.StatusReasonBadRequest},
		{name: "delete of another UID", method: "DELETE", path: cms + "/present", contentType: jsonType, body: `{"preconditions":{"uid":"abc"}}`, code: 409, reason: metav1.StatusReasonConflict, message: "the UID in the precondition (abc) does not match the UID in record"},
		{name: "delete of another version", method: "DELETE", path: cms + "/present", contentType: jsonType, body: `{"preconditions":{"resourceVersion":"1"}}`, code: 409, reason: metav1.StatusReasonConflict, message: "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record"},
		{name: "delete of an immortal namespace", method: "DELETE", path: "/api/v1/namespaces/default", code: 403, reason: metav1.StatusReasonForbidden, message: `namespaces "default" is forbidden: this namespace may not be deleted`},
		{name: "not allowed", method: "GET", path: pods, header: []string{"X-User", "joe"}, code: 403, reason: metav1.StatusReasonForbidden,
			message: `pods is forbidden: User "joe" cannot list resource "pods" in API group "" in the namespace "default"`},
		{name: "not allowed to be someone else", method: "GET", path: "/version", header: []string{"X-User", "joe", "Impersonate-User", "ann"}, code: 403, reason: metav1.StatusReasonForbidden, message: `User "joe" cannot impersonate-on:user-info:get path "/version"`},
		{name: "a group without a user", method: "GET", path: "/version", header: []string{"Impersonate-Group", "g"}, code: 400, reason: metav1.StatusReasonBadRequest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec := w.do(tc.method, tc.path, tc.contentType, tc.body, tc.header...)
			var status metav1.Status
			if err := yaml.Unmarshal(rec.Body.Bytes(), &status); err != nil || status.Kind != "Status" || status.Status != "Failure" {
				t.Fatalf("no Status (%v): %d %s", err, rec.Code, rec.Body)
			}
			if rec.Code != tc.code || int(status.Code) != tc.code {
				t.Errorf("code %d, in the Status %d, want %d: %s", rec.Code, status.Code, tc.code, status.Message)
			}
			if tc.reason != "" && status.Reason != tc.reason {
				t.Errorf("reason %s, want %s: %s", status.Reason, tc.reason, status.Message)
			}
			if !strings.Contains(status.Message, tc.message) {
				t.Errorf("message %q does not have %q", status.Message, tc.message)
			}
			if tc.code == 405 && rec.Header().Get("Allow") == "" {
				t.Error("405 without Allow")
			}
			if tc.causes != nil {
				fields := map[string]bool{}
				if status.Details != nil {
					for _, c := range status.Details.Causes {
						fields[strings.NewReplacer("[0]", "").Replace(c.Field)] = true
					}
				}
				for _, want := range tc.causes {
					if !fields[want] {
						t.Errorf("no cause for %s in %+v", want, status.Details)
					}
				}
			}
		})
	}
	t.Run("truncated body", func(t *testing.T) {
		r := httptest.NewRequest("POST", cms, bytes.NewReader([]byte(configMap("x")[:20])))
		r.ContentLength = 100
		r.Header.Set("Content-Type", jsonType)
		rec := httptest.NewRecorder()
		w.handler.ServeHTTP(rec, r)
		if rec.Code != 400 || !strings.Contains(rec.Body.String(), "could not be read") {
			t.Errorf("%d %s", rec.Code, rec.Body)
		}
	})
	t.Run("a watch from a compacted revision", func(t *testing.T) {
		ctx := context.Background()
		rev, err := w.store.Revision(ctx)
		if err == nil {
			err = w.store.Compact(ctx, rev)
		}
		if err != nil {
			t.Fatal(err)
		}
		// A newly started server has no history in its watch cache.
		late := start(t, func(cfg *apiserver.Config) { cfg.Store = w.store })
		for _, query := range []string{"?watch=1&resourceVersion=1&timeoutSeconds=5", "?resourceVersionMatch=Exact&resourceVersion=1"} {
			rec := late.do("GET", cms+query, "", "")
			if !strings.Contains(rec.Body.String(), `"reason":"Expired"`) || !strings.Contains(rec.Body.String(), `"code":410`) {
				t.Errorf("%s: %d %s", query, rec.Code, rec.Body)
			}
		}
	})
	if rec := w.do("GET", cms+"/present", "", ""); rec.Code != 200 {
		t.Errorf("bad input has changed what is there: %s", fmt.Sprint(rec.Body))
	}
}

func TestUnknownFieldsAreWarnedAbout(t *testing.T) {
	w := start(t)
	for _, tc := range []struct{ method, path, contentType, body, want string }{
		{"POST", cms, jsonType, `{"metadata":{"name":"a"},"foo":1}`, `299 - "unknown field \"foo\""`},
		{"POST", cms, yamlType, "metadata: {name: b}\nfoo: 1", `299 - "unknown field \"foo\""`},
		{"PATCH", cms + "/a", mergeType, `{"bar":{}}`, `299 - "unknown field \"bar\""`},
		{"PATCH", cms + "/a", jsonPatch, `[{"op":"add","path":"/bar","value":1}]`, `299 - "unknown field \"bar\""`},
	} {
		rec := w.do(tc.method, tc.path, tc.contentType, tc.body)
		if rec.Code/100 != 2 || rec.Header().Get("Warning") != tc.want {
			t.Errorf("%s %s %s: %d, warning %q, want %q", tc.method, tc.path, tc.body, rec.Code, rec.Header().Get("Warning"), tc.want)
		}
		sep := "?"
		rec = w.do("POST", cms+sep+"fieldValidation=Ignore", jsonType, `{"metadata":{"generateName":"c"},"foo":1}`)
		if rec.Code != 201 || rec.Header().Get("Warning") != "" {
			t.Errorf("Ignore: %d %q", rec.Code, rec.Header().Get("Warning"))
		}
	}
}
