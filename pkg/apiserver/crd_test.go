package apiserver_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8stypes "k8s.io/apimachinery/pkg/types"

	"podium/pkg/apiserver"
	"podium/pkg/scheme"
	"podium/pkg/storage/memory"
)

const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// crdOf returns a definition of kind Gadget with one version. schema is JSON, and
// version has more fields of the version, which begin with a comma.
func crdOf(schema, version string) string {
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gadgets.stable.example.com"},
		"spec":{"group":"stable.example.com","scope":"Namespaced","names":{"plural":"gadgets","kind":"Gadget","shortNames":["gd"],"categories":["all"]},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":` + schema + `}` + version + `}]}}`
}

const (
	gadgets    = "/apis/stable.example.com/v1/namespaces/default/gadgets"
	gadgetSize = `{"type":"object","properties":{"spec":{"type":"object","properties":{
		"size":{"type":"integer","minimum":0,"default":1},"color":{"type":"string"},"tags":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"}}},
		"status":{"type":"object","properties":{"ready":{"type":"integer"}}}}}`
)

func gadget(name, rest string) string {
	return `{"apiVersion":"stable.example.com/v1","kind":"Gadget","metadata":{"name":"` + name + `"}` + rest + `}`
}

// eventually calls done until it returns true.
func (w *world) eventually(what string, done func() bool) {
	w.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("timeout: %s", what)
		}
	}
}

// define creates a definition and waits until it is established.
func (w *world) define(crd string) *apiextensionsv1.CustomResourceDefinition {
	w.Helper()
	made := must[apiextensionsv1.CustomResourceDefinition](w, 201, "POST", crds, jsonType, crd)
	w.eventually("Established", func() bool {
		made = must[apiextensionsv1.CustomResourceDefinition](w, 200, "GET", crds+"/"+made.Name, "", "")
		return condition(made, apiextensionsv1.Established) == "True InitialNamesAccepted"
	})
	return made
}

func condition(crd *apiextensionsv1.CustomResourceDefinition, of apiextensionsv1.CustomResourceDefinitionConditionType) string {
	for _, c := range crd.Status.Conditions {
		if c.Type == of {
			return fmt.Sprint(c.Status, " ", c.Reason)
		}
	}
	return ""
}

// The life of a definition: defaults, names, established at once, served, deleted with
// its instances.
func TestCustomResourceDefinitionLifeCycle(t *testing.T) {
	w := start(t)
	began := time.Now()
	made := w.define(crdOf(gadgetSize, ""))
	took := time.Since(began)
	if n := made.Status.AcceptedNames; n.Plural != "gadgets" || n.Singular != "gadget" || n.ListKind != "GadgetList" || condition(made, apiextensionsv1.NamesAccepted) != "True NoConflicts" ||
		fmt.Sprint(made.Status.StoredVersions) != "[v1]" || made.Generation != 1 || made.Spec.Conversion.Strategy != "None" {
		t.Errorf("definition: %+v", made)
	}
	got := must[unstructured.Unstructured](w, 201, "POST", gadgets, jsonType, gadget("a", `,"spec":{"color":"red","bogus":1}`))
	if specOf(got) != `{"color":"red","size":1}` || got.GetGeneration() != 1 || got.GetKind() != "Gadget" {
		t.Errorf("created %v", got.Object)
	}
	list := must[unstructured.UnstructuredList](w, 200, "GET", gadgets, "", "")
	if list.GetKind() != "GadgetList" || len(list.Items) != 1 {
		t.Errorf("list %v", list)
	}
	deleted := must[apiextensionsv1.CustomResourceDefinition](w, 200, "DELETE", crds+"/"+made.Name, "", "")
	if deleted.DeletionTimestamp == nil || condition(deleted, apiextensionsv1.Terminating) != "True InstanceDeletionPending" {
		t.Errorf("deleted: %+v", deleted)
	}
	w.eventually("the definition is gone", func() bool { return w.do("GET", crds+"/"+made.Name, "", "").Code == 404 })
	w.eventually("the kind is not served", func() bool { return w.do("GET", gadgets, "", "").Code == 404 })
	began = time.Now()
	w.define(crdOf(gadgetSize, ""))
	if took = min(took, time.Since(began)); took > time.Second { // the better one of two: other tests use the processors
		t.Errorf("established after %v", took)
	}
	must[metav1.Status](w, 404, "GET", gadgets+"/a", "", "")
}

