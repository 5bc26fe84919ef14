package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// machinery returns the rows of the area apimachinery.
func machinery() []testcase {
	return append(collected(), []testcase{
		{id: "list-chunking-expired-continue", test: expiredContinue, timeout: expiry, long: true},
		{id: "aggregated-discovery-accept", test: aggregatedAccept},
		{id: "aggregated-discovery-client", test: aggregatedClient},
		{id: "discovery-group-version-resources", test: groupResources},
		{id: "discovery-preferred-version", test: preferredVersions},
		{id: "fieldvalidation-typed-unknown-duplicate", test: strictFields(`"spec":{"unknownField":"x","replicas":1,"replicas":2,%s}`, "metadata", `strict decoding error: unknown field "spec.unknownField", duplicate field "spec.replicas"`)},
		{id: "fieldvalidation-typed-unknown-metadata", test: strictFields(`"spec":{"replicas":1,%s}`, `unknownMeta`, `strict decoding error: unknown field "metadata.unknownMeta"`)},
		{id: "gc-deployment-background", test: deleteBackground},
		{id: "gc-deployment-orphan", test: deleteOrphan},
		{id: "gc-owner-cycle", test: ownerCycle},
		{id: "list-chunking", test: listChunks},
		{id: "namespace-delete-removes-pods", test: namespaceRemovesPods},
		{id: "namespace-delete-removes-services", test: namespaceRemovesServices},
		{id: "namespace-finalize", test: namespaceFinalize},
		{id: "namespace-ordered-deletion", test: orderedDeletion},
		{id: "namespace-patch", test: namespacePatch},
		{id: "namespace-status", test: namespaceStatus},
		{id: "namespace-update", test: namespaceUpdate},
		{id: "quota-configmap-lifecycle", test: quotaConfigMap},
		{id: "quota-lifecycle", test: quotaLifecycle},
		{id: "quota-pod-lifecycle", test: quotaPod},
		{id: "quota-rc-lifecycle", test: quotaController},
		{id: "quota-replicaset-lifecycle", test: quotaReplicaSet},
		{id: "quota-scope-besteffort", test: quotaScopes(corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort, amounts{"pods": "5"}, func(*corev1.Pod) {}, withResources)},
		{id: "quota-scope-terminating", test: quotaScopes(corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating,
			amounts{"pods": "5", "requests.cpu": "1", "requests.memory": "500Mi", "limits.cpu": "2", "limits.memory": "1Gi"}, withDeadline, withResources)},
		{id: "quota-secret-lifecycle", test: quotaSecret},
		{id: "quota-service-lifecycle", test: quotaService},
		{id: "quota-status-prompt", test: quotaPrompt},
		{id: "quota-status-subresource", test: quotaStatus},
		{id: "quota-update-delete", test: quotaUpdate},
		{id: "server-version", test: serverVersion},
		{id: "table-406-nonmetadata", test: noTable},
		{id: "watch-add-update-delete", test: watchThree},
		{id: "watch-concurrent-order", test: watchOrder},
		{id: "watch-from-specific-rv", test: watchFrom},
		{id: "watch-label-selector-transition", test: watchTransition},
		{id: "watch-resume-from-last-rv", test: watchResume},
	}...)
}

func preferredVersions(t *testing.T, ctx context.Context, _ string) {
	var groups *metav1.APIGroupList
	allServed(t, ctx, func() (err error) {
		groups, err = admin.Discovery().ServerGroups()
		check(t, err)
		for _, g := range groups.Groups {
			if g.Name != "" && !ofRow(g.Name) && !slices.Contains(g.Versions, g.PreferredVersion) {
				return fmt.Errorf("%s prefers %q, which is none of its versions", g.Name, g.PreferredVersion.Version)
			}
		}
		return nil
	})
	for _, g := range groups.Groups {
		if g.Name == "" || ofRow(g.Name) {
			continue
		}
		var alone metav1.APIGroup
		text, err := admin.Discovery().RESTClient().Get().AbsPath("/apis/" + g.Name).DoRaw(ctx)
		check(t, err)
		check(t, json.Unmarshal(text, &alone))
		if alone.PreferredVersion != g.PreferredVersion {
			t.Errorf("/apis/%s prefers %q", g.Name, alone.PreferredVersion.Version)
		}
	}
}

