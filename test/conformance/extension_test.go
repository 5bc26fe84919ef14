package conformance

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// extensionRows returns the rows about conversion webhooks, admission webhooks for custom
// resources, and aggregated API servers. All of these run in the test's process.
func extensionRows() []testcase {
	return []testcase{
		{id: "aggregator-sample-apiserver", test: sampleServer},
		{id: "crd-conversion-mixed-list", test: convertMixedList},
		{id: "crd-conversion-single", test: convertSingle},
		{id: "crd-selectable-fields", test: selectConverted},
		{id: "webhook-deny-crd-create", test: denyDefinition},
		{id: "webhook-deny-custom-resource", test: denyCustomResource},
		{id: "webhook-mutate-cr-pruning", test: mutateCustomResource(true)},
		{id: "webhook-mutate-cr-storage-version-switch", test: mutateAcrossVersions},
		{id: "webhook-mutate-custom-resource", test: mutateCustomResource(false)},
	}
}

const (
	hostAndPort = `{"type":"object","properties":{"host":{"type":"string"},"port":{"type":"string"}}}`
	hostPort    = `{"type":"object","properties":{"hostPort":{"type":"string"}}}`
	dataOnly    = `{"type":"object","properties":{"data":{"type":"object","properties":{"key1":{"type":"string"},"mutation-start":{"type":"string"},"mutation-stage-1":{"type":"string"}%s}}}}`
)

// converted returns a definition whose versions v1 and v2 a webhook converts: host and
// port are hostPort in v2.
func converted(t *testing.T) (*definition, func(*unstructured.Unstructured)) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(convertHosts))
	t.Cleanup(s.Close)
	d := newDefinition("", "v1", "v2")
	d.versions[0].schema, d.versions[1].schema = hostAndPort, hostPort
	return d, func(crd *unstructured.Unstructured) {
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
		crd.Object["spec"].(map[string]any)["conversion"] = map[string]any{"strategy": "Webhook", "webhook": map[string]any{
			"clientConfig":             map[string]any{"url": s.URL + "/crdconvert", "caBundle": base64.StdEncoding.EncodeToString(ca)},
			"conversionReviewVersions": []any{"v1", "v1beta1"},
		}}
	}
}

