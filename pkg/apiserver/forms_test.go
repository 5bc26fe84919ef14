package apiserver_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/scheme"
)

func TestTables(t *testing.T) {
	w := start(t)
	fill(w, 2)
	const accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
	for _, tc := range []struct{ include, object string }{
		{"", "PartialObjectMetadata"}, {"Metadata", "PartialObjectMetadata"}, {"Object", "ConfigMap"}, {"None", ""},
	} {
		table := must[metav1.Table](w, 200, "GET", cms+"?includeObject="+tc.include, "", "", "Accept", accept)
		if table.Kind != "Table" || table.APIVersion != "meta.k8s.io/v1" || len(table.Rows) != 2 || len(table.ColumnDefinitions) == 0 || table.ResourceVersion == "" {
			t.Errorf("%+v", table)
		}
		var meta metav1.PartialObjectMetadata
		if raw := table.Rows[0].Object.Raw; string(raw) != "null" && len(raw) > 0 {
			if err := json.Unmarshal(raw, &meta); err != nil {
				t.Fatal(err)
			}
		}
		if meta.Kind != tc.object || tc.object != "" && meta.Name != "cm-00" {
			t.Errorf("includeObject=%s: %+v", tc.include, meta)
		}
	}
	one := must[metav1.Table](w, 200, "GET", cms+"/cm-01", "", "", "Accept", "application/json;as=Table;v=v1beta1;g=meta.k8s.io")
	if one.APIVersion != "meta.k8s.io/v1beta1" || len(one.Rows) != 1 || one.Rows[0].Cells[0] != "cm-01" {
		t.Errorf("%+v", one)
	}
}

