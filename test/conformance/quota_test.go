package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"
)

// amounts is a resource list as text.
type amounts map[corev1.ResourceName]string

func (a amounts) list() corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range a {
		out[name] = resource.MustParse(q)
	}
	return out
}

// with returns a with some amounts changed.
func (a amounts) with(changed amounts) amounts {
	out := maps.Clone(a)
	maps.Copy(out, changed)
	return out
}

func quota(name string, hard amounts, scopes ...corev1.ResourceQuotaScope) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard.list(), Scopes: scopes},
	}
}

// limited creates a quota and waits until nothing of it is used.
func limited(t *testing.T, ctx context.Context, namespace string, q *corev1.ResourceQuota) {
	t.Helper()
	_, err := admin.CoreV1().ResourceQuotas(namespace).Create(ctx, q, metav1.CreateOptions{})
	check(t, err)
	used := amounts{}
	for name := range q.Spec.Hard {
		used[name] = "0"
	}
	uses(t, ctx, namespace, q.Name, used)
}

// uses waits until a quota is in force and is used as given.
func uses(t *testing.T, ctx context.Context, namespace, name string, want amounts) {
	t.Helper()
	eventually(t, ctx, fmt.Sprintf("%v of quota %s is used", want, name), func() error {
		q, err := admin.CoreV1().ResourceQuotas(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !sameAmounts(q.Status.Hard, q.Spec.Hard) {
			return fmt.Errorf("status.hard is %v", q.Status.Hard)
		}
		for name, amount := range want {
			if used, ok := q.Status.Used[name]; !ok || used.Cmp(resource.MustParse(amount)) != 0 {
				return fmt.Errorf("status.used is %v", q.Status.Used)
			}
		}
		return nil
	})
}

func sameAmounts(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}

// exceeds checks that a quota or a limit refused a request.
func exceeds(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Errorf("%s: %v, want it forbidden", what, err)
	}
}

// requesting returns a pod with these requests and limits. It need not run.
func requesting(name string, requests, limits amounts) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "pause", Image: busybox, Command: []string{"sleep", "3600"},
		Resources: corev1.ResourceRequirements{Requests: requests.list(), Limits: limits.list()},
	}}}}
}

func deleteNow() metav1.DeleteOptions { return metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))} }

func quotaPod(t *testing.T, ctx context.Context, namespace string) {
	pods := admin.CoreV1().Pods(namespace)
	hard := amounts{"pods": "5", "cpu": "1", "memory": "500Mi", "ephemeral-storage": "50Gi", "requests.example.com/dongle": "3"}
	limited(t, ctx, namespace, quota("q", hard))
	first := requesting("first", amounts{"cpu": "500m", "memory": "252Mi", "ephemeral-storage": "30Gi", "example.com/dongle": "2"}, amounts{"example.com/dongle": "2"})
	pod, err := pods.Create(ctx, first, metav1.CreateOptions{})
	check(t, err)
	used := amounts{"pods": "1", "cpu": "500m", "memory": "252Mi", "ephemeral-storage": "30Gi", "requests.example.com/dongle": "2"}
	uses(t, ctx, namespace, "q", used)
	for name, requests := range map[string]amounts{
		"too-much-cpu":    {"cpu": "600m", "memory": "100Mi"},
		"too-many-dongle": {"cpu": "500m", "memory": "100Mi", "ephemeral-storage": "10Gi", "example.com/dongle": "2"},
	} {
		limits := amounts{}
		if n, ok := requests["example.com/dongle"]; ok {
			limits["example.com/dongle"] = n
		}
		_, err := pods.Create(ctx, requesting(name, requests, limits), metav1.CreateOptions{})
		exceeds(t, name, err)
	}
	pod, err = pods.Get(ctx, pod.Name, metav1.GetOptions{})
	check(t, err)
	pod.Spec.Containers[0].Resources.Requests = amounts{"cpu": "100m", "memory": "100Mi", "ephemeral-storage": "10Gi"}.list()
	pod.Spec.Containers[0].Resources.Limits = nil
	if _, err := pods.Update(ctx, pod, metav1.UpdateOptions{}); err == nil {
		t.Error("the resources of a pod were changed")
	}
	uses(t, ctx, namespace, "q", used)
	check(t, pods.Delete(ctx, "first", deleteNow()))
	uses(t, ctx, namespace, "q", amounts{"pods": "0", "cpu": "0", "memory": "0", "ephemeral-storage": "0", "requests.example.com/dongle": "0"})
}

