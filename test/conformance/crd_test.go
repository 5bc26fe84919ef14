package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

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

// customResources returns the rows about CustomResourceDefinitions.
func customResources() []testcase {
	return []testcase{
		{id: "aggregated-discovery-accept-crd", test: aggregatedCRD},
		{id: "aggregated-discovery-client-crd", test: clientDiscoversCRD},
		{id: "crd-create-delete", test: crdCreateDelete},
		{id: "crd-defaulting-request-and-storage", test: crdDefaulting},
		{id: "crd-discovery-docs", test: crdDiscovery},
		{id: "crd-list-deletecollection", test: crdDeleteCollection},
		{id: "crd-openapi-multi-group", test: crdPublishGroups},
		{id: "crd-openapi-multi-kind", test: crdPublishKinds},
		{id: "crd-openapi-multi-version", test: crdPublishVersions},
		{id: "crd-openapi-no-schema", test: crdPublishKept(`{"type":"object","x-kubernetes-preserve-unknown-fields":true}`, "")},
		{id: "crd-openapi-preserve-nested", test: crdPublishKept(crdKeepsNested, "preserve-unknown-properties in nested field for Testing")},
		{id: "crd-openapi-preserve-root", test: crdPublishKept(crdKeepsRoot, "preserve-unknown-properties at root for Testing")},
		{id: "crd-openapi-unserved-version", test: crdUnserved},
		{id: "crd-openapi-validation-schema", test: crdPublishSchema},
		{id: "crd-openapi-version-rename", test: crdRename},
		{id: "crd-status-subresource", test: crdStatus},
		{id: "crd-watch", test: crdWatch},
		{id: "fieldvalidation-cr-duplicates", test: crDuplicates},
		{id: "fieldvalidation-cr-no-schema", test: crNoSchema},
		{id: "fieldvalidation-cr-unknown-fields", test: crUnknownFields},
		{id: "fieldvalidation-cr-unknown-metadata", test: crUnknownMetadata},
		{id: "fieldvalidation-cr-valid", test: crValid},
	}
}

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

const (
	crdKeepsRoot   = `{"description":"preserve-unknown-properties at root for Testing","x-kubernetes-preserve-unknown-fields":true,"type":"object","properties":{"spec":{"type":"object","properties":{"dummy":{"type":"string"}}},"status":{"type":"object"}}}`
	crdKeepsNested = `{"description":"preserve-unknown-properties in nested field for Testing","type":"object","properties":{"spec":{"description":"Specification of Waldo","x-kubernetes-preserve-unknown-fields":true,"type":"object"},"status":{"description":"Status of Waldo","x-kubernetes-preserve-unknown-fields":true,"type":"object"}}}`
	crdFoo         = `{"description":"Foo CRD for Testing","type":"object","properties":{
		"spec":{"description":"Specification of Foo","type":"object","properties":{"bars":{"description":"List of Bars and their specs.","type":"array","items":{"type":"object","required":["name"],"properties":{
			"name":{"description":"Name of Bar.","type":"string"},"age":{"description":"Age of Bar.","type":"string"},
			"feeling":{"description":"Whether Bar is feeling great.","type":"string","enum":["Great","Down"]},
			"bazs":{"description":"List of Bazs.","type":"array","items":{"type":"string"}}}}}}},
		"status":{"description":"Status of Foo","type":"object","properties":{"bars":{"description":"List of Bars and their statuses.","type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"available":{"type":"boolean"},"quxType":{"type":"string"}}}}}}}}`
)

// definition is a CustomResourceDefinition of a test.
type definition struct {
	group, plural, kind string
	versions            []crdVersion
	labels              map[string]string
	change              func(*unstructured.Unstructured) // made to the object; may be nil
}

type crdVersion struct {
	name, schema string
	unserved     bool
}

// newDefinition returns a definition with versions that all have a schema.
func newDefinition(schema string, versions ...string) *definition {
	id := rand.String(6)
	d := &definition{group: "crd-" + id + ".example.com", plural: "e2e" + id + "s", kind: "E2e" + id}
	for _, v := range versions {
		d.versions = append(d.versions, crdVersion{name: v, schema: schema})
	}
	return d
}