// strictFields creates a Deployment with fields that strict validation refuses.
func strictFields(spec, metadata, want string) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		rest := `"selector":{"matchLabels":{"app":"a"}},"template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
		extra := ""
		if metadata != "metadata" {
			extra = fmt.Sprintf(`,%q:"x"`, metadata)
		}
		body := fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"%s},`+spec+`}`, extra, rest)
		err := admin.AppsV1().RESTClient().Post().AbsPath("/apis/apps/v1/namespaces/"+namespace+"/deployments").
			Param("fieldValidation", "Strict").SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(ctx).Error()
		if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// deployed creates a Deployment whose pods run.
func deployed(t *testing.T, ctx context.Context, namespace string) {
	t.Helper()
	createDeployment(t, ctx, deployment(namespace, "d", 2, idle("d", "")))
	deploymentBecomes(t, ctx, namespace, "d", "is available", complete)
}

func deleteBackground(t *testing.T, ctx context.Context, namespace string) {
	deployed(t, ctx, namespace)
	background := metav1.DeletePropagationBackground
	check(t, admin.AppsV1().Deployments(namespace).Delete(ctx, "d", metav1.DeleteOptions{PropagationPolicy: &background}))
	eventually(t, ctx, "the ReplicaSet and the pods are deleted", func() error {
		sets, err := admin.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		pods, err := admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(sets.Items)+len(pods.Items) > 0 {
			err = fmt.Errorf("%d and %d are left", len(sets.Items), len(pods.Items))
		}
		return err
	})
}

func deleteOrphan(t *testing.T, ctx context.Context, namespace string) {
	deployed(t, ctx, namespace)
	orphan := metav1.DeletePropagationOrphan
	check(t, admin.AppsV1().Deployments(namespace).Delete(ctx, "d", metav1.DeleteOptions{PropagationPolicy: &orphan}))
	eventually(t, ctx, "the Deployment is gone and the ReplicaSet has no owner", func() error {
		_, err := admin.AppsV1().Deployments(namespace).Get(ctx, "d", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the Deployment is there (%v)", err)
		}
		sets, err := admin.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && (len(sets.Items) != 1 || len(sets.Items[0].OwnerReferences) != 0) {
			err = fmt.Errorf("%d ReplicaSets: %+v", len(sets.Items), sets.Items)
		}
		return err
	})
	w, err := admin.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{TimeoutSeconds: ptr(int64(10))})
	check(t, err)
	defer w.Stop()
	for e := range w.ResultChan() { // ends after ten seconds
		if pod, ok := e.Object.(*corev1.Pod); ok && (e.Type == watch.Deleted || pod.DeletionTimestamp != nil) {
			t.Errorf("pod %s is deleted", pod.Name)
		}
	}
	list, err := admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	check(t, err)
	if len(list.Items) != 2 {
		t.Errorf("%d pods are left", len(list.Items))
	}
}

// ownerCycle has three pods that own each other in a circle.
func ownerCycle(t *testing.T, ctx context.Context, namespace string) {
	var pods []*corev1.Pod
	for i := range 3 {
		pods = append(pods, create(t, ctx, sleeper(namespace, fmt.Sprintf("pod-%d", i))))
	}
	for i := range pods {
		owner := pods[(i+2)%3]
		updatePod(t, ctx, namespace, pods[i].Name, func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: owner.Name, UID: owner.UID, Controller: ptr(true), BlockOwnerDeletion: ptr(true)}}
		})
	}
	foreground := metav1.DeletePropagationForeground
	check(t, admin.CoreV1().Pods(namespace).Delete(ctx, "pod-0", metav1.DeleteOptions{PropagationPolicy: &foreground}))
	eventually(t, ctx, "all pods are deleted", func() error {
		list, err := admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are left", len(list.Items))
		}
		return err
	})
}

// remade deletes the namespace, waits until it is gone, and creates it again.
func remade(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	check(t, admin.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}))
	eventually(t, ctx, "the namespace is gone", func() error {
		ns, err := admin.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %+v (%v)", ns.Status, err)
	})
	_, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	check(t, err)
}

func namespaceRemovesPods(t *testing.T, ctx context.Context, ns string) {
	name := namespace(t, ctx, "removed")
	run(t, ctx, sleeper(name, "pod"))
	remade(t, ctx, name)
	list, err := admin.CoreV1().Pods(name).List(ctx, metav1.ListOptions{})
	check(t, err)
	if len(list.Items) != 0 {
		t.Errorf("there are %d pods", len(list.Items))
	}
}