func quotaConfigMap(t *testing.T, ctx context.Context, namespace string) {
	configs := admin.CoreV1().ConfigMaps(namespace)
	eventually(t, ctx, "the CA is published", func() error {
		_, err := configs.Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
	_, err := admin.CoreV1().ResourceQuotas(namespace).Create(ctx, quota("q", amounts{"configmaps": "2"}), metav1.CreateOptions{})
	check(t, err)
	uses(t, ctx, namespace, "q", amounts{"configmaps": "1"})
	_, err = configs.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	check(t, err)
	uses(t, ctx, namespace, "q", amounts{"configmaps": "2"})
	check(t, configs.Delete(ctx, "a", metav1.DeleteOptions{}))
	uses(t, ctx, namespace, "q", amounts{"configmaps": "1"})
}

func quotaSecret(t *testing.T, ctx context.Context, namespace string) {
	secrets := admin.CoreV1().Secrets(namespace)
	create := func(name string) {
		_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"data-1": []byte("value-1")}}, metav1.CreateOptions{})
		check(t, err)
	}
	create("before")
	_, err := admin.CoreV1().ResourceQuotas(namespace).Create(ctx, quota("q", amounts{"secrets": "2"}), metav1.CreateOptions{})
	check(t, err)
	uses(t, ctx, namespace, "q", amounts{"secrets": "1"})
	create("a")
	uses(t, ctx, namespace, "q", amounts{"secrets": "2"})
	check(t, secrets.Delete(ctx, "a", metav1.DeleteOptions{}))
	uses(t, ctx, namespace, "q", amounts{"secrets": "1"})
}

func quotaReplicaSet(t *testing.T, ctx context.Context, namespace string) {
	sets := admin.AppsV1().ReplicaSets(namespace)
	limited(t, ctx, namespace, quota("q", amounts{"count/replicasets.apps": "5"}))
	labels := map[string]string{"app": "q"}
	_, err := sets.Create(ctx, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: appsv1.ReplicaSetSpec{
		Replicas: ptr(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: requesting("", nil, nil).Spec},
	}}, metav1.CreateOptions{})
	check(t, err)
	uses(t, ctx, namespace, "q", amounts{"count/replicasets.apps": "1"})
	check(t, sets.Delete(ctx, "a", metav1.DeleteOptions{}))
	uses(t, ctx, namespace, "q", amounts{"count/replicasets.apps": "0"})
}

func quotaController(t *testing.T, ctx context.Context, namespace string) {
	limited(t, ctx, namespace, quota("q", amounts{"replicationcontrollers": "5", "count/replicationcontrollers": "5"}))
	createController(t, ctx, namespace, "rc", 0, idle("rc", ""))
	uses(t, ctx, namespace, "q", amounts{"replicationcontrollers": "1", "count/replicationcontrollers": "1"})
	deleteController(t, ctx, namespace, "rc", metav1.DeletePropagationBackground)
	uses(t, ctx, namespace, "q", amounts{"replicationcontrollers": "0", "count/replicationcontrollers": "0"})
}

func quotaService(t *testing.T, ctx context.Context, namespace string) {
	services := admin.CoreV1().Services(namespace)
	limited(t, ctx, namespace, quota("q", amounts{"services": "10", "services.nodeports": "1", "services.loadbalancers": "1"}))
	create := func(name string, kind corev1.ServiceType) error {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Port: 80}}}}
		if kind == corev1.ServiceTypeLoadBalancer {
			svc.Spec.AllocateLoadBalancerNodePorts = ptr(false)
		}
		_, err := services.Create(ctx, svc, metav1.CreateOptions{})
		return err
	}
	check(t, create("cluster-ip", corev1.ServiceTypeClusterIP))
	check(t, create("node-port", corev1.ServiceTypeNodePort))
	exceeds(t, "a second node port", create("second-node-port", corev1.ServiceTypeNodePort))
	check(t, create("balancer", corev1.ServiceTypeLoadBalancer))
	exceeds(t, "a second load balancer", create("second-balancer", corev1.ServiceTypeLoadBalancer))
	uses(t, ctx, namespace, "q", amounts{"services": "3", "services.nodeports": "1", "services.loadbalancers": "1"})
	for _, name := range []string{"cluster-ip", "node-port", "balancer"} {
		check(t, services.Delete(ctx, name, metav1.DeleteOptions{}))
	}
	uses(t, ctx, namespace, "q", amounts{"services": "0", "services.nodeports": "0", "services.loadbalancers": "0"})
}

