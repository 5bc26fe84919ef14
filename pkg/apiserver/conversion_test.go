package apiserver_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver"
	"podium/pkg/scheme"
)

const (
	hostsV1 = "/apis/stable.example.com/v1/namespaces/default/hosts"
	hostsV2 = "/apis/stable.example.com/v2/namespaces/default/hosts"
)

// converter is a conversion webhook for Hosts: spec.host and spec.port of v1 are
// spec.hostPort in v2.
type converter struct {
	*httptest.Server
	mu      sync.Mutex
	asked   []apiextensionsv1.ConversionRequest
	distort atomic.Pointer[func(http.ResponseWriter, *apiextensionsv1.ConversionReview) bool] // changes the answer; true: has answered
}

func serveConverter(t testing.TB) *converter {
	c := &converter{}
	c.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &apiextensionsv1.ConversionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil || r.URL.Query().Get("timeout") != "30s" {
			t.Errorf("%s: %v", r.URL, err)
			return
		}
		c.mu.Lock()
		c.asked = append(c.asked, *review.Request)
		c.mu.Unlock()
		review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, raw := range review.Request.Objects {
			review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Raw: convertHost(raw.Raw, review.Request.DesiredAPIVersion)})
		}
		review.Request = nil
		if distort := c.distort.Load(); distort != nil && (*distort)(w, review) {
			return
		}
		_ = json.NewEncoder(w).Encode(review)
	}))
	c.Config.ErrorLog = nil
	t.Cleanup(c.Close)
	return c
}

func convertHost(raw []byte, to string) []byte {
	u := &unstructured.Unstructured{}
	_ = json.Unmarshal(raw, &u.Object)
	spec, _ := u.Object["spec"].(map[string]any)
	if to == "stable.example.com/v2" {
		spec["hostPort"] = fmt.Sprintf("%v:%v", spec["host"], spec["port"])
		delete(spec, "host")
		delete(spec, "port")
	} else {
		spec["host"], spec["port"], _ = strings.Cut(spec["hostPort"].(string), ":")
		delete(spec, "hostPort")
	}
	u.SetAPIVersion(to)
	out, _ := json.Marshal(u.Object)
	return out
}

// requests returns the number of objects in each request so far.
func (c *converter) requests() (sizes []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.asked {
		sizes = append(sizes, len(r.Objects))
	}
	return sizes
}

func (c *converter) distorts(f func(http.ResponseWriter, *apiextensionsv1.ConversionReview) bool) {
	c.distort.Store(&f)
}

// hosts returns a definition of Hosts that is stored in a version.
func (c *converter) hosts(storage string) string {
	ca, _ := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw}))
	version := func(name, properties, more string) string {
		return fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
			"spec":{"type":"object","properties":{%s,"size":{"type":"integer","default":1}}},"status":{"type":"object","properties":{"ready":{"type":"boolean"}}}}}}%s}`, name, name == storage, properties, more)
	}
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"hosts.stable.example.com"},"spec":{
		"group":"stable.example.com","scope":"Namespaced","names":{"plural":"hosts","kind":"Host"},
		"conversion":{"strategy":"Webhook","webhook":{"clientConfig":{"url":"` + c.URL + `/convert","caBundle":` + string(ca) + `},"conversionReviewVersions":["v1","v1beta1"]}},
		"versions":[` + version("v1", `"host":{"type":"string"},"port":{"type":"string"}`, `,"selectableFields":[{"jsonPath":".spec.host"}],"additionalPrinterColumns":[{"name":"Host","type":"string","jsonPath":".spec.host"}]`) + `,` +
		version("v2", `"hostPort":{"type":"string","maxLength":20}`, `,"selectableFields":[{"jsonPath":".spec.hostPort"}]`) + `]}}`
}

func hostV1(name, host string) string {
	return `{"apiVersion":"stable.example.com/v1","kind":"Host","metadata":{"name":"` + name + `","labels":{"a":"b"}},"spec":{"host":"` + host + `","port":"80"}}`
}

func hostV2(name, hostPort string) string {
	return `{"apiVersion":"stable.example.com/v2","kind":"Host","metadata":{"name":"` + name + `"},"spec":{"hostPort":"` + hostPort + `"}}`
}

