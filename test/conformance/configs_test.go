package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// configObjects returns the rows of ConfigMaps, Secrets and Leases as objects.
func configObjects() []testcase {
	return []testcase{
		{id: "configmap-empty-key-rejected", test: emptyConfigMapKey},
		{id: "configmap-lifecycle", test: configMapLifecycle},
		{id: "configmap-update", test: configMapUpdate},
		{id: "secret-empty-key-rejected", test: emptySecretKey},
		{id: "secret-patch-lifecycle", test: secretLifecycle},
		{id: "lease-api", test: leaseAPI},
	}
}

func emptyConfigMapKey(t *testing.T, ctx context.Context, namespace string) {
	_, err := admin.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "object"}, Data: map[string]string{"": "value"}}, metav1.CreateOptions{})
	invalid(t, "an empty key", err)
}

func emptySecretKey(t *testing.T, ctx context.Context, namespace string) {
	_, err := admin.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "object"}, Data: map[string][]byte{"": []byte("value")}}, metav1.CreateOptions{})
	invalid(t, "an empty key", err)
}

// sees waits for an event of the type and returns its object, without others of
// that watch in between but those of other types.
func sees[T any](t *testing.T, ctx context.Context, w watch.Interface, kind watch.EventType, ok func(T) bool) T {
	t.Helper()
	for {
		select {
		case e, open := <-w.ResultChan():
			if !open {
				t.Fatal("the watch has ended")
			}
			if object, isT := e.Object.(T); isT && e.Type == kind && (ok == nil || ok(object)) {
				return object
			}
		case <-ctx.Done():
			t.Fatalf("no %s event came", kind)
		}
	}
}