func (d *definition) name() string { return d.plural + "." + d.group }

func (d *definition) gvr(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: d.group, Version: version, Resource: d.plural}
}

// model returns the name of the kind in OpenAPI documents.
func (d *definition) model(version string) string {
	parts := strings.Split(d.group, ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".") + "." + version + "." + d.kind
}

func (d *definition) object(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	var versions []any
	for i, v := range d.versions {
		var s any
		check(t, json.Unmarshal([]byte(v.schema), &s))
		versions = append(versions, map[string]any{"name": v.name, "served": !v.unserved, "storage": i == 0, "schema": map[string]any{"openAPIV3Schema": s}})
	}
	out := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"spec": map[string]any{"group": d.group, "scope": "Namespaced", "versions": versions,
			"names": map[string]any{"plural": d.plural, "kind": d.kind, "singular": strings.ToLower(d.kind), "listKind": d.kind + "List"}},
	}}
	out.SetName(d.name())
	out.SetLabels(d.labels)
	if d.change != nil {
		d.change(out)
	}
	return out
}

func dynamicClient(t *testing.T) dynamic.Interface {
	t.Helper()
	c, err := dynamic.NewForConfig(config)
	check(t, err)
	return c
}

func crdClient(t *testing.T) dynamic.ResourceInterface { return dynamicClient(t).Resource(crdResource) }