func quotaPrompt(t *testing.T, ctx context.Context, namespace string) {
	hard := amounts{
		"pods": "5", "services": "10", "services.nodeports": "1", "services.loadbalancers": "1", "replicationcontrollers": "10",
		"configmaps": "10", "secrets": "10", "persistentvolumeclaims": "10", "requests.storage": "10Gi",
		"cpu": "1", "memory": "500Mi", "ephemeral-storage": "50Gi", "requests.example.com/dongle": "3",
	}
	_, err := admin.CoreV1().ResourceQuotas(namespace).Create(ctx, quota("q", hard.with(amounts{"resourcequotas": "2"})), metav1.CreateOptions{})
	check(t, err)
	used := amounts{"resourcequotas": "1"}
	for name := range hard {
		used[name] = "0"
	}
	used["configmaps"] = "1" // kube-root-ca.crt
	uses(t, ctx, namespace, "q", used)
}

// quotaScopes creates a pod in the scope of one quota and one in the scope of the
// other: each counts for its own only.
func quotaScopes(first, second corev1.ResourceQuotaScope, hard amounts, inFirst, inSecond func(*corev1.Pod)) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		limited(t, ctx, namespace, quota("first", hard, first))
		limited(t, ctx, namespace, quota("second", hard, second))
		pods := admin.CoreV1().Pods(namespace)
		none := amounts{}
		for name := range hard {
			none[name] = "0"
		}
		for _, c := range []struct {
			counts, ignores string
			change          func(*corev1.Pod)
		}{{"first", "second", inFirst}, {"second", "first", inSecond}} {
			pod := requesting(c.counts, nil, nil)
			c.change(pod)
			_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
			check(t, err)
			used := amounts{"pods": "1"}
			for name, q := range pod.Spec.Containers[0].Resources.Requests {
				used["requests."+name] = q.String()
			}
			for name, q := range pod.Spec.Containers[0].Resources.Limits {
				used["limits."+name] = q.String()
			}
			for name := range used {
				if _, ok := hard[name]; !ok {
					delete(used, name)
				}
			}
			uses(t, ctx, namespace, c.counts, used)
			uses(t, ctx, namespace, c.ignores, none)
			check(t, pods.Delete(ctx, c.counts, deleteNow()))
			uses(t, ctx, namespace, c.counts, none)
		}
	}
}

func withResources(pod *corev1.Pod) {
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{
		Requests: amounts{"cpu": "500m", "memory": "200Mi"}.list(), Limits: amounts{"cpu": "1", "memory": "400Mi"}.list(),
	}
}

func withDeadline(pod *corev1.Pod) {
	withResources(pod)
	pod.Spec.ActiveDeadlineSeconds = ptr(int64(3600))
}

func quotaUpdate(t *testing.T, ctx context.Context, namespace string) {
	quotas := admin.CoreV1().ResourceQuotas(namespace)
	has := func(what string, want amounts) {
		t.Helper()
		got, err := quotas.Get(ctx, "q", metav1.GetOptions{})
		check(t, err)
		if !sameAmounts(got.Spec.Hard, want.list()) {
			t.Errorf("%s: spec.hard is %v, want %v", what, got.Spec.Hard, want)
		}
	}
	hard := amounts{"cpu": "1", "memory": "500Mi"}
	_, err := quotas.Create(ctx, quota("q", hard), metav1.CreateOptions{})
	check(t, err)
	has("created", hard)
	hard = amounts{"cpu": "2", "memory": "1Gi"}
	check(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		q, err := quotas.Get(ctx, "q", metav1.GetOptions{})
		if err != nil {
			return err
		}
		q.Spec.Hard = hard.list()
		_, err = quotas.Update(ctx, q, metav1.UpdateOptions{})
		return err
	}))
	has("updated", hard)
	check(t, quotas.Delete(ctx, "q", metav1.DeleteOptions{}))
	_, err = quotas.Get(ctx, "q", metav1.GetOptions{})
	notFound(t, "the deleted quota", err)
}

func quotaLifecycle(t *testing.T, ctx context.Context, namespace string) {
	quotas := admin.CoreV1().ResourceQuotas(namespace)
	ours := metav1.ListOptions{LabelSelector: "e2e.example.com/quota=" + namespace}
	q := quota("q", amounts{"cpu": "1", "memory": "500Mi"})
	q.Labels = map[string]string{"e2e.example.com/quota": namespace}
	_, err := quotas.Create(ctx, q, metav1.CreateOptions{})
	check(t, err)
	_, err = quotas.Get(ctx, "q", metav1.GetOptions{})
	check(t, err)
	list, err := admin.CoreV1().ResourceQuotas("").List(ctx, ours)
	check(t, err)
	if len(list.Items) != 1 || list.Items[0].Namespace != namespace {
		t.Errorf("the list of all namespaces has %d quotas", len(list.Items))
	}
	hard := amounts{"cpu": "600m", "memory": "750Mi"}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{"q": "patched"}}, "spec": map[string]any{"hard": hard}})
	check(t, err)
	patched, err := quotas.Patch(ctx, "q", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	check(t, err)
	if patched.Labels["q"] != "patched" || !sameAmounts(patched.Spec.Hard, hard.list()) {
		t.Errorf("after the patch: %v, %v", patched.Labels, patched.Spec.Hard)
	}
	check(t, quotas.DeleteCollection(ctx, metav1.DeleteOptions{}, ours))
	list, err = quotas.List(ctx, ours)
	check(t, err)
	if len(list.Items) != 0 {
		t.Errorf("%d quotas are left", len(list.Items))
	}
}

