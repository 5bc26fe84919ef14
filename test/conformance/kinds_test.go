package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
)

// A kindTest says how the verbs of a kind are tried through client-go's dynamic
// client.
type kindTest struct {
	groupVersion, resource string
	clusterScoped          bool

	object string              // its fields besides the metadata, in YAML
	name   func(i int) string  // of the objects; nil: they begin with the name of the namespace
	update string              // a merge patch of the object that is allowed; "": nothing besides the metadata
	status string              // a merge patch of the status; "": there is no status subresource
	before func(s status) bool // whether the status of a new object is right; may be nil
	kept   func(s status) bool // whether the status has what status sets
	final  status              // fields that an update of the status sets in the end
}

type status = map[string]any

// lifecycle returns the test of the kinds: discovery, create with strict validation,
// get, list in one and all namespaces, watch, all types of patches, update, the
// status, delete, create again and deletecollection.
func lifecycle(kinds ...kindTest) func(t *testing.T, ctx context.Context, namespace string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		for _, k := range kinds {
			k.run(t, ctx, namespace)
		}
	}
}

// objects are the client of a kind, and the label of a test's objects.
type objects struct {
	dynamic.ResourceInterface
	ours metav1.ListOptions
}

func (k kindTest) run(t *testing.T, ctx context.Context, namespace string) {
	t.Helper()
	inDiscovery(t, k.groupVersion, k.resource)
	if k.status != "" {
		inDiscovery(t, k.groupVersion, k.resource+"/status")
	}
	gv, err := schema.ParseGroupVersion(k.groupVersion)
	check(t, err)
	client, err := dynamic.NewForConfig(config)
	check(t, err)
	all := client.Resource(gv.WithResource(k.resource))
	r := objects{all, metav1.ListOptions{LabelSelector: "test=" + namespace}}
	if !k.clusterScoped {
		r.ResourceInterface = all.Namespace(namespace)
	}
	log := watchInOrder(t, ctx, client, gv.WithResource(k.resource), r.ours)

	k.creates(t, ctx, r, namespace)
	one := k.get(t, ctx, r, k.nameOf(namespace, 1))
	for _, lister := range []dynamic.ResourceInterface{r, all} {
		list, err := lister.List(ctx, r.ours)
		check(t, err)
		if len(list.Items) != 3 {
			t.Errorf("the list has %d objects, want 3", len(list.Items))
		}
	}
	k.patches(t, ctx, r, one.GetName())
	k.updates(t, ctx, r, one.GetName())
	if k.status != "" {
		k.writesStatus(t, ctx, r, one.GetName())
	}
	log.saw(t, ctx, one.GetName(), "true")

	check(t, r.Delete(ctx, one.GetName(), metav1.DeleteOptions{}))
	k.gone(t, ctx, r, one.GetName())
	log.saw(t, ctx, one.GetName(), "deleted")
	_, err = r.Create(ctx, k.make(t, namespace, 1), metav1.CreateOptions{})
	check(t, err)
	check(t, r.DeleteCollection(ctx, metav1.DeleteOptions{}, r.ours))
	eventually(t, ctx, "the collection is deleted", func() error {
		list, err := r.List(ctx, r.ours)
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d objects are left", len(list.Items))
		}
		return err
	})
}

func (k kindTest) nameOf(namespace string, i int) string {
	if k.name != nil {
		return k.name(i)
	}
	return namespace + "-" + strconv.Itoa(i)
}

// make returns an object to create.
func (k kindTest) make(t *testing.T, namespace string, i int) *unstructured.Unstructured {
	t.Helper()
	list, err := admin.Discovery().ServerResourcesForGroupVersion(k.groupVersion)
	check(t, err)
	at := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == k.resource })
	if at < 0 {
		t.Fatalf("%s has no %s", k.groupVersion, k.resource)
	}
	o := &unstructured.Unstructured{Object: parse(t, k.object)}
	o.SetAPIVersion(k.groupVersion)
	o.SetKind(list.APIResources[at].Kind)
	o.SetName(k.nameOf(namespace, i))
	o.SetLabels(map[string]string{"test": namespace})
	return o
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	check(t, yaml.Unmarshal([]byte(text), &out))
	return out
}

func toJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	check(t, err)
	return data
}

func (k kindTest) get(t *testing.T, ctx context.Context, r objects, name string) *unstructured.Unstructured {
	t.Helper()
	got, err := r.Get(ctx, name, metav1.GetOptions{})
	check(t, err)
	if got.GetUID() == "" || got.GetName() != name {
		t.Errorf("get returned %s with the uid %q", got.GetName(), got.GetUID())
	}
	return got
}

// creates makes three objects with strict validation, which refuses an unknown field.
func (k kindTest) creates(t *testing.T, ctx context.Context, r objects, namespace string) {
	t.Helper()
	strict := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	bad := k.make(t, namespace, 1)
	bad.Object["unknownField"] = "x"
	if _, err := r.Create(ctx, bad, strict); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `unknown field "unknownField"`) {
		t.Errorf("an unknown field: %v", err)
	}
	for i := range 3 {
		_, err := r.Create(ctx, k.make(t, namespace, i+1), strict)
		check(t, err)
	}
}