func namespaceRemovesServices(t *testing.T, ctx context.Context, ns string) {
	name := namespace(t, ctx, "removed")
	createService(t, ctx, name, service("svc", "svc"))
	remade(t, ctx, name)
	list, err := admin.CoreV1().Services(name).List(ctx, metav1.ListOptions{})
	check(t, err)
	if len(list.Items) != 0 {
		t.Errorf("there are %d Services", len(list.Items))
	}
}

func namespaceFinalize(t *testing.T, ctx context.Context, ns string) {
	namespaces, name := admin.CoreV1().Namespaces(), namespace(t, ctx, "finalized")
	const fake = corev1.FinalizerName("e2e.example.com/fakeFinalizer")
	finalize := func(change func([]corev1.FinalizerName) []corev1.FinalizerName, want bool) {
		t.Helper()
		eventually(t, ctx, "the finalizers are changed", func() error {
			got, err := namespaces.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			got.Spec.Finalizers = change(got.Spec.Finalizers)
			made, err := namespaces.Finalize(ctx, got, metav1.UpdateOptions{})
			if err == nil && slices.Contains(made.Spec.Finalizers, fake) != want {
				t.Errorf("the answer has the finalizers %v", made.Spec.Finalizers)
			}
			return err
		})
		got, err := namespaces.Get(ctx, name, metav1.GetOptions{})
		check(t, err)
		if slices.Contains(got.Spec.Finalizers, fake) != want {
			t.Errorf("the finalizers are %v", got.Spec.Finalizers)
		}
	}
	finalize(func(f []corev1.FinalizerName) []corev1.FinalizerName { return append(f, fake) }, true)
	finalize(func(f []corev1.FinalizerName) []corev1.FinalizerName {
		return slices.DeleteFunc(f, func(n corev1.FinalizerName) bool { return n == fake })
	}, false)
}

// orderedDeletion holds a pod by a finalizer: other objects of the namespace
// stay until it is gone.
func orderedDeletion(t *testing.T, ctx context.Context, ns string) {
	name := namespace(t, ctx, "ordered")
	pod := sleeper(name, "pod")
	pod.Finalizers = []string{"e2e.example.com/finalizer"}
	run(t, ctx, pod)
	_, err := admin.CoreV1().ConfigMaps(name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
	check(t, err)
	check(t, admin.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}))
	eventually(t, ctx, "the deletion waits for the pod", func() error {
		got, err := admin.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range got.Status.Conditions {
			if c.Type == corev1.NamespaceContentRemaining && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %+v", got.Status.Conditions)
	})
	_, err = admin.CoreV1().ConfigMaps(name).Get(ctx, "kept", metav1.GetOptions{})
	check(t, err)
	_, err = admin.CoreV1().Pods(name).Patch(ctx, "pod", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	check(t, err)
	eventually(t, ctx, "the namespace is gone", func() error {
		_, err := admin.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there (%v)", err)
	})
}

func namespacePatch(t *testing.T, ctx context.Context, ns string) {
	_, err := admin.CoreV1().Namespaces().Patch(ctx, ns, types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"testLabel":"testValue"}}}`), metav1.PatchOptions{})
	check(t, err)
	got, err := admin.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
	check(t, err)
	if got.Labels["testLabel"] != "testValue" {
		t.Errorf("the labels are %v", got.Labels)
	}
}

func namespaceUpdate(t *testing.T, ctx context.Context, ns string) {
	eventually(t, ctx, "the namespace is updated", func() error {
		got, err := admin.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		if err != nil {
			return err
		}
		got.Labels[ns] = "updated"
		made, err := admin.CoreV1().Namespaces().Update(ctx, got, metav1.UpdateOptions{})
		if err == nil && made.Labels[ns] != "updated" {
			t.Errorf("the labels are %v", made.Labels)
		}
		return err
	})
}

func namespaceStatus(t *testing.T, ctx context.Context, ns string) {
	namespaces := admin.CoreV1().Namespaces()
	read := func() *corev1.Namespace {
		t.Helper()
		got := &corev1.Namespace{}
		check(t, admin.CoreV1().RESTClient().Get().Resource("namespaces").Name(ns).SubResource("status").Do(ctx).Into(got))
		return got
	}
	has := func(kind corev1.NamespaceConditionType) bool {
		return slices.ContainsFunc(read().Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == kind })
	}
	if got := read(); got.Status.Phase != corev1.NamespaceActive {
		t.Errorf("the phase is %s", got.Status.Phase)
	}
	_, err := namespaces.Patch(ctx, ns, types.MergePatchType, []byte(`{"metadata":{"annotations":{"e2e":"patched"}},"status":{"conditions":[{"type":"StatusPatch","status":"True","reason":"E2E","message":"patched"}]}}`), metav1.PatchOptions{}, "status")
	check(t, err)
	if !has("StatusPatch") {
		t.Error("the patch is lost")
	}
	eventually(t, ctx, "the status is updated", func() error {
		got := read()
		got.Status.Conditions = append(got.Status.Conditions, corev1.NamespaceCondition{Type: "StatusUpdate", Status: corev1.ConditionTrue, Reason: "E2E", Message: "updated"})
		_, err := namespaces.UpdateStatus(ctx, got, metav1.UpdateOptions{})
		return err
	})
	if !has("StatusPatch") || !has("StatusUpdate") {
		t.Error("a condition is lost")
	}
}

func serverVersion(t *testing.T, ctx context.Context, _ string) {
	v, err := admin.Discovery().ServerVersion()
	check(t, err)
	number := regexp.MustCompile(`^[1-9][0-9]*$`)
	if !number.MatchString(v.Major) || !number.MatchString(strings.TrimRight(v.Minor, "+")) {
		t.Errorf("the version is %s.%s", v.Major, v.Minor)
	}
}

func noTable(t *testing.T, ctx context.Context, _ string) {
	err := admin.AuthorizationV1().RESTClient().Post().Resource("selfsubjectaccessreviews").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").SetHeader("Content-Type", "application/json").
		Body([]byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`)).Do(ctx).Error()
	if status, ok := err.(apierrors.APIStatus); !ok || status.Status().Code != http.StatusNotAcceptable {
		t.Errorf("got %v, want 406", err)
	}
}