// quotaStatus writes the status in three ways: the spec stays as it is. Then it changes
// the spec, and the status follows.
func quotaStatus(t *testing.T, ctx context.Context, namespace string) {
	quotas := admin.CoreV1().ResourceQuotas(namespace)
	limited(t, ctx, namespace, quota("q", amounts{"cpu": "500m", "memory": "500Mi"}))
	shows := func(what string, spec, status amounts) {
		t.Helper()
		q, err := quotas.Get(ctx, "q", metav1.GetOptions{})
		check(t, err)
		if !sameAmounts(q.Spec.Hard, spec.list()) || !sameAmounts(q.Status.Hard, status.list()) {
			t.Errorf("%s: spec.hard %v, status.hard %v; want %v, %v", what, q.Spec.Hard, q.Status.Hard, spec, status)
		}
	}
	spec := amounts{"cpu": "500m", "memory": "500Mi"}
	status := amounts{"cpu": "750m", "memory": "1Gi"}
	check(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		q, err := quotas.Get(ctx, "q", metav1.GetOptions{})
		if err != nil {
			return err
		}
		q.Status.Hard = status.list()
		_, err = quotas.UpdateStatus(ctx, q, metav1.UpdateOptions{})
		return err
	}))
	shows("status updated", spec, status)

	status = amounts{"cpu": "250m", "memory": "250Mi"}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"hard": amounts{"cpu": "9"}}, "status": map[string]any{"hard": status}})
	check(t, err)
	_, err = quotas.Patch(ctx, "q", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	check(t, err)
	shows("status patched", spec, status)
	var viaStatus corev1.ResourceQuota
	text, err := admin.CoreV1().RESTClient().Get().Resource("resourcequotas").Namespace(namespace).Name("q").SubResource("status").
		SetHeader("Accept", "application/json").DoRaw(ctx)
	check(t, err)
	check(t, json.Unmarshal(text, &viaStatus))
	if !sameAmounts(viaStatus.Status.Hard, status.list()) {
		t.Errorf("GET of the status: %v", viaStatus.Status.Hard)
	}

	spec = amounts{"cpu": "1", "memory": "1Gi"}
	patch, err = json.Marshal(map[string]any{"spec": map[string]any{"hard": spec}})
	check(t, err)
	_, err = quotas.Patch(ctx, "q", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	check(t, err)
	uses(t, ctx, namespace, "q", amounts{"cpu": "0", "memory": "0"})
	shows("spec patched", spec, spec)
}

func limitRange(name string, min, max, limits, requests amounts) *corev1.LimitRange {
	return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Min: min.list(), Max: max.list(), Default: limits.list(), DefaultRequest: requests.list(),
	}}}}
}