// patches adds a label by each type of patch.
func (k kindTest) patches(t *testing.T, ctx context.Context, r objects, name string) {
	t.Helper()
	one := k.get(t, ctx, r, name)
	apply := toJSON(t, map[string]any{"apiVersion": one.GetAPIVersion(), "kind": one.GetKind(), "metadata": map[string]any{"name": name, "labels": map[string]any{"apply": "true"}}})
	for label, patch := range map[string]struct {
		kind types.PatchType
		data []byte
	}{
		"json":      {types.JSONPatchType, []byte(`[{"op":"add","path":"/metadata/labels/json","value":"true"}]`)},
		"merge":     {types.MergePatchType, []byte(`{"metadata":{"labels":{"merge":"true"}}}`)},
		"strategic": {types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"strategic":"true"}}}`)},
		"apply":     {types.ApplyPatchType, apply},
	} {
		options := metav1.PatchOptions{FieldManager: "conformance", FieldValidation: metav1.FieldValidationStrict}
		got, err := r.Patch(ctx, name, patch.kind, patch.data, options)
		check(t, err)
		if got.GetLabels()[label] != "true" {
			t.Errorf("after the %s patch the labels are %v", label, got.GetLabels())
		}
	}
}

// updates replaces the object with one that has an annotation and the allowed change.
func (k kindTest) updates(t *testing.T, ctx context.Context, r objects, name string) {
	t.Helper()
	if k.update != "" {
		_, err := r.Patch(ctx, name, types.MergePatchType, toJSON(t, parse(t, k.update)), metav1.PatchOptions{})
		check(t, err)
	}
	var got *unstructured.Unstructured
	check(t, retry.RetryOnConflict(retry.DefaultRetry, func() (err error) { // with the kind's controller
		one := k.get(t, ctx, r, name)
		one.SetAnnotations(map[string]string{"updated": "true"})
		got, err = r.Update(ctx, one, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
		return err
	}))
	if got.GetAnnotations()["updated"] != "true" || got.GetLabels()["merge"] != "true" {
		t.Errorf("after the update the metadata is %v %v", got.GetLabels(), got.GetAnnotations())
	}
}

// writesStatus gets, patches and updates the status, and wants the change to be kept.
func (k kindTest) writesStatus(t *testing.T, ctx context.Context, r objects, name string) {
	t.Helper()
	keeps := func(after string, o *unstructured.Unstructured, ok func(status) bool) {
		t.Helper()
		if s, _ := o.Object["status"].(status); ok != nil && !ok(s) {
			t.Errorf("after %s the status is %v", after, s)
		}
	}
	fresh, err := r.Get(ctx, name, metav1.GetOptions{}, "status")
	check(t, err)
	keeps("the create", fresh, k.before)
	patched, err := r.Patch(ctx, name, types.MergePatchType, toJSON(t, parse(t, k.status)), metav1.PatchOptions{}, "status")
	check(t, err)
	keeps("the patch", patched, k.kept)
	keeps("the update", k.updatesStatus(t, ctx, r, name, func(status) {}), k.kept)
	keeps("the get", k.get(t, ctx, r, name), k.kept)
	for field, value := range k.final {
		updated := k.updatesStatus(t, ctx, r, name, func(s status) { s[field] = value })
		keeps("the last update", updated, func(s status) bool { return s[field] == value })
	}
}

// updatesStatus changes the status by an update, which the kind's controller may do at
// the same time.
func (k kindTest) updatesStatus(t *testing.T, ctx context.Context, r objects, name string, change func(status)) (updated *unstructured.Unstructured) {
	t.Helper()
	check(t, retry.RetryOnConflict(retry.DefaultRetry, func() (err error) {
		one := k.get(t, ctx, r, name)
		change(one.Object["status"].(status))
		updated, err = r.UpdateStatus(ctx, one, metav1.UpdateOptions{})
		return err
	}))
	return updated
}

func (k kindTest) gone(t *testing.T, ctx context.Context, r objects, name string) {
	t.Helper()
	eventually(t, ctx, name+" is gone", func() error {
		_, err := r.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			err = fmt.Errorf("it is still there")
		}
		return err
	})
}

// seen is what an informer has seen: for each event the object's name, and whether it
// was updated by the test ("true") or deleted.
type seen struct {
	mu     sync.Mutex
	events []string
	last   int // resourceVersion
	err    error
}

// watchInOrder starts an informer that checks that events come in the order of their
// resource versions.
func watchInOrder(t *testing.T, ctx context.Context, client dynamic.Interface, gvr schema.GroupVersionResource, ours metav1.ListOptions) *seen {
	t.Helper()
	s := &seen{}
	informer := dynamicinformer.NewFilteredDynamicInformer(client, gvr, metav1.NamespaceAll, 0, cache.Indexers{},
		func(o *metav1.ListOptions) { o.LabelSelector = ours.LabelSelector }).Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.add(o, "") },
		UpdateFunc: func(_, o any) { s.add(o, "") },
		DeleteFunc: func(o any) { s.add(o, "deleted") },
	})
	check(t, err)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.RunWithContext(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if s.err != nil {
			t.Error(s.err)
		}
	})
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer does not list the objects")
	}
	return s
}

func (s *seen) add(o any, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = d.Obj
	}
	object := o.(*unstructured.Unstructured)
	version, err := strconv.Atoi(object.GetResourceVersion())
	if err == nil && version <= s.last {
		err = fmt.Errorf("an event of version %d came after one of %d", version, s.last)
	}
	s.err, s.last = cmp.Or(s.err, err), version
	s.events = append(s.events, object.GetName()+" "+cmp.Or(what, object.GetAnnotations()["updated"]))
}

// saw waits until the informer has seen the object so.
func (s *seen) saw(t *testing.T, ctx context.Context, name, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	eventually(t, ctx, "the informer sees "+name+" "+what, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !slices.Contains(s.events, name+" "+what) {
			return fmt.Errorf("it has seen %q", s.events)
		}
		return nil
	})
}