func configMapLifecycle(t *testing.T, ctx context.Context, namespace string) {
	maps, all := admin.CoreV1().ConfigMaps(namespace), admin.CoreV1().ConfigMaps("")
	label := metav1.ListOptions{LabelSelector: "test=" + namespace}
	w, err := maps.Watch(ctx, label)
	check(t, err)
	defer w.Stop()
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "object", Labels: map[string]string{"test": namespace}}, Data: map[string]string{"a": "1"}}, metav1.CreateOptions{})
	check(t, err)
	sees[*corev1.ConfigMap](t, ctx, w, watch.Added, nil)
	_, err = maps.Patch(ctx, "object", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"patched":"yes"}},"data":{"a":"2"}}`), metav1.PatchOptions{})
	check(t, err)
	sees(t, ctx, w, watch.Modified, func(o *corev1.ConfigMap) bool { return o.Data["a"] == "2" })
	got, err := maps.Get(ctx, "object", metav1.GetOptions{})
	check(t, err)
	if got.Data["a"] != "2" || got.Labels["patched"] != "yes" {
		t.Errorf("after the patch it is %+v", got)
	}
	list, err := all.List(ctx, label)
	check(t, err)
	if len(list.Items) != 1 || list.Items[0].Namespace != namespace {
		t.Errorf("the list has %d objects", len(list.Items))
	}
	check(t, maps.DeleteCollection(ctx, metav1.DeleteOptions{}, label))
	sees[*corev1.ConfigMap](t, ctx, w, watch.Deleted, nil)
	list, err = maps.List(ctx, label)
	check(t, err)
	if len(list.Items) != 0 {
		t.Errorf("%d objects are left", len(list.Items))
	}
}

func configMapUpdate(t *testing.T, ctx context.Context, namespace string) {
	maps := admin.CoreV1().ConfigMaps(namespace)
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "object"}}, metav1.CreateOptions{})
	check(t, err)
	made.Data = map[string]string{"data": "value"}
	_, err = maps.Update(ctx, made, metav1.UpdateOptions{})
	check(t, err)
	got, err := maps.Get(ctx, "object", metav1.GetOptions{})
	check(t, err)
	if !reflect.DeepEqual(got.Data, made.Data) {
		t.Errorf("data is %v", got.Data)
	}
}

func secretLifecycle(t *testing.T, ctx context.Context, namespace string) {
	secrets := admin.CoreV1().Secrets(namespace)
	_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "object", Labels: map[string]string{"test": namespace}}, Data: map[string][]byte{"key": []byte("value")}}, metav1.CreateOptions{})
	check(t, err)
	list, err := admin.CoreV1().Secrets("").List(ctx, metav1.ListOptions{LabelSelector: "test=" + namespace})
	check(t, err)
	if len(list.Items) != 1 || string(list.Items[0].Data["key"]) != "value" {
		t.Fatalf("the list has %d objects", len(list.Items))
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{"patched": "true"}}, "data": map[string][]byte{"key": []byte("value1")}})
	check(t, err)
	_, err = secrets.Patch(ctx, "object", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	check(t, err)
	got, err := secrets.Get(ctx, "object", metav1.GetOptions{})
	check(t, err)
	if string(got.Data["key"]) != "value1" || got.Labels["patched"] != "true" {
		t.Errorf("after the patch: %v, %q", got.Labels, got.Data["key"])
	}
	check(t, secrets.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "patched=true"}))
	list, err = secrets.List(ctx, metav1.ListOptions{LabelSelector: "patched=true"})
	check(t, err)
	if len(list.Items) != 0 {
		t.Errorf("%d objects are left", len(list.Items))
	}
}

func leaseAPI(t *testing.T, ctx context.Context, namespace string) {
	leases := admin.CoordinationV1().Leases(namespace)
	now := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
	spec := func(holder string, seconds int32) coordination.LeaseSpec {
		return coordination.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now, LeaseTransitions: ptr(int32(0))}
	}
	same := func(what string, got, want coordination.LeaseSpec) {
		t.Helper()
		if *got.HolderIdentity != *want.HolderIdentity || *got.LeaseDurationSeconds != *want.LeaseDurationSeconds ||
			*got.LeaseTransitions != *want.LeaseTransitions || !got.AcquireTime.Equal(want.AcquireTime) || !got.RenewTime.Equal(want.RenewTime) {
			t.Errorf("%s: the spec is %+v, want %+v", what, got, want)
		}
	}
	labels := map[string]string{"test": namespace}
	made, err := leases.Create(ctx, &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "object", Labels: labels}, Spec: spec("holder", 30)}, metav1.CreateOptions{})
	check(t, err)
	got, err := leases.Get(ctx, "object", metav1.GetOptions{})
	check(t, err)
	same("create", got.Spec, made.Spec)
	made.Spec = spec("holder2", 60)
	_, err = leases.Update(ctx, made, metav1.UpdateOptions{})
	check(t, err)
	got, err = leases.Get(ctx, "object", metav1.GetOptions{})
	check(t, err)
	same("update", got.Spec, made.Spec)
	patch, err := json.Marshal(coordination.Lease{Spec: spec("holder3", 50)})
	check(t, err)
	_, err = leases.Patch(ctx, "object", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	check(t, err)
	got, err = leases.Get(ctx, "object", metav1.GetOptions{})
	check(t, err)
	same("patch", got.Spec, spec("holder3", 50))

	_, err = leases.Create(ctx, &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "second", Labels: labels}, Spec: spec("holder", 30)}, metav1.CreateOptions{})
	check(t, err)
	count := func(want int) {
		t.Helper()
		list, err := leases.List(ctx, metav1.ListOptions{LabelSelector: "test=" + namespace})
		check(t, err)
		if len(list.Items) != want {
			t.Errorf("the list has %d Leases, want %d", len(list.Items), want)
		}
	}
	count(2)
	check(t, leases.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "test=" + namespace}))
	count(0)
	_, err = leases.Create(ctx, &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "object"}}, metav1.CreateOptions{})
	check(t, err)
	check(t, leases.Delete(ctx, "object", metav1.DeleteOptions{}))
	if _, err := leases.Get(ctx, "object", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(fmt.Errorf("after the delete: %w", err))
	}
}