// convertHosts is the conversion webhook.
func convertHosts(w http.ResponseWriter, r *http.Request) {
	var review struct {
		metav1.TypeMeta `json:",inline"`
		Request         struct {
			UID               string
			DesiredAPIVersion string
			Objects           []map[string]any
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, obj := range review.Request.Objects {
		obj["apiVersion"] = review.Request.DesiredAPIVersion
		if both, ok := obj["hostPort"].(string); ok {
			obj["host"], obj["port"], _ = strings.Cut(both, ":")
			delete(obj, "hostPort")
		} else if obj["host"] != nil {
			obj["hostPort"] = fmt.Sprintf("%v:%v", obj["host"], obj["port"])
			delete(obj, "host")
			delete(obj, "port")
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": review.APIVersion, "kind": review.Kind, "response": map[string]any{
		"uid": review.Request.UID, "result": map[string]any{"status": "Success"}, "convertedObjects": review.Request.Objects,
	}})
}

// isConverted checks that an object is v2 of the host.
func isConverted(t *testing.T, u *unstructured.Unstructured, host string) {
	t.Helper()
	_, hasHost := u.Object["host"]
	if !strings.HasSuffix(u.GetAPIVersion(), "/v2") || u.Object["hostPort"] != host+":8080" || hasHost {
		t.Errorf("v2 is %v", u.Object)
	}
}

func convertSingle(t *testing.T, ctx context.Context, namespace string) {
	d, hook := converted(t)
	d.createWith(t, ctx, hook)
	v1, v2 := dynamicClient(t).Resource(d.gvr("v1")).Namespace(namespace), dynamicClient(t).Resource(d.gvr("v2")).Namespace(namespace)
	_, err := v1.Create(ctx, d.cr(t, "v1", "cr", `,"host":"local","port":"8080"`), metav1.CreateOptions{})
	check(t, err)
	got, err := v2.Get(ctx, "cr", metav1.GetOptions{})
	check(t, err)
	isConverted(t, got, "local")
}

func convertMixedList(t *testing.T, ctx context.Context, namespace string) {
	d, hook := converted(t)
	d.createWith(t, ctx, hook)
	v1, v2 := dynamicClient(t).Resource(d.gvr("v1")).Namespace(namespace), dynamicClient(t).Resource(d.gvr("v2")).Namespace(namespace)
	_, err := v1.Create(ctx, d.cr(t, "v1", "cr-v1", `,"host":"one","port":"8080"`), metav1.CreateOptions{})
	check(t, err)
	d.storeIn(t, ctx, 1)
	eventually(t, ctx, "an object is stored at v2", func() error {
		_, err := v1.Create(ctx, d.cr(t, "v1", "cr-v2", `,"host":"two","port":"8080"`), metav1.CreateOptions{})
		return err
	})
	list, err := v1.List(ctx, metav1.ListOptions{})
	check(t, err)
	if len(list.Items) != 2 || list.Items[0].Object["host"] != "one" || list.Items[1].Object["host"] != "two" {
		t.Errorf("v1 lists %v", list.Items)
	}
	list, err = v2.List(ctx, metav1.ListOptions{})
	check(t, err)
	if len(list.Items) != 2 {
		t.Fatalf("v2 lists %v", list.Items)
	}
	isConverted(t, &list.Items[0], "one")
	isConverted(t, &list.Items[1], "two")
}

// createWith is create of the definition that change changes.
func (d *definition) createWith(t *testing.T, ctx context.Context, change func(*unstructured.Unstructured)) {
	t.Helper()
	d.change = change
	d.create(t, ctx)
}

// storeIn makes a version the storage version.
func (d *definition) storeIn(t *testing.T, ctx context.Context, version int) {
	t.Helper()
	var patch []string
	for i := range d.versions {
		patch = append(patch, fmt.Sprintf(`{"op":"replace","path":"/spec/versions/%d/storage","value":%t}`, i, i == version))
	}
	_, err := crdClient(t).Patch(ctx, d.name(), types.JSONPatchType, []byte("["+strings.Join(patch, ",")+"]"), metav1.PatchOptions{})
	check(t, err)
}

func selectConverted(t *testing.T, ctx context.Context, namespace string) {
	d, hook := converted(t)
	d.createWith(t, ctx, func(crd *unstructured.Unstructured) {
		hook(crd)
		versions := crd.Object["spec"].(map[string]any)["versions"].([]any)
		versions[0].(map[string]any)["selectableFields"] = []any{map[string]any{"jsonPath": ".host"}}
		versions[1].(map[string]any)["selectableFields"] = []any{map[string]any{"jsonPath": ".hostPort"}}
	})
	v1, v2 := dynamicClient(t).Resource(d.gvr("v1")).Namespace(namespace), dynamicClient(t).Resource(d.gvr("v2")).Namespace(namespace)
	byHost, byBoth := metav1.ListOptions{FieldSelector: "host=host1"}, metav1.ListOptions{FieldSelector: "hostPort=host1:80"}
	watches := map[string]watch.Interface{}
	for version, from := range map[string]dynamic.ResourceInterface{"v1": v1, "v2": v2} {
		w, err := from.Watch(ctx, map[string]metav1.ListOptions{"v1": byHost, "v2": byBoth}[version])
		check(t, err)
		defer w.Stop()
		watches[version] = w
	}
	sees := func(kind watch.EventType, name string) {
		t.Helper()
		for version, w := range watches {
			select {
			case e := <-w.ResultChan():
				u, _ := e.Object.(*unstructured.Unstructured)
				if e.Type != kind || u.GetName() != name || !strings.HasSuffix(u.GetAPIVersion(), version) {
					t.Errorf("%s: %s %v, want %s %s", version, e.Type, e.Object, kind, name)
				}
			case <-ctx.Done():
				t.Fatalf("%s: no event, want %s %s", version, kind, name)
			}
		}
	}
	for name, fields := range map[string]string{"a": `,"host":"host1","port":"80"`, "c": `,"host":"host2","port":"80"`} {
		_, err := v1.Create(ctx, d.cr(t, "v1", name, fields), metav1.CreateOptions{})
		check(t, err)
	}
	sees(watch.Added, "a")
	_, err := v2.Create(ctx, d.cr(t, "v2", "d", `,"hostPort":"host1:80"`), metav1.CreateOptions{})
	check(t, err)
	sees(watch.Added, "d")
	_, err = v1.Patch(ctx, "d", types.MergePatchType, []byte(`{"host":"host3"}`), metav1.PatchOptions{})
	check(t, err)
	sees(watch.Deleted, "d")
	names := func(from dynamic.ResourceInterface, o metav1.ListOptions) string {
		list, err := from.List(ctx, o)
		check(t, err)
		var out []string
		for i := range list.Items {
			out = append(out, list.Items[i].GetName())
		}
		return strings.Join(out, " ")
	}
	if one, two := names(v1, byHost), names(v2, byBoth); one != "a" || two != "a" {
		t.Errorf("selected: %q by host, %q by hostPort", one, two)
	}
	if _, err := v1.List(ctx, byBoth); !apierrors.IsBadRequest(err) {
		t.Errorf("v1 selects by a field of v2: %v", err)
	}
	check(t, v2.DeleteCollection(ctx, metav1.DeleteOptions{}, byBoth))
	sees(watch.Deleted, "a")
	if left := names(v1, metav1.ListOptions{}); left != "c d" {
		t.Errorf("left: %s", left)
	}
}

func denyDefinition(t *testing.T, ctx context.Context, namespace string) {
	s := webhookServer(t, map[string]func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse{
		"/crd": func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return denied("the crd contains unwanted label")
		},
	})
	hook := webhookAt(s, "/crd", namespace, "apiextensions.k8s.io", "customresourcedefinitions", registration.Create)
	hook.NamespaceSelector = nil
	hook.MatchConditions = []registration.MatchCondition{{Name: "own", Expression: "has(object.metadata.labels) && 'webhook-" + namespace + "' in object.metadata.labels"}}
	configure(t, ctx, false, namespace, nil, hook)
	d := newDefinition(dataSchema(""), "v1")
	d.labels = map[string]string{"webhook-" + namespace: "disallow"}
	_, err := crdClient(t).Create(ctx, d.object(t), metav1.CreateOptions{})
	deniedWith(t, "create a definition", "the crd contains unwanted label", err)
	_, err = crdClient(t).Get(ctx, d.name(), metav1.GetOptions{})
	notFound(t, "the definition", err)
}