// labelled returns a ConfigMap whose label "watch" has the value.
func labelled(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"watch": value}}}
}

func watchMaps(t *testing.T, ctx context.Context, namespace, selector, version string) watch.Interface {
	t.Helper()
	w, err := admin.CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{LabelSelector: selector, ResourceVersion: version})
	check(t, err)
	t.Cleanup(w.Stop)
	return w
}

// change adds one to the ConfigMap's counter, with the label.
func change(t *testing.T, ctx context.Context, namespace, name, label string) *corev1.ConfigMap {
	t.Helper()
	maps := admin.CoreV1().ConfigMaps(namespace)
	got, err := maps.Get(ctx, name, metav1.GetOptions{})
	check(t, err)
	got.Labels["watch"] = label
	got.Data = map[string]string{"changes": fmt.Sprint(len(got.Data["changes"]) + 1), "at": got.ResourceVersion}
	made, err := maps.Update(ctx, got, metav1.UpdateOptions{})
	check(t, err)
	return made
}

// next wants the next event to be this one.
func next(t *testing.T, ctx context.Context, w watch.Interface, kind watch.EventType, name, version string) {
	t.Helper()
	select {
	case e := <-w.ResultChan():
		object, ok := e.Object.(*corev1.ConfigMap)
		if !ok || e.Type != kind || object.Name != name || version != "" && object.ResourceVersion != version {
			t.Fatalf("got %s of %+v, want %s of %s at %s", e.Type, e.Object, kind, name, version)
		}
	case <-ctx.Done():
		t.Fatalf("no %s of %s came", kind, name)
	}
}

func watchThree(t *testing.T, ctx context.Context, namespace string) {
	maps := admin.CoreV1().ConfigMaps(namespace)
	a, b := watchMaps(t, ctx, namespace, "watch=a", ""), watchMaps(t, ctx, namespace, "watch=b", "")
	both := watchMaps(t, ctx, namespace, "watch in (a,b)", "")
	for name, w := range map[string]watch.Interface{"a": a, "b": b} {
		made, err := maps.Create(ctx, labelled(name, name), metav1.CreateOptions{})
		check(t, err)
		for _, w := range []watch.Interface{w, both} {
			next(t, ctx, w, watch.Added, name, made.ResourceVersion)
		}
		made = change(t, ctx, namespace, name, name)
		for _, w := range []watch.Interface{w, both} {
			next(t, ctx, w, watch.Modified, name, made.ResourceVersion)
		}
		check(t, maps.Delete(ctx, name, metav1.DeleteOptions{}))
		for _, w := range []watch.Interface{w, both} {
			next(t, ctx, w, watch.Deleted, name, "")
		}
	}
}