// create creates the definition for the time of the test and waits until it is
// established.
func (d *definition) create(t *testing.T, ctx context.Context) {
	t.Helper()
	_, err := crdClient(t).Create(ctx, d.object(t), metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() {
		if err := crdClient(t).Delete(context.Background(), d.name(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	eventually(t, ctx, "the definition is established", func() error {
		crd, err := crdClient(t).Get(ctx, d.name(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		list, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
		for _, c := range list {
			if c := c.(map[string]any); c["type"] == "Established" && c["status"] == "True" {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", list)
	})
}

// delete deletes the definition and waits until it is gone.
func (d *definition) delete(t *testing.T, ctx context.Context) {
	t.Helper()
	check(t, crdClient(t).Delete(ctx, d.name(), metav1.DeleteOptions{}))
	eventually(t, ctx, "the definition is gone", func() error { return d.gone(t, ctx) })
}

func (d *definition) gone(t *testing.T, ctx context.Context) error {
	if _, err := crdClient(t).Get(ctx, d.name(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("get: %v", err)
	}
	return nil
}

// cr returns a custom resource; fields are JSON that follows the metadata.
func (d *definition) cr(t *testing.T, version, name, fields string) *unstructured.Unstructured {
	t.Helper()
	out := &unstructured.Unstructured{}
	check(t, json.Unmarshal([]byte(d.manifest(version, name, fields)), &out.Object))
	return out
}

func (d *definition) manifest(version, name, fields string) string {
	return fmt.Sprintf(`{"apiVersion":"%s/%s","kind":%q,"metadata":{"name":%q}%s}`, d.group, version, d.kind, name, fields)
}

// apply applies a configuration with strict validation and returns the answer.
func (d *definition) apply(ctx context.Context, namespace, name, body string) (string, error) {
	text, err := admin.Discovery().RESTClient().Patch(types.ApplyPatchType).
		AbsPath("/apis", d.group, d.versions[0].name, "namespaces", namespace, d.plural, name).
		Param("fieldManager", "conformance").Param("fieldValidation", "Strict").Body([]byte(body)).DoRaw(ctx)
	return string(text), err
}

func crdCreateDelete(t *testing.T, ctx context.Context, namespace string) {
	d := newDefinition(crdFoo, "v1")
	d.create(t, ctx)
	_, err := dynamicClient(t).Resource(d.gvr("v1")).Namespace(namespace).List(ctx, metav1.ListOptions{})
	check(t, err)
	d.delete(t, ctx)
}

func crdStatus(t *testing.T, ctx context.Context, _ string) {
	d := newDefinition(crdFoo, "v1")
	d.create(t, ctx)
	has := func(crd *unstructured.Unstructured, name string) bool {
		list, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
		return slices.ContainsFunc(list, func(c any) bool { return c.(map[string]any)["type"] == name })
	}
	eventually(t, ctx, "the status is updated", func() error {
		crd, err := crdClient(t).Get(ctx, d.name(), metav1.GetOptions{}, "status")
		if err != nil {
			return err
		}
		list, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
		list = append(list, map[string]any{"type": "StatusUpdate", "status": "True", "reason": "E2E", "message": "set by e2e", "lastTransitionTime": nil})
		check(t, unstructured.SetNestedSlice(crd.Object, list, "status", "conditions"))
		crd, err = crdClient(t).UpdateStatus(ctx, crd, metav1.UpdateOptions{})
		if err == nil && !has(crd, "StatusUpdate") {
			t.Errorf("updated: %v", crd.Object["status"])
		}
		return err
	})
	crd, err := crdClient(t).Get(ctx, d.name(), metav1.GetOptions{})
	check(t, err)
	list, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	list = append(list, map[string]any{"type": "StatusPatched", "status": "True", "reason": "E2E", "message": "patched by e2e", "lastTransitionTime": nil})
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": list}})
	check(t, err)
	_, err = crdClient(t).Patch(ctx, d.name(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	check(t, err)
	crd, err = crdClient(t).Get(ctx, d.name(), metav1.GetOptions{})
	check(t, err)
	if !has(crd, "StatusUpdate") || !has(crd, "StatusPatched") {
		t.Errorf("conditions: %v", crd.Object["status"])
	}
}

func crdDeleteCollection(t *testing.T, ctx context.Context, _ string) {
	label := map[string]string{"e2e-list-test-uuid": rand.String(8)}
	selector := metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: label})}
	keeps := newDefinition(crdFoo, "v1")
	keeps.create(t, ctx)
	for range 10 {
		d := newDefinition(crdFoo, "v1")
		d.labels = label
		d.create(t, ctx)
	}
	list, err := crdClient(t).List(ctx, selector)
	check(t, err)
	if len(list.Items) != 10 {
		t.Errorf("%d definitions have the label", len(list.Items))
	}
	check(t, crdClient(t).DeleteCollection(ctx, metav1.DeleteOptions{}, selector))
	eventually(t, ctx, "the definitions are gone", func() error {
		list, err := crdClient(t).List(ctx, selector)
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are left", len(list.Items))
		}
		return err
	})
	_, err = crdClient(t).Get(ctx, keeps.name(), metav1.GetOptions{})
	check(t, err)
}

func crdDefaulting(t *testing.T, ctx context.Context, namespace string) {
	withDefault := func(a, b string) string {
		return `{"type":"object","properties":{"a":{"type":"string"` + a + `},"b":{"type":"string"` + b + `}}}`
	}
	d := newDefinition(withDefault("", ""), "v1")
	d.create(t, ctx)
	objects := dynamicClient(t).Resource(d.gvr("v1")).Namespace(namespace)
	old, err := objects.Create(ctx, d.cr(t, "v1", "old", ""), metav1.CreateOptions{})
	check(t, err)
	if old.Object["a"] != nil {
		t.Errorf("without a default: %v", old.Object)
	}
	set := func(schema string) {
		_, err := crdClient(t).Patch(ctx, d.name(), types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema","value":`+schema+`}]`), metav1.PatchOptions{})
		check(t, err)
	}
	reads := func(name, a, b string) {
		t.Helper()
		eventually(t, ctx, "the defaults show", func() error {
			got, err := objects.Get(ctx, name, metav1.GetOptions{})
			if err == nil && (fmt.Sprint(got.Object["a"]) != a || fmt.Sprint(got.Object["b"]) != b) {
				err = fmt.Errorf("%v", got.Object)
			}
			return err
		})
	}
	set(withDefault(`,"default":"A"`, ""))
	reads("old", "A", "<nil>")
	fresh, err := objects.Create(ctx, d.cr(t, "v1", "new", ""), metav1.CreateOptions{})
	check(t, err)
	if fresh.Object["a"] != "A" {
		t.Errorf("created: %v", fresh.Object)
	}
	set(withDefault("", `,"default":"B"`))
	reads("new", "A", "B") // the default A was stored with it
	reads("old", "<nil>", "B")
}

func crdDiscovery(t *testing.T, ctx context.Context, _ string) {
	groups, err := admin.Discovery().ServerGroups()
	check(t, err)
	version := metav1.GroupVersionForDiscovery{GroupVersion: "apiextensions.k8s.io/v1", Version: "v1"}
	if !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool {
		return g.Name == "apiextensions.k8s.io" && slices.Contains(g.Versions, version)
	}) {
		t.Error("/apis does not list the group and its version")
	}
	var group metav1.APIGroup
	text, err := admin.Discovery().RESTClient().Get().AbsPath("/apis/apiextensions.k8s.io").DoRaw(ctx)
	check(t, err)
	check(t, json.Unmarshal(text, &group))
	if !slices.Contains(group.Versions, version) {
		t.Errorf("the group lists %v", group.Versions)
	}
	list, err := admin.Discovery().ServerResourcesForGroupVersion("apiextensions.k8s.io/v1")
	check(t, err)
	if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "customresourcedefinitions" }) {
		t.Errorf("the version lists %v", list.APIResources)
	}
}

func aggregatedCRD(t *testing.T, ctx context.Context, _ string) {
	d := newDefinition(crdFoo, "v1")
	d.create(t, ctx)
	within, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	eventually(t, within, "the aggregated document lists the kind", func() error {
		text, err := admin.Discovery().RESTClient().Get().AbsPath("/apis").SetHeader("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList").DoRaw(within)
		if err != nil {
			return err
		}
		var list struct {
			Kind  string
			Items []struct {
				Metadata metav1.ObjectMeta
				Versions []struct {
					Version   string
					Resources []struct{ Resource string }
				}
			}
		}
		check(t, json.Unmarshal(text, &list))
		for _, g := range list.Items {
			if list.Kind == "APIGroupDiscoveryList" && g.Metadata.Name == d.group && g.Versions[0].Version == "v1" && g.Versions[0].Resources[0].Resource == d.plural {
				return nil
			}
		}
		return fmt.Errorf("%s is not listed", d.group)
	})
}

func clientDiscoversCRD(t *testing.T, ctx context.Context, _ string) {
	d := newDefinition(crdFoo, "v1")
	d.create(t, ctx)
	within, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	aggregated, ok := admin.Discovery().(interface {
		GroupsAndMaybeResources() (*metav1.APIGroupList, map[schema.GroupVersion]*metav1.APIResourceList, map[schema.GroupVersion]error, error)
	})
	if !ok {
		t.Fatal("the client has no aggregated discovery")
	}
	eventually(t, within, "the client discovers the kind", func() error {
		_, resources, _, err := aggregated.GroupsAndMaybeResources()
		if err != nil {
			return err
		}
		list := resources[schema.GroupVersion{Group: d.group, Version: "v1"}]
		if list == nil || list.APIResources[0].Name != d.plural {
			return fmt.Errorf("discovered %v", list)
		}
		return nil
	})
}

func crdWatch(t *testing.T, ctx context.Context, _ string) {
	d := newDefinition(`{"type":"object","x-kubernetes-preserve-unknown-fields":true}`, "v1")
	d.create(t, ctx)
	ns := namespace(t, ctx, "crd-watch-objects")
	objects := dynamicClient(t).Resource(d.gvr("v1")).Namespace(ns)
	watchOf := func(name string) watch.Interface {
		w, err := objects.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		check(t, err)
		t.Cleanup(w.Stop)
		return w
	}
	expect := func(w watch.Interface, kind watch.EventType, name string) {
		t.Helper()
		select {
		case e := <-w.ResultChan():
			if got, ok := e.Object.(*unstructured.Unstructured); !ok || e.Type != kind || got.GetName() != name {
				t.Fatalf("event %s of %v, want %s of %s", e.Type, e.Object, kind, name)
			}
		case <-ctx.Done():
			t.Fatalf("no event %s of %s", kind, name)
		}
	}
	names := []string{"name1", "name2"}
	watches := []watch.Interface{watchOf("name1"), watchOf("name2")}
	for i, name := range names {
		_, err := objects.Create(ctx, d.cr(t, "v1", name, `,"num":{"num1":1}`), metav1.CreateOptions{})
		check(t, err)
		expect(watches[i], watch.Added, name)
	}
	for i, name := range names {
		_, err := objects.Patch(ctx, name, types.MergePatchType, []byte(`{"dummy":"test"}`), metav1.PatchOptions{})
		check(t, err)
		expect(watches[i], watch.Modified, name)
	}
	for i, name := range names {
		check(t, objects.Delete(ctx, name, metav1.DeleteOptions{}))
		expect(watches[i], watch.Deleted, name)
	}
	for i, w := range watches {
		select {
		case e := <-w.ResultChan():
			t.Errorf("the watch of %s has a further event: %v", names[i], e)
		default:
		}
	}
}

// published returns a definition of /openapi/v2, or an error if it is not there.
func published(ctx context.Context, model string) (map[string]any, error) {
	text, err := admin.Discovery().RESTClient().Get().AbsPath("/openapi/v2").SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var doc struct{ Definitions map[string]map[string]any }
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	if doc.Definitions[model] == nil {
		return nil, fmt.Errorf("%s is not published", model)
	}
	return doc.Definitions[model], nil
}

// publishes waits until a version is published with exactly its schema.
func (d *definition) publishes(t *testing.T, ctx context.Context, version, schema string) {
	t.Helper()
	var want map[string]any
	check(t, json.Unmarshal([]byte(schema), &want))
	want["x-kubernetes-group-version-kind"] = []any{map[string]any{"group": d.group, "version": version, "kind": d.kind}}
	if keeps := want["x-kubernetes-preserve-unknown-fields"]; keeps == true {
		want = map[string]any{"type": "object", "x-kubernetes-group-version-kind": want["x-kubernetes-group-version-kind"]}
	}
	eventually(t, ctx, version+" is published", func() error {
		got, err := published(ctx, d.model(version))
		if err != nil {
			return err
		}
		if properties, ok := got["properties"].(map[string]any); ok {
			for _, name := range []string{"apiVersion", "kind", "metadata"} {
				if properties[name] == nil {
					t.Fatalf("%s has no property %s", version, name)
				}
				delete(properties, name)
			}
		}
		if !reflect.DeepEqual(got, want) {
			return fmt.Errorf("published %v, want %v", got, want)
		}
		return nil
	})
}

// hides waits until a version is not published.
func (d *definition) hides(t *testing.T, ctx context.Context, version string) {
	t.Helper()
	eventually(t, ctx, version+" is not published", func() error {
		if _, err := published(ctx, d.model(version)); err == nil {
			return fmt.Errorf("it is published")
		} else if !strings.HasSuffix(err.Error(), "is not published") {
			return err
		}
		return nil
	})
}

func crdPublishSchema(t *testing.T, ctx context.Context, namespace string) {
	d := newDefinition(crdFoo, "v1")
	d.create(t, ctx)
	d.publishes(t, ctx, "v1", crdFoo)
	good := d.manifest("v1", "test-cr", `,"spec":{"bars":[{"name":"test-bar"}]}`)
	for _, verb := range []string{"create", "apply"} {
		kubectl(t, ctx, namespace, good, verb, "-f", "-")
		kubectl(t, ctx, namespace, "", "delete", d.plural, "test-cr")
		for _, bad := range []struct{ spec, want string }{
			{`{"bars":[{"name":"test-bar","unknown":"x"}]}`, `unknown field "spec.bars[0].unknown"`},
			{`{"bars":[{"age":"10"}]}`, `Required value`},
			{`{"bars":[{"name":"test-bar","feeling":"NonExistentValue"}]}`, `Unsupported value: "NonExistentValue"`},
		} {
			if _, err := tryKubectl(ctx, namespace, d.manifest("v1", "test-cr", `,"spec":`+bad.spec), verb, "-f", "-"); err == nil || !strings.Contains(err.Error(), bad.want) {
				t.Errorf("%s of %s: %v, want %s", verb, bad.spec, err, bad.want)
			}
		}
	}
	for path, texts := range map[string][]string{
		d.plural:                     {"Foo CRD for Testing", "apiVersion", "metadata", "Specification of Foo"},
		d.plural + ".metadata":       {"name", "creationTimestamp"},
		d.plural + ".spec":           {"Specification of Foo", "List of Bars and their specs"},
		d.plural + ".spec.bars":      {"List of Bars and their specs", "name", "Name of Bar", "-required-"},
		d.plural + ".spec.bars.bazs": {"List of Bazs"},
	} {
		out := kubectl(t, ctx, namespace, "", "explain", path)
		for _, text := range texts {
			if !strings.Contains(out, text) {
				t.Errorf("explain %s lacks %q: %s", path, text, out)
			}
		}
	}
	if _, err := tryKubectl(ctx, namespace, "", "explain", d.plural+".spec.bars2"); err == nil {
		t.Error("an unknown path is explained")
	}
}

// crdPublishKept tests a definition whose schema keeps unknown fields. description is
// what kubectl explain prints.
func crdPublishKept(schema, description string) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		d := newDefinition(schema, "v1")
		d.create(t, ctx)
		want := schema
		if schema == crdKeepsNested { // v2 cannot say that unknown fields are kept but by the extension
			eventually(t, ctx, "the kind is published", func() error {
				got, err := published(ctx, d.model("v1"))
				if err == nil && got["description"] != description {
					err = fmt.Errorf("published %v", got)
				}
				return err
			})
		} else {
			d.publishes(t, ctx, "v1", want)
		}
		body := d.manifest("v1", "test-cr", `,"spec":{"a":null,"b":[{"c":"d"}]}`)
		if schema != crdKeepsNested {
			body = d.manifest("v1", "test-cr", `,"a":{"b":[{"c":"d"}]}`)
		}
		for _, verb := range []string{"create", "apply"} {
			kubectl(t, ctx, namespace, body, verb, "-f", "-")
			kubectl(t, ctx, namespace, "", "delete", d.plural, "test-cr")
		}
		out := kubectl(t, ctx, namespace, "", "explain", d.plural)
		if !strings.Contains(out, d.kind) || !strings.Contains(out, description) {
			t.Errorf("explain: %s", out)
		}
	}
}

func crdPublishGroups(t *testing.T, ctx context.Context, _ string) {
	a, b := newDefinition(crdFoo, "v1"), newDefinition(crdKeepsRoot, "v2")
	publishAndDelete(t, ctx, a, b)
}

func crdPublishKinds(t *testing.T, ctx context.Context, _ string) {
	a, b := newDefinition(crdFoo, "v1"), newDefinition(crdFoo, "v1")
	b.group = a.group
	publishAndDelete(t, ctx, a, b)
}

func crdPublishVersions(t *testing.T, ctx context.Context, _ string) {
	publishAndDelete(t, ctx, newDefinition(crdFoo, "v2", "v3"))
	a, b := newDefinition(crdFoo, "v4"), newDefinition(crdKeepsRoot, "v5")
	b.group = a.group
	publishAndDelete(t, ctx, a, b)
}

// publishAndDelete creates definitions, checks that each version is published, and that
// it is not after the definitions are deleted.
func publishAndDelete(t *testing.T, ctx context.Context, all ...*definition) {
	t.Helper()
	for _, d := range all {
		d.create(t, ctx)
	}
	for _, d := range all {
		for _, v := range d.versions {
			d.publishes(t, ctx, v.name, v.schema)
		}
	}
	for _, d := range all {
		d.delete(t, ctx)
		for _, v := range d.versions {
			d.hides(t, ctx, v.name)
		}
	}
}

func crdRename(t *testing.T, ctx context.Context, _ string) {
	d := newDefinition(crdFoo, "v3", "v2")
	d.create(t, ctx)
	d.publishes(t, ctx, "v2", crdFoo)
	d.publishes(t, ctx, "v3", crdFoo)
	_, err := crdClient(t).Patch(ctx, d.name(), types.JSONPatchType, []byte(`[{"op":"test","path":"/spec/versions/1/name","value":"v2"},{"op":"replace","path":"/spec/versions/1/name","value":"v4"}]`), metav1.PatchOptions{})
	check(t, err)
	d.publishes(t, ctx, "v4", crdFoo)
	d.hides(t, ctx, "v2")
	d.publishes(t, ctx, "v3", crdFoo)
}

func crdUnserved(t *testing.T, ctx context.Context, _ string) {
	d := newDefinition(crdFoo, "v5", "v6alpha1")
	d.create(t, ctx)
	d.publishes(t, ctx, "v5", crdFoo)
	d.publishes(t, ctx, "v6alpha1", crdFoo)
	tag := openAPITag(t, ctx, "")
	_, err := crdClient(t).Patch(ctx, d.name(), types.JSONPatchType, []byte(`[{"op":"test","path":"/spec/versions/1/name","value":"v6alpha1"},{"op":"replace","path":"/spec/versions/1/served","value":false}]`), metav1.PatchOptions{})
	check(t, err)
	d.hides(t, ctx, "v6alpha1")
	d.publishes(t, ctx, "v5", crdFoo)
	if next := openAPITag(t, ctx, tag); next == tag {
		t.Errorf("the ETag is still %s", tag)
	}
}

// openAPITag returns the ETag of /openapi/v2; have, unless it is "", is that of the copy
// which the client has.
func openAPITag(t *testing.T, ctx context.Context, have string) string {
	t.Helper()
	url := admin.Discovery().RESTClient().Get().AbsPath("/openapi/v2").URL().String()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	check(t, err)
	if have != "" {
		r.Header.Set("If-None-Match", have)
	}
	client, err := rest.HTTPClientFor(config)
	check(t, err)
	answer, err := client.Do(r)
	check(t, err)
	answer.Body.Close()
	if answer.StatusCode == http.StatusNotModified {
		return have
	}
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("/openapi/v2: %s", answer.Status)
	}
	return answer.Header.Get("ETag")
}

func crNoSchema(t *testing.T, ctx context.Context, namespace string) {
	d := newDefinition(`{"type":"object","x-kubernetes-preserve-unknown-fields":true}`, "v1")
	d.create(t, ctx)
	if out, err := d.apply(ctx, namespace, "mytest", d.manifest("v1", "mytest", `,"spec":{"unknown":"uk1","cronSpec":"* * * * */5"}`)); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

const cronSchema = `{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{
	"cronSpec":{"type":"string","pattern":"^(\\d+|\\*)(/\\d+)?(\\s+(\\d+|\\*)(/\\d+)?){4}$"},"foo":{"type":"string"},
	"ports":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["containerPort","protocol"],"items":{"type":"object","required":["containerPort","protocol"],"properties":{
		"containerPort":{"type":"integer","format":"int32"},"hostIP":{"type":"string"},"hostPort":{"type":"integer","format":"int32"},"name":{"type":"string"},"protocol":{"type":"string"}}}},
	"template":{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"metadata":{"type":"object","properties":{"name":{"type":"string"}}},"spec":{"type":"object","properties":{"foo":{"type":"string"}}}}}}}}}`

// yamlOf returns a custom resource as YAML; fields begin at the top level.
func (d *definition) yamlOf(name, metadata, fields string) string {
	return fmt.Sprintf("apiVersion: %s/v1\nkind: %s\nmetadata:\n  name: %s\n%s%s", d.group, d.kind, name, metadata, fields)
}

func crValid(t *testing.T, ctx context.Context, namespace string) {
	d := newDefinition(cronSchema, "v1")
	d.create(t, ctx)
	body := d.yamlOf("mytest", "  finalizers:\n  - test/finalizer\n", "spec:\n  cronSpec: \"* * * * */5\"\n  ports:\n  - name: x\n    containerPort: 80\n    protocol: TCP\n")
	out, err := d.apply(ctx, namespace, "mytest", body)
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	_, err = dynamicClient(t).Resource(d.gvr("v1")).Namespace(namespace).Patch(ctx, "mytest", types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`), metav1.PatchOptions{})
	check(t, err)
}

func crUnknownFields(t *testing.T, ctx context.Context, namespace string) {
	d := newDefinition(cronSchema, "v1")
	d.create(t, ctx)
	body := d.yamlOf("mytest", "", "unknownField: unknown\nspec:\n  cronSpec: \"* * * * */5\"\n")
	if out, err := d.apply(ctx, namespace, "mytest", body); err == nil || !strings.Contains(out, ".unknownField: field not declared in schema") {
		t.Errorf("%v: %s", err, out)
	}
}

func crDuplicates(t *testing.T, ctx context.Context, namespace string) {
	d := newDefinition(cronSchema, "v1")
	d.create(t, ctx)
	post := func(contentType, body string) (string, error) {
		text, err := admin.Discovery().RESTClient().Post().AbsPath("/apis", d.group, "v1", "namespaces", namespace, d.plural).
			Param("fieldValidation", "Strict").SetHeader("Content-Type", contentType).Body([]byte(body)).DoRaw(ctx)
		return string(text), err
	}
	body := d.yamlOf("mytest", "", "spec:\n  unknown: uk1\n  cronSpec: \"* * * * */5\"\n  foo: foo1\n  foo: foo2\n")
	if out, err := post("application/yaml", body); err == nil || !strings.Contains(out, `key \"foo\" already set in map`) {
		t.Errorf("YAML: %v: %s", err, out)
	}
	if out, err := post("application/json", d.manifest("v1", "mytest", `,"spec":{"unknown":"uk1","foo":"foo1","foo":"foo2"}`)); err == nil || !strings.Contains(out, `duplicate field \"spec.foo\"`) {
		t.Errorf("JSON: %v: %s", err, out)
	}
	if out, err := d.apply(ctx, namespace, "mytest", body); err == nil || !strings.Contains(out, `key \"foo\" already set in map`) {
		t.Errorf("apply: %v: %s", err, out)
	}
}

func crUnknownMetadata(t *testing.T, ctx context.Context, namespace string) {
	d := newDefinition(cronSchema, "v1")
	d.create(t, ctx)
	template := func(metadata string) string {
		return "spec:\n  template:\n    apiVersion: foo/v1\n    kind: Sub\n    metadata:\n      name: subobject\n" + metadata + "    spec:\n      foo: bar\n"
	}
	if out, err := d.apply(ctx, namespace, "good", d.yamlOf("good", "", template(""))); err != nil {
		t.Errorf("valid: %v: %s", err, out)
	}
	if out, err := d.apply(ctx, namespace, "root", d.yamlOf("root", "  unknownMeta: unknown\n", template(""))); err == nil || !strings.Contains(out, ".metadata.unknownMeta: field not declared in schema") {
		t.Errorf("at the root: %v: %s", err, out)
	}
	if out, err := d.apply(ctx, namespace, "embedded", d.yamlOf("embedded", "", template("      unknownSubMeta: unknown\n"))); err == nil || !strings.Contains(out, ".spec.template.metadata.unknownSubMeta: field not declared in schema") {
		t.Errorf("embedded: %v: %s", err, out)
	}
}
