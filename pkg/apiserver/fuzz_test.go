package apiserver_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func FuzzContinue(f *testing.F) {
	w := start(f)
	fill(w, 3)
	f.Add(`{"v":"meta.k8s.io/v1","rv":5,"start":"default/cm-00"}`)
	f.Add(`{"v":"meta.k8s.io/v1","rv":-1,"start":"../../x","left":-3}`)
	f.Fuzz(func(t *testing.T, token string) {
		for _, text := range []string{token, base64.RawURLEncoding.EncodeToString([]byte(token))} {
			notTheServersFault(t, w, "GET", cms+"?limit=1&continue="+url.QueryEscape(text), "", "")
		}
	})
}

func FuzzSelectors(f *testing.F) {
	w := start(f)
	f.Add("a in (b)", "metadata.name=x", "5", "Exact", "1")
	f.Fuzz(func(t *testing.T, labels, fields, version, match, limit string) {
		if version > "0" && version < ":" { // a version to come would be waited for
			version = "1"
		}
		q := url.Values{"labelSelector": {labels}, "fieldSelector": {fields}, "resourceVersion": {version}, "resourceVersionMatch": {match}, "limit": {limit}}
		notTheServersFault(t, w, "GET", cms+"?"+q.Encode(), "", "")
	})
}

func FuzzBodies(f *testing.F) {
	w := start(f)
	must[any](w, 201, "POST", cms, jsonType, configMap("x"))
	for _, body := range []string{configMap("y"), "metadata: {name: z}", `[{"op":"add","path":"/data/b","value":"c"}]`, `{"data":{"$patch":"replace"}}`, `{"spec":{"replicas":3}}`} {
		for kind := range 7 {
			f.Add(body, kind)
		}
	}
	f.Fuzz(func(t *testing.T, body string, kind int) {
		const dry = "?dryRun=All&fieldManager=f"
		switch uint(kind) % 7 {
		case 0:
			notTheServersFault(t, w, "POST", cms+dry, jsonType, body)
		case 1:
			notTheServersFault(t, w, "POST", cms+dry, yamlType, body)
		case 2:
			notTheServersFault(t, w, "POST", cms+dry, protoType, body)
		case 3:
			notTheServersFault(t, w, "PATCH", cms+"/x"+dry, jsonPatch, body)
		case 4:
			notTheServersFault(t, w, "PATCH", cms+"/x"+dry, mergeType, body)
		case 5:
			notTheServersFault(t, w, "PATCH", cms+"/x"+dry, smpType, body)
		case 6:
			notTheServersFault(t, w, "PATCH", cms+"/x"+dry, applyType, body)
		}
	})
}

func notTheServersFault(t *testing.T, w *world, method, path, contentType, body string) {
	t.Helper()
	var r *http.Request
	if body == "" {
		r = httptest.NewRequest(method, path, http.NoBody)
	} else {
		r = httptest.NewRequest(method, path, strings.NewReader(body))
	}
	r.Header.Set("Content-Type", contentType)
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, r)
	if rec.Code >= 500 && rec.Code != http.StatusGatewayTimeout {
		t.Fatalf("%s %s %q: %d %s", method, path, body, rec.Code, rec.Body)
	}
}