// dataSchema is the schema of the custom resources of admission webhooks; more are
// further properties of data.
func dataSchema(more string) string { return fmt.Sprintf(dataOnly, more) }

func denyCustomResource(t *testing.T, ctx context.Context, namespace string) {
	s := webhookServer(t, map[string]func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse{
		"/custom-resource": func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			object := r.Object.Raw
			if r.Operation == admissionv1.Delete {
				object = r.OldObject.Raw
			}
			if strings.Contains(string(object), "webhook-disallow") {
				return denied("the custom resource contains unwanted data")
			}
			return allowed()
		},
	})
	d := newDefinition(dataSchema(""), "v1")
	d.create(t, ctx)
	objects := dynamicClient(t).Resource(d.gvr("v1")).Namespace(namespace)
	stored, err := objects.Create(ctx, d.cr(t, "v1", "undeletable", `,"data":{"key1":"webhook-disallow"}`), metav1.CreateOptions{})
	check(t, err)
	configure(t, ctx, false, namespace, nil, webhookAt(s, "/custom-resource", namespace, d.group, d.plural, registration.Create, registration.Update, registration.Delete))
	const why = "the custom resource contains unwanted data"
	_, err = objects.Create(ctx, d.cr(t, "v1", "bad", `,"data":{"key1":"webhook-disallow"}`), metav1.CreateOptions{})
	deniedWith(t, "create", why, err)
	_, err = objects.Create(ctx, d.cr(t, "v1", "good", `,"data":{"key1":"fine"}`), metav1.CreateOptions{})
	check(t, err)
	_, err = objects.Patch(ctx, "good", types.MergePatchType, []byte(`{"data":{"key1":"webhook-disallow"}}`), metav1.PatchOptions{})
	deniedWith(t, "update", why, err)
	deniedWith(t, "delete", why, objects.Delete(ctx, "undeletable", metav1.DeleteOptions{}))
	got, err := objects.Get(ctx, "undeletable", metav1.GetOptions{})
	check(t, err)
	if got.GetResourceVersion() != stored.GetResourceVersion() {
		t.Errorf("the object that may not be deleted has changed: %v", got)
	}
	_, err = objects.Patch(ctx, "undeletable", types.MergePatchType, []byte(`{"data":{"key1":"allowed"}}`), metav1.PatchOptions{})
	check(t, err)
	check(t, objects.Delete(ctx, "undeletable", metav1.DeleteOptions{}))
}