func limitRangeDefaults(t *testing.T, ctx context.Context, namespace string) {
	ranges, pods := admin.CoreV1().LimitRanges(namespace), admin.CoreV1().Pods(namespace)
	w, err := ranges.Watch(ctx, metav1.ListOptions{LabelSelector: "time=" + namespace})
	check(t, err)
	defer w.Stop()
	limits := amounts{"cpu": "500m", "memory": "500Mi", "ephemeral-storage": "500Gi"}
	requests := amounts{"cpu": "100m", "memory": "200Mi", "ephemeral-storage": "200Gi"}
	l := limitRange("limits", amounts{"cpu": "50m", "memory": "100Mi", "ephemeral-storage": "100Gi"}, amounts{"cpu": "500m", "memory": "500Mi", "ephemeral-storage": "500Gi"}, limits, requests)
	l.Labels = map[string]string{"time": namespace}
	l, err = ranges.Create(ctx, l, metav1.CreateOptions{})
	check(t, err)
	sees(t, ctx, w, watch.Added, func(got *corev1.LimitRange) bool { return got.UID == l.UID })

	has := func(name string, requests, limits amounts, wantRequests, wantLimits amounts) {
		t.Helper()
		pod, err := pods.Create(ctx, requesting(name, requests, limits), metav1.CreateOptions{})
		check(t, err)
		if r := pod.Spec.Containers[0].Resources; !sameAmounts(r.Requests, wantRequests.list()) || !sameAmounts(r.Limits, wantLimits.list()) {
			t.Errorf("%s: %+v, want %v, %v", name, r, wantRequests, wantLimits)
		}
	}
	refused := func(name string, requests amounts) {
		t.Helper()
		_, err := pods.Create(ctx, requesting(name, requests, nil), metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) { // invalid: the request is above the default limit
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
	has("no-resources", nil, nil, requests, limits)
	has("some-resources", amounts{"cpu": "300m"}, amounts{"memory": "300Mi"}, requests.with(amounts{"cpu": "300m", "memory": "300Mi"}), limits.with(amounts{"memory": "300Mi"}))
	refused("below-min", amounts{"cpu": "10m", "memory": "50Mi", "ephemeral-storage": "50Gi"})
	refused("above-max", amounts{"cpu": "600m", "memory": "600Mi", "ephemeral-storage": "600Gi"})

	lower := amounts{"cpu": "9m", "memory": "49Mi", "ephemeral-storage": "49Gi"}
	check(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		got, err := ranges.Get(ctx, "limits", metav1.GetOptions{})
		if err != nil {
			return err
		}
		got.Spec.Limits[0].Min = lower.list()
		_, err = ranges.Update(ctx, got, metav1.UpdateOptions{})
		return err
	}))
	sees(t, ctx, w, watch.Modified, func(got *corev1.LimitRange) bool { return sameAmounts(got.Spec.Limits[0].Min, lower.list()) })
	has("once-below-min", amounts{"cpu": "10m", "memory": "50Mi", "ephemeral-storage": "50Gi"}, nil, amounts{"cpu": "10m", "memory": "50Mi", "ephemeral-storage": "50Gi"}, limits)
	refused("still-above-max", amounts{"cpu": "600m", "memory": "600Mi", "ephemeral-storage": "600Gi"})

	check(t, ranges.Delete(ctx, "limits", deleteNow()))
	sees(t, ctx, w, watch.Deleted, func(got *corev1.LimitRange) bool { return got.UID == l.UID })
	has("unlimited", amounts{"cpu": "1"}, nil, amounts{"cpu": "1"}, nil)
}

func limitRangeCollection(t *testing.T, ctx context.Context, first string) {
	second := namespace(t, ctx, "limitrange-second")
	ours := metav1.ListOptions{LabelSelector: "e2e.example.com/limits=" + first}
	for _, ns := range []string{first, second} {
		l := limitRange("limits", amounts{"cpu": "50m", "memory": "100Mi"}, amounts{"cpu": "500m", "memory": "500Mi"}, amounts{"cpu": "500m", "memory": "500Mi"}, amounts{"cpu": "100m", "memory": "200Mi"})
		l.Labels = map[string]string{"e2e.example.com/limits": first}
		_, err := admin.CoreV1().LimitRanges(ns).Create(ctx, l, metav1.CreateOptions{})
		check(t, err)
	}
	count := func(what, ns string, want int) {
		t.Helper()
		list, err := admin.CoreV1().LimitRanges(ns).List(ctx, ours)
		check(t, err)
		if len(list.Items) != want {
			t.Errorf("%s: %d LimitRanges, want %d", what, len(list.Items), want)
		}
	}
	count("all namespaces", "", 2)
	patched, err := admin.CoreV1().LimitRanges(first).Patch(ctx, "limits", types.StrategicMergePatchType,
		[]byte(`{"metadata":{"labels":{"limits":"patched"}},"spec":{"limits":[{"type":"Container","max":{"cpu":"400m"},"min":{"cpu":"40m"},"default":{"cpu":"400m"},"defaultRequest":{"cpu":"90m"}}]}}`), metav1.PatchOptions{})
	check(t, err)
	if item := patched.Spec.Limits[0]; patched.Labels["limits"] != "patched" || !sameAmounts(item.Min, amounts{"cpu": "40m"}.list()) || !sameAmounts(item.DefaultRequest, amounts{"cpu": "90m"}.list()) {
		t.Errorf("after the patch: %v, %+v", patched.Labels, item)
	}
	check(t, admin.CoreV1().LimitRanges(first).DeleteCollection(ctx, metav1.DeleteOptions{}, ours))
	count("the namespace that was emptied", first, 0)
	count("the other namespace", second, 1)
}