func watchFrom(t *testing.T, ctx context.Context, namespace string) {
	maps := admin.CoreV1().ConfigMaps(namespace)
	_, err := maps.Create(ctx, labelled("object", "a"), metav1.CreateOptions{})
	check(t, err)
	first := change(t, ctx, namespace, "object", "a")
	second := change(t, ctx, namespace, "object", "a")
	check(t, maps.Delete(ctx, "object", metav1.DeleteOptions{}))
	w := watchMaps(t, ctx, namespace, "watch=a", first.ResourceVersion)
	next(t, ctx, w, watch.Modified, "object", second.ResourceVersion)
	next(t, ctx, w, watch.Deleted, "object", "")
}

func watchResume(t *testing.T, ctx context.Context, namespace string) {
	maps := admin.CoreV1().ConfigMaps(namespace)
	w := watchMaps(t, ctx, namespace, "watch=a", "")
	_, err := maps.Create(ctx, labelled("object", "a"), metav1.CreateOptions{})
	check(t, err)
	next(t, ctx, w, watch.Added, "object", "")
	last := change(t, ctx, namespace, "object", "a")
	next(t, ctx, w, watch.Modified, "object", last.ResourceVersion)
	w.Stop()
	between := change(t, ctx, namespace, "object", "a")
	w = watchMaps(t, ctx, namespace, "watch=a", last.ResourceVersion)
	next(t, ctx, w, watch.Modified, "object", between.ResourceVersion)
	check(t, maps.Delete(ctx, "object", metav1.DeleteOptions{}))
	next(t, ctx, w, watch.Deleted, "object", "")
}

func watchTransition(t *testing.T, ctx context.Context, namespace string) {
	maps := admin.CoreV1().ConfigMaps(namespace)
	w := watchMaps(t, ctx, namespace, "watch=a", "")
	_, err := maps.Create(ctx, labelled("object", "a"), metav1.CreateOptions{})
	check(t, err)
	next(t, ctx, w, watch.Added, "object", "")
	next(t, ctx, w, watch.Modified, "object", change(t, ctx, namespace, "object", "a").ResourceVersion)
	change(t, ctx, namespace, "object", "other")
	next(t, ctx, w, watch.Deleted, "object", "")
	change(t, ctx, namespace, "object", "other") // no event: the next one is of the return
	next(t, ctx, w, watch.Added, "object", change(t, ctx, namespace, "object", "a").ResourceVersion)
	next(t, ctx, w, watch.Modified, "object", change(t, ctx, namespace, "object", "a").ResourceVersion)
	check(t, maps.Delete(ctx, "object", metav1.DeleteOptions{}))
	next(t, ctx, w, watch.Deleted, "object", "")
}

// watchOrder opens a watch at each of the events of a first watch, while
// objects are written: all deliver the same sequence.
func watchOrder(t *testing.T, ctx context.Context, namespace string) {
	const events, compared = 60, 30
	maps := admin.CoreV1().ConfigMaps(namespace)
	list, err := maps.List(ctx, metav1.ListOptions{})
	check(t, err)
	version := list.ResourceVersion
	written := make(chan error, 1)
	go func() {
		var err error
		for i := 0; err == nil && i < events; i++ {
			name := fmt.Sprintf("object-%d", i%5)
			switch i / 5 % 3 {
			case 0:
				_, err = maps.Create(ctx, labelled(name, "a"), metav1.CreateOptions{})
			case 1:
				_, err = maps.Patch(ctx, name, types.MergePatchType, []byte(fmt.Sprintf(`{"data":{"i":"%d"}}`, i)), metav1.PatchOptions{})
			case 2:
				err = maps.Delete(ctx, name, metav1.DeleteOptions{})
			}
		}
		written <- err
	}()
	first := watchMaps(t, ctx, namespace, "watch=a", version)
	var sequence []string
	watches := []watch.Interface{}
	for len(sequence) < events {
		sequence = append(sequence, versionOf(t, ctx, first))
		watches = append(watches, watchMaps(t, ctx, namespace, "watch=a", sequence[len(sequence)-1]))
	}
	check(t, <-written)
	for i, w := range watches[:events-1] {
		for j := i + 1; j < min(events, i+compared); j++ {
			if got := versionOf(t, ctx, w); got != sequence[j] {
				t.Fatalf("the watch from event %d delivers %s where the first one has %s", i, got, sequence[j])
			}
		}
	}
}

func versionOf(t *testing.T, ctx context.Context, w watch.Interface) string {
	t.Helper()
	select {
	case e := <-w.ResultChan():
		object, ok := e.Object.(*corev1.ConfigMap)
		if !ok {
			t.Fatalf("the watch delivers %s of %T", e.Type, e.Object)
		}
		return object.ResourceVersion
	case <-ctx.Done():
		t.Fatal("an event is missing")
	}
	return ""
}