// mutateCustomResource has two webhooks add a field each. prunes means that the schema
// lacks that of the second.
func mutateCustomResource(prunes bool) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		more, want := `,"mutation-stage-2":{"type":"string"}`, "yes"
		if prunes {
			more, want = "", ""
		}
		d := newDefinition(dataSchema(more), "v1")
		d.create(t, ctx)
		s := mutators(t)
		configure(t, ctx, true, namespace, nil, webhookAt(s, "/first", namespace, d.group, d.plural, registration.Create), webhookAt(s, "/second", namespace, d.group, d.plural, registration.Create))
		objects := dynamicClient(t).Resource(d.gvr("v1")).Namespace(namespace)
		made, err := objects.Create(ctx, d.cr(t, "v1", "cr", `,"data":{"mutation-start":"yes"}`), metav1.CreateOptions{})
		check(t, err)
		read, err := objects.Get(ctx, "cr", metav1.GetOptions{})
		check(t, err)
		for _, u := range []*unstructured.Unstructured{made, read} {
			data, _, _ := unstructured.NestedStringMap(u.Object, "data")
			if data["mutation-start"] != "yes" || data["mutation-stage-1"] != "yes" || data["mutation-stage-2"] != want {
				t.Errorf("the data is %v", data)
			}
		}
	}
}

func mutateAcrossVersions(t *testing.T, ctx context.Context, namespace string) {
	d := newDefinition(dataSchema(""), "v1", "v2")
	d.create(t, ctx)
	configure(t, ctx, true, namespace, nil, webhookAt(mutators(t), "/first", namespace, d.group, d.plural, registration.Create, registration.Update))
	v1, v2 := dynamicClient(t).Resource(d.gvr("v1")).Namespace(namespace), dynamicClient(t).Resource(d.gvr("v2")).Namespace(namespace)
	_, err := v1.Create(ctx, d.cr(t, "v1", "cr", `,"data":{"mutation-start":"yes"}`), metav1.CreateOptions{})
	check(t, err)
	d.storeIn(t, ctx, 1)
	eventually(t, ctx, "a patch is stored", func() error {
		_, err := v1.Patch(ctx, "cr", types.MergePatchType, []byte(`{"data":{"key1":"new"}}`), metav1.PatchOptions{})
		return err
	})
	for _, objects := range []dynamic.ResourceInterface{v1, v2} {
		got, err := objects.Get(ctx, "cr", metav1.GetOptions{})
		check(t, err)
		data, _, _ := unstructured.NestedStringMap(got.Object, "data")
		if data["key1"] != "new" || data["mutation-start"] != "yes" || data["mutation-stage-1"] != "yes" {
			t.Errorf("%s: the data is %v", got.GetAPIVersion(), data)
		}
	}
}

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