// storeIn makes a version of the Hosts the storage version, and waits until it is.
func (w *world) storeIn(c *converter, version string) {
	w.Helper()
	must[any](w, 200, "PATCH", crds+"/hosts.stable.example.com", mergeType, c.hosts(version))
	w.eventually("storage in "+version, func() bool {
		must[unstructured.Unstructured](w, 201, "POST", hostsV2, jsonType, hostV2("probe", "p:1"))
		stored, err := w.server.Stored(context.Background(), schema.GroupVersionResource{Group: "stable.example.com", Version: version, Resource: "hosts"})
		must[any](w, 200, "DELETE", hostsV2+"/probe", "", "")
		return err == nil && slices.ContainsFunc(stored, func(obj scheme.Object) bool {
			return obj.GetName() == "probe" && obj.GetObjectKind().GroupVersionKind().Version == version
		})
	})
}

// All verbs see each version, whatever version is stored.
func TestConversionWebhook(t *testing.T) {
	type object = unstructured.Unstructured
	w, c := start(t), serveConverter(t)
	w.define(c.hosts("v1"))
	if got := must[object](w, 201, "POST", hostsV1, jsonType, hostV1("a", "one")); specOf(got) != `{"host":"one","port":"80","size":1}` {
		t.Errorf("created %v", got)
	}
	if n := c.requests(); len(n) != 0 {
		t.Errorf("the webhook was asked %v times without need", n)
	}
	if got := must[object](w, 200, "GET", hostsV2+"/a", "", ""); specOf(got) != `{"hostPort":"one:80","size":1}` || got.GetAPIVersion() != "stable.example.com/v2" || got.GetLabels()["a"] != "b" {
		t.Errorf("read %v", got)
	}
	must[object](w, 200, "GET", hostsV2+"/a", "", "")
	if n := c.requests(); len(n) != 1 {
		t.Errorf("the webhook was asked %v times for two reads", n)
	}
	if got := must[object](w, 201, "POST", hostsV2, jsonType, hostV2("b", "two:81")); specOf(got) != `{"hostPort":"two:81","size":1}` {
		t.Errorf("created %v", got)
	}
	if got := must[object](w, 200, "GET", hostsV1+"/b", "", ""); specOf(got) != `{"host":"two","port":"81","size":1}` {
		t.Errorf("read %v", got)
	}
	if rec := w.do("POST", hostsV2, jsonType, hostV2("x", "much-too-long-for-version-2:81")); rec.Code != 422 {
		t.Errorf("v2 is not validated: %d %s", rec.Code, rec.Body)
	}
	if got := must[object](w, 200, "PATCH", hostsV2+"/a", mergeType, `{"spec":{"hostPort":"three:82"}}`); specOf(got) != `{"hostPort":"three:82","size":1}` || got.GetGeneration() != 2 {
		t.Errorf("patched %v", got)
	}
	if got := must[object](w, 200, "PATCH", hostsV2+"/a?fieldManager=m&force=true", applyType, `{"apiVersion":"stable.example.com/v2","kind":"Host","spec":{"size":5}}`); specOf(got) != `{"hostPort":"three:82","size":5}` || len(got.GetManagedFields()) == 0 {
		t.Errorf("applied %v", got)
	}
	if got := must[object](w, 200, "PATCH", hostsV2+"/a/status", mergeType, `{"status":{"ready":true},"spec":{"size":7}}`); specOf(got) != `{"hostPort":"three:82","size":5}` || fmt.Sprint(got.Object["status"]) != "map[ready:true]" {
		t.Errorf("status %v", got)
	}
	before := must[object](w, 200, "GET", hostsV1+"/a", "", "")
	if specOf(before) != `{"host":"three","port":"82","size":5}` {
		t.Errorf("read %v", before)
	}
	same := must[object](w, 200, "PATCH", hostsV2+"/a", mergeType, `{"spec":{"size":5}}`)
	if same.GetResourceVersion() != before.GetResourceVersion() {
		t.Error("a patch that changes nothing was stored")
	}

	// With the storage version v2, objects of both are stored, and listed with one review.
	w.storeIn(c, "v2")
	must[object](w, 201, "POST", hostsV1, jsonType, hostV1("c", "four"))
	asked := len(c.requests())
	for path, want := range map[string]string{hostsV1: "three two four", hostsV2: "three:82 two:81 four:80"} {
		list := must[unstructured.UnstructuredList](w, 200, "GET", path, "", "")
		var got []string
		for i := range list.Items {
			spec := list.Items[i].Object["spec"].(map[string]any)
			if v, ok := spec["host"]; ok {
				got = append(got, fmt.Sprint(v))
			} else {
				got = append(got, fmt.Sprint(spec["hostPort"]))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if n := c.requests()[asked:]; fmt.Sprint(n) != "[1 2]" && fmt.Sprint(n) != "[2 1]" {
		t.Errorf("two lists sent %v objects", n)
	}
	table := must[metav1.Table](w, 200, "GET", hostsV1, "", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	if len(table.Rows) != 3 || table.Rows[0].Cells[1] != "three" {
		t.Errorf("table %+v", table.Rows)
	}
	// A write that changes nothing migrates the object to the storage version; then the
	// old version can leave status.storedVersions.
	for _, name := range []string{"a", "b"} {
		must[object](w, 200, "PATCH", hostsV1+"/"+name, mergeType, `{}`)
	}
	asked = len(c.requests())
	must[unstructured.UnstructuredList](w, 200, "GET", hostsV2, "", "")
	if n := c.requests()[asked:]; len(n) != 0 {
		t.Errorf("%v objects are not migrated", n)
	}
	def := must[apiextensionsv1.CustomResourceDefinition](w, 200, "GET", crds+"/hosts.stable.example.com", "", "")
	if fmt.Sprint(def.Status.StoredVersions) != "[v1 v2]" {
		t.Errorf("stored versions %v", def.Status.StoredVersions)
	}
	def = must[apiextensionsv1.CustomResourceDefinition](w, 200, "PATCH", crds+"/hosts.stable.example.com/status", mergeType, `{"status":{"storedVersions":["v2"]}}`)
	if fmt.Sprint(def.Status.StoredVersions) != "[v2]" {
		t.Errorf("stored versions %v", def.Status.StoredVersions)
	}
}

// Selectors are about the objects of the requested version.
func TestConvertedSelectors(t *testing.T) {
	w, c := start(t), serveConverter(t)
	w.define(c.hosts("v1"))
	for i, host := range []string{"x", "y", "x", "x"} {
		must[any](w, 201, "POST", hostsV1, jsonType, hostV1(fmt.Sprint("h", i), host))
	}
	names := func(query string) string {
		t.Helper()
		list := must[unstructured.UnstructuredList](w, 200, "GET", query, "", "")
		var out []string
		for i := range list.Items {
			out = append(out, list.Items[i].GetName())
		}
		return strings.Join(out, " ") + " " + list.GetContinue()
	}
	if got := names(hostsV1 + "?fieldSelector=spec.host=x"); got != "h0 h2 h3 " {
		t.Errorf("v1: %s", got)
	}
	if got := names(hostsV2 + "?fieldSelector=spec.hostPort=x:80"); got != "h0 h2 h3 " {
		t.Errorf("v2: %s", got)
	}
	if got := names(hostsV2 + "?fieldSelector=spec.hostPort=x:80,metadata.name=h2"); got != "h2 " {
		t.Errorf("v2 by name: %s", got)
	}
	page := names(hostsV2 + "?fieldSelector=spec.hostPort=x:80&limit=2")
	first, token, _ := strings.Cut(page, "h2 ")
	if first != "h0 " || token == "" {
		t.Errorf("first page %q", page)
	}
	if got := names(hostsV2 + "?fieldSelector=spec.hostPort=x:80&limit=2&continue=" + token); got != "h3 " {
		t.Errorf("second page %q", got)
	}
	must[metav1.Status](w, 400, "GET", hostsV2+"?fieldSelector=spec.host=x", "", "")

	lines := w.watchLines(t.Context(), hostsV2+"?watch=true&fieldSelector=spec.hostPort=x:80")
	see := func(want string) {
		t.Helper()
		var event struct {
			Type   string
			Object unstructured.Unstructured
		}
		line := <-lines
		_ = json.Unmarshal([]byte(line), &event)
		spec, _ := event.Object.Object["spec"].(map[string]any)
		if got := fmt.Sprint(event.Type, " ", event.Object.GetName(), " ", spec["hostPort"]); got != want {
			t.Errorf("event %s, want %s", line, want)
		}
	}
	see("ADDED h0 x:80")
	see("ADDED h2 x:80")
	see("ADDED h3 x:80")
	must[any](w, 200, "PATCH", hostsV1+"/h1", mergeType, `{"spec":{"host":"x"}}`)
	see("ADDED h1 x:80")
	must[any](w, 200, "PATCH", hostsV1+"/h1", mergeType, `{"spec":{"size":9}}`)
	see("MODIFIED h1 x:80")
	must[any](w, 200, "PATCH", hostsV1+"/h1", mergeType, `{"spec":{"host":"z"}}`)
	see("DELETED h1 x:80")
	must[any](w, 200, "DELETE", hostsV1+"/h1", "", "")
	must[any](w, 200, "DELETE", hostsV1+"/h0", "", "")
	see("DELETED h0 x:80")
	must[any](w, 200, "DELETE", hostsV2+"?fieldSelector=spec.hostPort=x:80", "", "")
	if got := names(hostsV1); got != " " {
		t.Errorf("left: %s", got)
	}
}

// A webhook that answers wrongly, or not at all, fails the requests that need it with
// upstream's texts. Nothing is lost, and all else works.
func TestConversionWebhookFails(t *testing.T) {
	type object = unstructured.Unstructured
	type review = apiextensionsv1.ConversionReview
	change := func(review *review, f func(u *object)) {
		u := &object{}
		_ = json.Unmarshal(review.Response.ConvertedObjects[0].Raw, &u.Object)
		f(u)
		review.Response.ConvertedObjects[0].Raw, _ = json.Marshal(u.Object)
	}
	w, c := start(t), serveConverter(t)
	w.define(c.hosts("v1"))
	must[any](w, 201, "POST", hostsV1, jsonType, hostV1("a", "one"))
	for name, row := range map[string]struct {
		distort func(http.ResponseWriter, *review) bool
		want    string
	}{
		"broken":       {func(w http.ResponseWriter, _ *review) bool { http.Error(w, "broken", 500); return true }, `conversion webhook for stable.example.com/v1, Kind=Host failed: an error on the server ("broken\n") has prevented the request from succeeding`},
		"garbage":      {func(w http.ResponseWriter, _ *review) bool { fmt.Fprint(w, "{{"); return true }, "failed: decode the response"},
		"no response":  {func(_ http.ResponseWriter, r *review) bool { r.Response = nil; return false }, "conversion webhook for stable.example.com/v1, Kind=Host failed: no response provided"},
		"another uid":  {func(_ http.ResponseWriter, r *review) bool { r.Response.UID = "x"; return false }, `failed: expected response.uid=`},
		"another kind": {func(_ http.ResponseWriter, r *review) bool { r.Kind = "X"; return false }, "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1, Kind=X"},
		"refusal": {func(_ http.ResponseWriter, r *review) bool {
			r.Response.Result = metav1.Status{Status: "Failure", Message: "no way"}
			return false
		}, "conversion webhook for stable.example.com/v1, Kind=Host failed: no way"},
		"silent refusal": {func(_ http.ResponseWriter, r *review) bool { r.Response.Result = metav1.Status{}; return false }, "failed: response.result.status was '', not 'Success'"},
		"too few":        {func(_ http.ResponseWriter, r *review) bool { r.Response.ConvertedObjects = nil; return false }, "conversion webhook for stable.example.com/v1, Kind=Host returned 0 objects, expected 1"},
		"too many": {func(_ http.ResponseWriter, r *review) bool {
			r.Response.ConvertedObjects = append(r.Response.ConvertedObjects, r.Response.ConvertedObjects[0])
			return false
		}, "returned 2 objects, expected 1"},
		"wrong version": {func(_ http.ResponseWriter, r *review) bool {
			change(r, func(u *object) { u.SetAPIVersion("stable.example.com/v3") })
			return false
		}, "returned invalid object: invalid groupVersion (expected stable.example.com/v2, received stable.example.com/v3)"},
		"renamed": {func(_ http.ResponseWriter, r *review) bool {
			change(r, func(u *object) { u.SetName("b") })
			return false
		}, "conversion webhook for stable.example.com/v1, Kind=Host returned invalid object: must have the same name: a != b"},
		"other object": {func(_ http.ResponseWriter, r *review) bool {
			change(r, func(u *object) { u.SetUID("b") })
			return false
		}, "must have the same UID"},
		"bad labels": {func(_ http.ResponseWriter, r *review) bool {
			change(r, func(u *object) { u.SetLabels(map[string]string{"-": "-"}) })
			return false
		}, "returned invalid metadata: [metadata.labels: Invalid value"},
		"too much": {func(w http.ResponseWriter, _ *review) bool {
			for chunk, i := []byte(strings.Repeat("x", 1<<20)), 0; i < 30; i++ {
				if _, err := w.Write(chunk); err != nil {
					break
				}
			}
			return true
		}, "failed: the response is longer than 16777216 bytes"},
	} {
		c.distorts(row.distort)
		status := must[metav1.Status](w, 500, "GET", hostsV2+"/a", "", "")
		if !strings.Contains(status.Message, row.want) {
			t.Errorf("%s: %s\nwant %s", name, status.Message, row.want)
		}
	}
	// Only labels and annotations of the metadata change.
	c.distorts(func(_ http.ResponseWriter, r *review) bool {
		change(r, func(u *object) {
			u.SetLabels(map[string]string{"new": "label"})
			u.SetFinalizers([]string{"not.mine/x"})
			u.SetResourceVersion("1")
		})
		return false
	})
	if got := must[object](w, 200, "GET", hostsV2+"/a", "", ""); got.GetLabels()["new"] != "label" || got.GetFinalizers() != nil || got.GetResourceVersion() == "1" {
		t.Errorf("converted %v", got)
	}
}

// While the webhook is down, objects are deleted, also those with finalizers, their
// metadata is read and patched, and the definition goes away.
func TestWithoutConversionWebhook(t *testing.T) {
	w, c := start(t), serveConverter(t)
	w.define(c.hosts("v1"))
	for _, name := range []string{"a", "b", "c", "d"} {
		must[any](w, 201, "POST", hostsV1, jsonType, hostV1(name, "one"))
	}
	c.Close()
	const metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	must[metav1.Status](w, 500, "GET", hostsV2, "", "")
	must[metav1.Status](w, 500, "POST", hostsV2, jsonType, hostV2("x", "x:1"))
	must[any](w, 200, "GET", hostsV1, "", "")
	list := must[metav1.PartialObjectMetadataList](w, 200, "GET", hostsV2, "", "", "Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
	if len(list.Items) != 4 || list.Items[0].Labels["a"] != "b" {
		t.Errorf("%+v", list.Items)
	}
	must[metav1.PartialObjectMetadata](w, 200, "GET", hostsV2+"/a", "", "", "Accept", metadata)
	must[metav1.Status](w, 200, "DELETE", hostsV2+"/a", "", "")
	must[any](w, 200, "DELETE", hostsV2+"/b?propagationPolicy=Foreground", "", "")
	must[metav1.PartialObjectMetadata](w, 200, "DELETE", hostsV2+"/c?propagationPolicy=Foreground", "", "", "Accept", metadata)
	for _, name := range []string{"b", "c"} {
		kept := must[metav1.PartialObjectMetadata](w, 200, "GET", hostsV2+"/"+name, "", "", "Accept", metadata)
		if kept.DeletionTimestamp == nil || len(kept.Finalizers) != 1 {
			t.Errorf("%+v", kept)
		}
		must[any](w, 200, "PATCH", hostsV2+"/"+name, mergeType, `{"metadata":{"finalizers":null,"resourceVersion":"`+kept.ResourceVersion+`"}}`, "Accept", metadata)
		must[metav1.Status](w, 404, "GET", hostsV2+"/"+name, "", "", "Accept", metadata)
	}
	must[any](w, 200, "DELETE", hostsV2, "", "")
	if left := must[unstructured.UnstructuredList](w, 200, "GET", hostsV1, "", ""); len(left.Items) != 0 {
		t.Errorf("left %v", left.Items)
	}
	must[any](w, 201, "POST", hostsV1, jsonType, hostV1("e", "one"))
	must[any](w, 200, "DELETE", crds+"/hosts.stable.example.com", "", "")
	w.eventually("the definition is gone", func() bool { return w.do("GET", crds+"/hosts.stable.example.com", "", "").Code == 404 })
}

// A webhook that hangs delays neither the start of a server nor other resources nor the
// version that is stored.
func TestConversionWebhookHangs(t *testing.T) {
	w, c := start(t), serveConverter(t)
	release := make(chan struct{})
	let := sync.OnceFunc(func() { close(release) })
	t.Cleanup(let)
	w.define(c.hosts("v1"))
	must[any](w, 201, "POST", hostsV1, jsonType, hostV1("a", "one"))
	lines := w.watchLines(t.Context(), hostsV2+"?watch=true")
	if line := <-lines; !strings.Contains(line, `"hostPort":"one:80"`) {
		t.Errorf("event %s", line)
	}
	hung := make(chan struct{}, 8)
	c.distorts(func(http.ResponseWriter, *apiextensionsv1.ConversionReview) bool {
		hung <- struct{}{}
		<-release
		return false
	})
	must[any](w, 200, "PATCH", hostsV1+"/a", mergeType, `{"spec":{"host":"two"}}`)
	<-hung // the watch waits
	for i := range 20 {
		must[any](w, 200, "PATCH", hostsV1+"/a", mergeType, fmt.Sprintf(`{"spec":{"size":%d}}`, i+2))
		must[any](w, 201, "POST", cms, jsonType, configMap(fmt.Sprint("x", i)))
	}
	if got := must[unstructured.Unstructured](w, 200, "GET", hostsV1+"/a", "", ""); specOf(got) != `{"host":"two","port":"80","size":21}` {
		t.Errorf("read %v", got)
	}
	again := start(t, func(c *apiserver.Config) { c.Store = w.store })
	again.eventually("a second server is ready", func() bool { return again.do("GET", "/readyz", "", "").Code == 200 })
	must[any](again, 200, "GET", hostsV1+"/a", "", "")
	let()
	seen := 0
	for seen < 21 {
		line := <-lines
		if !strings.Contains(line, `"MODIFIED"`) || !strings.Contains(line, `"hostPort":"two:80"`) {
			t.Fatalf("event %s", line)
		}
		seen++
	}
}

// Admission webhooks see custom resources in the version of the request, and what they
// add is pruned and defaulted.
func TestAdmissionOfConvertedResources(t *testing.T) {
	w, c := start(t), serveConverter(t)
	h := serveHook(t, func(_ http.ResponseWriter, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if r.Operation == admissionv1.Delete {
			return allow()
		}
		return patched(`[{"op":"add","path":"/spec/bogus","value":1},{"op":"remove","path":"/spec/size"},{"op":"replace","path":"/spec/hostPort","value":"hooked:1"}]`)
	})
	w.define(c.hosts("v1"))
	w.register("mutating", "m", h.hook("m", func(w *registration.MutatingWebhook) {
		w.Rules[0].APIGroups, w.Rules[0].APIVersions, w.Rules[0].Resources = []string{"stable.example.com"}, []string{"v2"}, []string{"hosts"}
	}))
	got := must[unstructured.Unstructured](w, 201, "POST", hostsV2, jsonType, hostV2("a", "x:1"))
	if specOf(got) != `{"hostPort":"hooked:1","size":1}` {
		t.Errorf("created %v", got)
	}
	// The request for v1 matches the rule for v2.
	got = must[unstructured.Unstructured](w, 201, "POST", hostsV1, jsonType, hostV1("b", "x"))
	if specOf(got) != `{"host":"hooked","port":"1","size":1}` {
		t.Errorf("created %v", got)
	}
	must[any](w, 200, "DELETE", hostsV1+"/b", "", "")
	last := h.requests()[len(h.requests())-1]
	if !strings.Contains(string(last.OldObject.Raw), `"hostPort":"hooked:1"`) || last.RequestKind.Version != "v1" || last.Kind.Version != "v2" {
		t.Errorf("the delete was described as %+v", last)
	}
}