func TestMetadataOnly(t *testing.T) {
	w := start(t)
	fill(w, 2)
	s := scheme.New()
	for _, media := range []string{jsonType, protoType} {
		rec := w.do("GET", cms, "", "", "Accept", media+";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
		obj, gvk, err := s.Decode(rec.Body.Bytes(), media, nil)
		if err != nil {
			t.Fatalf("%v in %s", err, rec.Body)
		}
		list := obj.(*metav1.PartialObjectMetadataList)
		if gvk.Kind != "PartialObjectMetadataList" || len(list.Items) != 2 || list.Items[1].Name != "cm-01" || list.Items[1].Labels["even"] != "false" {
			t.Errorf("%s: %v %+v", media, gvk, list)
		}
		rec = w.do("GET", cms+"/cm-00", "", "", "Accept", media+";as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
		obj, _, err = s.Decode(rec.Body.Bytes(), media, nil)
		if err != nil {
			t.Fatal(err)
		}
		if one := obj.(*metav1.PartialObjectMetadata); one.Name != "cm-00" || one.ResourceVersion == "" {
			t.Errorf("%s: %+v", media, one)
		}
	}
}

func TestDiscovery(t *testing.T) {
	w := start(t)
	const v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	rec := w.do("GET", "/apis", "", "", "Accept", v2+",application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json")
	if rec.Code != 200 || rec.Header().Get("Content-Type") != v2 || rec.Header().Get("ETag") == "" {
		t.Fatalf("%d %v", rec.Code, rec.Header())
	}
	if !strings.Contains(rec.Body.String(), `"responseKind":{"group":"apps","version":"v1","kind":"Deployment"}`) {
		t.Error(rec.Body.String())
	}
	rec = w.do("GET", "/apis", "", "", "Accept", v2, "If-None-Match", rec.Header().Get("ETag"))
	if rec.Code != http.StatusNotModified {
		t.Errorf("unchanged: %d", rec.Code)
	}
	core := must[metav1.APIResourceList](w, 200, "GET", "/api/v1", "", "")
	have := map[string]string{}
	for _, r := range core.APIResources {
		have[r.Name] = strings.Join(r.Verbs, ",")
	}
	for name, verbs := range map[string]string{
		"pods":        "create,delete,deletecollection,get,list,patch,update,watch",
		"namespaces":  "create,delete,get,list,patch,update,watch",
		"pods/status": "get,patch,update", "pods/binding": "create", "pods/eviction": "create",
	} {
		if have[name] != verbs {
			t.Errorf("%s: %q, want %q", name, have[name], verbs)
		}
	}
	groups := must[metav1.APIGroupList](w, 200, "GET", "/apis", "", "")
	if len(groups.Groups) < 2 || groups.Groups[0].PreferredVersion.GroupVersion != "apiregistration.k8s.io/v1" || groups.Groups[1].PreferredVersion.GroupVersion != "apps/v1" {
		t.Errorf("%+v", groups)
	}
	must[metav1.APIVersions](w, 200, "GET", "/api", "", "")
	must[metav1.APIGroup](w, 200, "GET", "/apis/apps", "", "")
	if version := *must[map[string]string](w, 200, "GET", "/version", "", ""); version["gitVersion"] != "v1.37.2+podium" {
		t.Errorf("%v", version)
	}
}

func TestOpenAPI(t *testing.T) {
	w := start(t)
	index := must[struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}](w, 200, "GET", "/openapi/v3", "", "")
	at := index.Paths["apis/apps/v1"].ServerRelativeURL
	rec := w.do("GET", at, "", "")
	if rec.Code != 200 || !strings.Contains(rec.Header().Get("Cache-Control"), "immutable") || !json.Valid(rec.Body.Bytes()) {
		t.Errorf("%s: %d %v", at, rec.Code, rec.Header())
	}
	for _, accept := range []string{"application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"} {
		rec = w.do("GET", "/openapi/v2", "", "", "Accept", accept)
		if rec.Code != 200 || rec.Header().Get("ETag") == "" || json.Valid(rec.Body.Bytes()) {
			t.Errorf("%s: %d %v", accept, rec.Code, rec.Header())
		}
	}
}

func TestLargeAnswersAreCompressedWhenAskedFor(t *testing.T) {
	w := start(t)
	must[any](w, 201, "POST", cms, jsonType, `{"metadata":{"name":"big"},"data":{"a":"`+strings.Repeat("x", 300<<10)+`"}}`)
	rec := w.do("GET", cms+"/big", "", "", "Accept-Encoding", "gzip")
	if rec.Header().Get("Content-Encoding") != "gzip" || rec.Body.Len() > 10<<10 {
		t.Errorf("%d bytes, %v", rec.Body.Len(), rec.Header())
	}
	if rec = w.do("GET", cms+"/big", "", ""); rec.Header().Get("Content-Encoding") != "" {
		t.Error("compressed unasked")
	}
}

func TestLargeListsAreStreamed(t *testing.T) {
	w := start(t)
	const each = 900 << 10
	for i := range 12 {
		must[any](w, 201, "POST", cms, jsonType, fmt.Sprintf(`{"metadata":{"name":"c%02d"},"data":{"a":"%s"}}`, i, strings.Repeat("x", each)))
	}
	for _, coding := range []string{"", "gzip"} {
		rec := w.do("GET", cms, "", "", "Accept-Encoding", coding)
		if got := rec.Header().Get("Content-Encoding"); rec.Code != 200 || got != coding {
			t.Fatalf("%d, coding %q", rec.Code, got)
		}
		var body io.Reader = rec.Body
		if coding != "" {
			var err error
			if body, err = gzip.NewReader(rec.Body); err != nil {
				t.Fatal(err)
			}
		}
		data, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		var list corev1.ConfigMapList
		if err := json.Unmarshal(data, &list); err != nil {
			t.Fatal(err)
		}
		if list.Kind != "ConfigMapList" || list.ResourceVersion == "" || len(list.Items) != 12 {
			t.Errorf("%s of %q with %d items", list.Kind, list.ResourceVersion, len(list.Items))
		}
		for i, c := range list.Items {
			if c.Name != fmt.Sprintf("c%02d", i) || len(c.Data["a"]) != each {
				t.Errorf("item %d is %s with %d bytes", i, c.Name, len(c.Data["a"]))
			}
		}
	}
}