func sampleServer(t *testing.T, ctx context.Context, namespace string) {
	address := nodeAddress(t, ctx)
	group := "wardle-" + rand.String(6) + ".example.com"
	w := serveWardle(t, ctx, address, "sample-api", namespace, group)
	if resp := withoutCertificate(t, address, w); resp != http.StatusUnauthorized {
		t.Errorf("a client without the aggregator's certificate gets %d", resp)
	}
	exposed(t, ctx, namespace, "sample-api", address, w.port)
	services, name := dynamicClient(t).Resource(apiServices), "v1alpha1."+group
	registered := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": name, "labels": map[string]any{"sample": namespace}},
		"spec": map[string]any{
			"group": group, "version": "v1alpha1", "groupPriorityMinimum": int64(2000), "versionPriority": int64(200),
			"service": map[string]any{"namespace": namespace, "name": "sample-api", "port": int64(443)}, "caBundle": base64.StdEncoding.EncodeToString(w.ca),
		},
	}}
	_, err := services.Create(ctx, registered, metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() { _ = services.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	eventually(t, ctx, "the APIService is available", func() error { return serviceAvailable(ctx, services, name) })
	useFlunders(t, ctx, namespace, w)
	describeFlunders(t, ctx, w)
	changeAPIService(t, ctx, services, name, namespace)
	eventually(t, ctx, "the end of the group", func() error {
		err := admin.Discovery().RESTClient().Get().AbsPath("/apis/" + w.apiVersion()).Do(ctx).Error()
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("got %v", err)
	})
}

// nodeAddress returns an address of this machine that pods and Services reach.
func nodeAddress(t *testing.T, ctx context.Context) string {
	t.Helper()
	list, err := admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	check(t, err)
	for _, a := range list.Items[0].Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	t.Fatal("the node has no internal address")
	return ""
}

// withoutCertificate returns the code that a client gets which names a user, but has not
// the aggregator's certificate.
func withoutCertificate(t *testing.T, address string, w *wardle) int {
	t.Helper()
	r, err := http.NewRequest("GET", fmt.Sprintf("https://%s:%d/apis/%s", address, w.port, w.apiVersion()), nil)
	check(t, err)
	r.Header.Set("X-Remote-User", "system:admin")
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // the certificate is for the Service's name
	defer client.CloseIdleConnections()
	resp, err := client.Do(r)
	check(t, err)
	resp.Body.Close()
	return resp.StatusCode
}

// exposed makes a Service of a port of this process.
func exposed(t *testing.T, ctx context.Context, namespace, name, address string, port int) {
	t.Helper()
	_, err := admin.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	}, metav1.CreateOptions{})
	check(t, err)
	portName, number := "https", int32(port)
	_, err = admin.DiscoveryV1().EndpointSlices(namespace).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: &portName, Port: &number}}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
	}, metav1.CreateOptions{})
	check(t, err)
}

// serviceAvailable returns nil if an APIService has the condition Available.
func serviceAvailable(ctx context.Context, services dynamic.ResourceInterface, name string) error {
	got, err := services.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	list, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions")
	for _, c := range list {
		if c := c.(map[string]any); c["type"] == "Available" && c["status"] == "True" {
			return nil
		}
	}
	return fmt.Errorf("conditions %v", list)
}