// What each custom resource of a definition obeys: pruning, defaults, validation,
// subresources, columns, selectors.
func TestCustomResourceRules(t *testing.T) {
	w := start(t)
	schema := `{"type":"object","required":["spec"],"properties":{
		"spec":{"type":"object","x-kubernetes-validations":[
			{"rule":"self.size <= self.most","message":"size over most"},
			{"rule":"self.fixed == oldSelf.fixed","message":"fixed may not change"}],
		 "properties":{
			"size":{"type":"integer","minimum":0,"default":1},"most":{"type":"integer","default":10},"fixed":{"type":"string","default":"f"},
			"color":{"type":"string","enum":["red","blue"]},
			"port":{"x-kubernetes-int-or-string":true},
			"free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
			"template":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true},
			"tags":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"},
			"parts":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],"items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"n":{"type":"integer"}}}}}},
		"status":{"type":"object","properties":{"ready":{"type":"integer","minimum":0},"selector":{"type":"string"}}}}}`
	w.define(crdOf(schema, `,"subresources":{"status":{},"scale":{"specReplicasPath":".spec.size","statusReplicasPath":".status.ready","labelSelectorPath":".status.selector"}},
		"additionalPrinterColumns":[{"name":"Size","type":"integer","jsonPath":".spec.size"},{"name":"Color","type":"string","jsonPath":".spec.color"},{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}],
		"selectableFields":[{"jsonPath":".spec.color"}]`))
	type object = unstructured.Unstructured
	refused := func(spec string, texts ...string) {
		t.Helper()
		status := must[metav1.Status](w, 422, "POST", gadgets, jsonType, gadget("x", `,"spec":`+spec))
		for _, text := range texts {
			if !strings.Contains(status.Message, text) {
				t.Errorf("%s: %s\nwant %s", spec, status.Message, text)
			}
		}
	}
	refused(`{"size":-1}`, `spec.size: Invalid value: -1: spec.size in body should be greater than or equal to 0`)
	refused(`{"size":"many"}`, `spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"`)
	refused(`{"color":"pink"}`, `spec.color: Unsupported value: "pink": supported values: "red", "blue"`)
	refused(`{"size":11}`, `spec: Invalid value: size over most`)
	refused(`{"tags":["a","a"]}`, `spec.tags[1]: Duplicate value: "a"`)
	refused(`{"parts":[{"name":"a"},{"name":"a"}]}`, `spec.parts[1]: Duplicate value: {"name":"a"}`)
	refused(`{"parts":[{}]}`, `spec.parts[0].name: Required value`)
	refused(`{"port":true}`, `spec.port`)
	refused(`{"template":{"kind":"X"}}`, `spec.template.apiVersion: Required value`)
	refused(`{"template":{"kind":"X","apiVersion":"v1","metadata":{"labels":5}}}`, `spec.template.metadata`)
	must[metav1.Status](w, 422, "POST", gadgets, jsonType, gadget("x", ``))

	made := must[object](w, 201, "POST", gadgets, jsonType, gadget("a", `,"spec":{"color":"red","free":{"x":{"y":1}},"bogus":2,"port":"http","template":{"kind":"X","apiVersion":"v1","metadata":{"name":"n","what":1},"spec":{"z":1}}},"status":{"ready":3}`))
	if specOf(made) != `{"color":"red","fixed":"f","free":{"x":{"y":1}},"most":10,"port":"http","size":1,"template":{"apiVersion":"v1","kind":"X","metadata":{"name":"n"},"spec":{"z":1}}}` || made.Object["status"] != nil {
		t.Errorf("created %v", made.Object)
	}
	strict := must[metav1.Status](w, 400, "POST", gadgets+"?fieldValidation=Strict", jsonType, gadget("b", `,"spec":{"bogus":2,"size":1,"size":2,"template":{"kind":"X","apiVersion":"v1","metadata":{"what":1}}}`))
	for _, want := range []string{`duplicate field "spec.size"`, `unknown field "spec.bogus"`, `unknown field "spec.template.metadata.what"`} {
		if !strings.Contains(strict.Message, want) {
			t.Errorf("strict: %s\nwant %s", strict.Message, want)
		}
	}

	if status := must[metav1.Status](w, 422, "PATCH", gadgets+"/a", mergeType, `{"spec":{"fixed":"g"}}`); !strings.Contains(status.Message, "fixed may not change") {
		t.Errorf("transition: %s", status.Message)
	}
	changed := must[object](w, 200, "PATCH", gadgets+"/a", mergeType, `{"spec":{"size":2},"status":{"ready":1},"metadata":{"labels":{"l":"1"}}}`)
	if changed.GetGeneration() != 2 || changed.Object["status"] != nil {
		t.Errorf("patched %v", changed.Object)
	}
	if got := must[object](w, 200, "PATCH", gadgets+"/a", mergeType, `{"metadata":{"labels":{"l":"2"}}}`); got.GetGeneration() != 2 {
		t.Errorf("a change of the metadata increments the generation: %v", got.Object)
	}
	got := must[object](w, 200, "PATCH", gadgets+"/a/status", mergeType, `{"spec":{"size":9},"status":{"ready":1,"selector":"a=b"}}`)
	if ready, _, _ := unstructured.NestedInt64(got.Object, "status", "ready"); ready != 1 || !strings.Contains(specOf(got), `"size":2`) || got.GetGeneration() != 2 {
		t.Errorf("status %v", got.Object)
	}
	must[metav1.Status](w, 422, "PATCH", gadgets+"/a/status", mergeType, `{"status":{"ready":-1}}`)

	scale := must[autoscalingv1.Scale](w, 200, "GET", gadgets+"/a/scale", "", "")
	if scale.Spec.Replicas != 2 || scale.Status.Replicas != 1 || scale.Status.Selector != "a=b" {
		t.Errorf("scale %+v", scale)
	}
	scale = must[autoscalingv1.Scale](w, 200, "PATCH", gadgets+"/a/scale", mergeType, `{"spec":{"replicas":4}}`)
	if scale.Spec.Replicas != 4 {
		t.Errorf("scaled %+v", scale)
	}
	table := must[metav1.Table](w, 200, "GET", gadgets, "", "", "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
	if cells := fmt.Sprint(table.Rows[0].Cells); len(table.ColumnDefinitions) != 4 || !strings.HasPrefix(cells, "[a 4 red ") {
		t.Errorf("table %v %v", table.ColumnDefinitions, cells)
	}
	must[object](w, 201, "POST", gadgets, jsonType, gadget("b", `,"spec":{"color":"blue"}`))
	list := must[unstructured.UnstructuredList](w, 200, "GET", gadgets+"?fieldSelector=spec.color%3Dblue", "", "")
	if len(list.Items) != 1 || list.Items[0].GetName() != "b" {
		t.Errorf("selected %v", list.Items)
	}
	must[metav1.Status](w, 400, "GET", gadgets+"?fieldSelector=spec.size%3D1", "", "")

	const applyType = "application/apply-patch+yaml"
	applied := must[object](w, 201, "PATCH", gadgets+"/c?fieldManager=m&fieldValidation=Strict", applyType, gadget("c", `,"spec":{"size":3,"parts":[{"name":"a","n":1}]}`))
	if specOf(applied) != `{"fixed":"f","most":10,"parts":[{"n":1,"name":"a"}],"size":3}` {
		t.Errorf("applied %v", applied.Object)
	}
	merged := must[object](w, 200, "PATCH", gadgets+"/c?fieldManager=other", applyType, gadget("c", `,"spec":{"parts":[{"name":"b","n":2}]}`))
	if !strings.Contains(specOf(merged), `"parts":[{"n":1,"name":"a"},{"n":2,"name":"b"}]`) {
		t.Errorf("applied by another manager: %v", merged.Object)
	}
	if rec := w.do("PATCH", gadgets+"/c?fieldManager=m&fieldValidation=Strict", applyType, gadget("c", `,"unknownField":1`)); !strings.Contains(rec.Body.String(), ".unknownField: field not declared in schema") {
		t.Errorf("apply of an unknown field: %d %s", rec.Code, rec.Body)
	}
}

// Versions share objects; each has its own schema, subresources and columns. A stored
// object of another version remains readable.
func TestCustomResourceVersions(t *testing.T) {
	w := start(t)
	version := func(name, fields string, served, storage bool) string {
		return fmt.Sprintf(`{"name":%q,"served":%t,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{%s}}}}}}`, name, served, storage, fields)
	}
	crd := func(versions ...string) string {
		return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gadgets.stable.example.com"},
		"spec":{"group":"stable.example.com","scope":"Namespaced","names":{"plural":"gadgets","kind":"Gadget"},"versions":[` + strings.Join(versions, ",") + `]}}`
	}
	const a, b = `"a":{"type":"string","default":"A"}`, `"b":{"type":"string","default":"B"}`
	w.define(crd(version("v1", a, true, true), version("v2", a+","+b, true, false)))
	in := func(v string) string { return strings.Replace(gadgets, "/v1/", "/"+v+"/", 1) }
	made := must[unstructured.Unstructured](w, 201, "POST", in("v1"), jsonType, gadget("x", `,"spec":{"b":"dropped"}`))
	if specOf(made) != `{"a":"A"}` || made.GetAPIVersion() != "stable.example.com/v1" {
		t.Errorf("v1: %v", made.Object)
	}
	read := must[unstructured.Unstructured](w, 200, "GET", in("v2")+"/x", "", "")
	if read.GetAPIVersion() != "stable.example.com/v2" || specOf(read) != `{"a":"A"}` {
		t.Errorf("v2: %v", read.Object)
	}
	// v2 becomes the storage version and the only one that is served.
	next := strings.Replace(crd(version("v1", a, false, false), version("v2", a+","+b, true, true)), "1", "1", 1)
	patched := must[apiextensionsv1.CustomResourceDefinition](w, 200, "PATCH", crds+"/gadgets.stable.example.com", mergeType, `{"spec":{"versions":`+next[strings.Index(next, `"versions":`)+len(`"versions":`):len(next)-2]+`}}`)
	if fmt.Sprint(patched.Status.StoredVersions) != "[v1 v2]" {
		t.Errorf("stored versions: %v", patched.Status.StoredVersions)
	}
	w.eventually("v1 is not served", func() bool { return w.do("GET", in("v1")+"/x", "", "").Code == 404 })
	read = must[unstructured.Unstructured](w, 200, "GET", in("v2")+"/x", "", "")
	if specOf(read) != `{"a":"A","b":"B"}` || read.GetUID() != made.GetUID() {
		t.Errorf("v2, read from v1: %v", read.Object)
	}
	must[metav1.Status](w, 422, "PATCH", crds+"/gadgets.stable.example.com", mergeType, `{"spec":{"versions":[`+version("v2", a, true, true)+`]}}`)
}

// Names that another definition has are not accepted until that is gone.
func TestCustomResourceNameConflicts(t *testing.T) {
	w := start(t)
	w.define(crdOf(gadgetSize, ""))
	other := strings.NewReplacer("gadgets", "others", `"kind":"Gadget"`, `"kind":"Gadget"`, `"gd"`, `"gd","ot"`).Replace(crdOf(gadgetSize, ""))
	must[apiextensionsv1.CustomResourceDefinition](w, 201, "POST", crds, jsonType, other)
	var got *apiextensionsv1.CustomResourceDefinition
	w.eventually("the conflict is reported", func() bool {
		got = must[apiextensionsv1.CustomResourceDefinition](w, 200, "GET", crds+"/others.stable.example.com", "", "")
		return condition(got, apiextensionsv1.NamesAccepted) == "False ListKindConflict"
	})
	if condition(got, apiextensionsv1.Established) != "False NotAccepted" || got.Status.AcceptedNames.Kind != "" || got.Status.AcceptedNames.Plural != "others" {
		t.Errorf("status %+v", got.Status)
	}
	must[apiextensionsv1.CustomResourceDefinition](w, 200, "DELETE", crds+"/gadgets.stable.example.com", "", "")
	w.eventually("the names are free", func() bool {
		got = must[apiextensionsv1.CustomResourceDefinition](w, 200, "GET", crds+"/others.stable.example.com", "", "")
		return condition(got, apiextensionsv1.Established) == "True InitialNamesAccepted"
	})
	must[unstructured.Unstructured](w, 201, "POST", strings.Replace(gadgets, "gadgets", "others", 1), jsonType, gadget("a", ""))
}

// Two API servers on one store agree. Once one says that a kind is established, both
// serve it: a client need not wait for the other one.
func TestCustomResourcesOnTwoServers(t *testing.T) {
	store := memory.New()
	shared := func(c *apiserver.Config) { c.Store = store }
	one, two := start(t, shared), start(t, shared, func(c *apiserver.Config) { c.Identity = "other" })
	for i := range 20 {
		group := fmt.Sprintf("g%d.example.com", i)
		crd := strings.ReplaceAll(crdOf(gadgetSize, ""), "stable.example.com", group)
		at := strings.Replace(gadgets, "stable.example.com", group, 1)
		one.define(crd)
		must[unstructured.Unstructured](two, 201, "POST", at, jsonType, strings.Replace(gadget("a", ""), "stable.example.com", group, 1))
		must[unstructured.Unstructured](one, 200, "GET", at+"/a", "", "")
		must[apiextensionsv1.CustomResourceDefinition](one, 200, "DELETE", crds+"/gadgets."+group, "", "")
		two.eventually("the definition is gone", func() bool { return two.do("GET", crds+"/gadgets."+group, "", "").Code == 404 })
		two.eventually("the kind is gone", func() bool { return two.do("GET", at, "", "").Code == 404 })
	}
}

// A server that starts with many definitions is ready soon, and then serves all of them.
func TestManyDefinitionsAtStart(t *testing.T) {
	const n = 1000
	store, types := memory.New(), scheme.New()
	name := func(i int) string { return fmt.Sprintf("many%d.example.com", i%10) }
	plural := func(i int) string { return fmt.Sprintf("gadget%ds", i) }
	for i := range n {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		text := strings.NewReplacer("stable.example.com", name(i), "gadgets", plural(i), `"Gadget"`, fmt.Sprintf(`"Gadget%d"`, i), `"gd"`, fmt.Sprintf(`"gd%d"`, i)).Replace(crdOf(gadgetSize, ""))
		if err := json.Unmarshal([]byte(text), crd); err != nil {
			t.Fatal(err)
		}
		crd.UID, crd.Generation = k8stypes.UID(plural(i)), 1
		value, err := types.Encode(crd, scheme.Protobuf)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Create(t.Context(), "/registry/customresourcedefinitions.apiextensions.k8s.io/"+crd.Name, value); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	w := start(t, func(c *apiserver.Config) { c.Store = store })
	took := time.Since(began)
	t.Logf("ready after %v", took)
	if took > 30*time.Second { // 1.5 s on an idle machine
		t.Error("that is too long")
	}
	for _, i := range []int{0, 1, n / 2, n - 1} {
		must[unstructured.UnstructuredList](w, 200, "GET", "/apis/"+name(i)+"/v1/"+plural(i), "", "")
	}
}

// Schemas that would cost the server much are refused with a clear error, soon.
func TestHostileDefinitions(t *testing.T) {
	w := start(t)
	deep := strings.Repeat(`{"type":"object","properties":{"a":`, 3000) + `{"type":"string"}` + strings.Repeat(`}}`, 3000)
	rules := strings.Repeat(`{"rule":"true"},`, 2001)
	for name, c := range map[string]struct{ schema, want string }{
		"deep":       {deep, "nested deeper than 100 levels"},
		"cyclic":     {`{"type":"object","properties":{"a":{"$ref":"#/properties/a"}}}`, "$ref is not supported"},
		"many rules": {`{"type":"object","x-kubernetes-validations":[` + strings.TrimSuffix(rules, ",") + `]}`, "more than 2000 x-kubernetes-validations rules"},
		"costly rule": {`{"type":"object","properties":{"a":{"type":"array","items":{"type":"string"},"x-kubernetes-validations":[
			{"rule":"self.all(x, self.all(y, self.all(z, x + y == z)))"}]}}}`, "estimated rule cost exceeds budget by factor of more than 100x"},
		"rule with an error": {`{"type":"object","x-kubernetes-validations":[{"rule":"self.absent == 1"}]}`, "undefined field 'absent'"},
		"not structural":     {`{"type":"object","properties":{"a":{"properties":{"b":{}}}}}`, "type: Required value: must not be empty for specified object fields"},
		"bad default":        {`{"type":"object","properties":{"a":{"type":"string","default":5}}}`, "default"},
	} {
		began := time.Now()
		status := must[metav1.Status](w, 422, "POST", crds, jsonType, crdOf(c.schema, ""))
		if !strings.Contains(status.Message, c.want) {
			t.Errorf("%s: %.500s\nwant %s", name, status.Message, c.want)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
}