// useFlunders creates, lists, watches and deletes flunders.
func useFlunders(t *testing.T, ctx context.Context, namespace string, w *wardle) {
	t.Helper()
	path := "/apis/" + w.apiVersion() + "/namespaces/" + namespace + "/flunders"
	flunder := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":%q,"kind":"Flunder","metadata":{"name":%q,"labels":{"sample-label":"true"}}}`, w.apiVersion(), name)
	}
	client, code := admin.Discovery().RESTClient(), 0
	eventually(t, ctx, "the first flunder", func() error {
		return client.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body([]byte(flunder("raw"))).Do(ctx).StatusCode(&code).Error()
	})
	if code != http.StatusCreated {
		t.Errorf("create gives %d", code)
	}
	flunders := dynamicClient(t).Resource(schema.GroupVersionResource{Group: w.group, Version: "v1alpha1", Resource: "flunders"}).Namespace(namespace)
	lists := func(want int) {
		t.Helper()
		list, err := flunders.List(ctx, metav1.ListOptions{})
		check(t, err)
		if len(list.Items) != want {
			t.Errorf("the list has %d flunders, want %d", len(list.Items), want)
		}
	}
	lists(1)
	check(t, client.Delete().AbsPath(path, "raw").Do(ctx).Error())
	lists(0)
	events, err := flunders.Watch(ctx, metav1.ListOptions{})
	check(t, err)
	defer events.Stop()
	u := &unstructured.Unstructured{}
	check(t, u.UnmarshalJSON([]byte(flunder("dynamic"))))
	_, err = flunders.Create(ctx, u, metav1.CreateOptions{})
	check(t, err)
	lists(1)
	check(t, flunders.Delete(ctx, "dynamic", metav1.DeleteOptions{}))
	lists(0)
	for _, kind := range []watch.EventType{watch.Added, watch.Deleted} {
		select {
		case e := <-events.ResultChan():
			if e.Type != kind {
				t.Errorf("the watch shows %s %v, want %s", e.Type, e.Object, kind)
			}
		case <-ctx.Done():
			t.Fatalf("the watch shows no %s", kind)
		}
	}
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: "nobody"}
	stranger, err := dynamic.NewForConfig(as)
	check(t, err)
	if _, err := stranger.Resource(schema.GroupVersionResource{Group: w.group, Version: "v1alpha1", Resource: "flunders"}).Namespace(namespace).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights gets %v", err)
	}
}

// describeFlunders checks that discovery and OpenAPI include the group.
func describeFlunders(t *testing.T, ctx context.Context, w *wardle) {
	t.Helper()
	inDiscovery(t, w.apiVersion(), "flunders")
	for _, path := range []string{"/openapi/v2", "/openapi/v3/apis/" + w.apiVersion()} {
		eventually(t, ctx, "flunders in "+path, func() error {
			text, err := admin.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(ctx)
			if err == nil && !strings.Contains(string(text), "/apis/"+w.apiVersion()+"/namespaces/{namespace}/flunders") {
				err = errors.New("there are none")
			}
			return err
		})
	}
}

// changeAPIService updates and patches the APIService and its status, and deletes it.
func changeAPIService(t *testing.T, ctx context.Context, services dynamic.ResourceInterface, name, label string) {
	t.Helper()
	ours := metav1.ListOptions{LabelSelector: "sample=" + label}
	_, err := services.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"versionPriority":400}}`), metav1.PatchOptions{})
	check(t, err)
	list, err := services.List(ctx, ours)
	check(t, err)
	if len(list.Items) != 1 {
		t.Fatalf("the list has %d APIServices", len(list.Items))
	}
	if priority, _, _ := unstructured.NestedInt64(list.Items[0].Object, "spec", "versionPriority"); priority != 400 {
		t.Errorf("the patched priority is %d", priority)
	}
	_, err = services.Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"conditions":[{"type":"StatusPatched","status":"True","reason":"Row","message":"patched"}]}}`), metav1.PatchOptions{}, "status")
	check(t, err)
	eventually(t, ctx, "the update of the status", func() error {
		got, err := services.Get(ctx, name, metav1.GetOptions{}, "status")
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions")
		conditions = append(conditions, map[string]any{"type": "StatusUpdated", "status": "True", "reason": "Row", "message": "updated", "lastTransitionTime": metav1.Now().UTC().Format("2006-01-02T15:04:05Z")})
		if err := unstructured.SetNestedSlice(got.Object, conditions, "status", "conditions"); err != nil {
			return err
		}
		if got, err = services.UpdateStatus(ctx, got, metav1.UpdateOptions{}); err == nil && !strings.Contains(fmt.Sprint(got.Object["status"]), "StatusUpdated") {
			err = fmt.Errorf("the status is %v", got.Object["status"])
		}
		return err
	})
	check(t, services.DeleteCollection(ctx, metav1.DeleteOptions{}, ours))
	_, err = services.Get(ctx, name, metav1.GetOptions{})
	notFound(t, "the APIService", err)
}
