package conformance

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
)

// workloadObjects returns the rows of the area apps about the API of kinds whose
// objects the rows only write and read.
func workloadObjects() []testcase {
	return []testcase{
		{id: "cronjob-api", test: cronJobAPI},
		{id: "pdb-list-deletecollection", test: budgetDeleteCollection},
		{id: "statefulset-list-patch-deletecollection", test: statefulSetDeleteCollection},
		{id: "statefulset-scale-subresource", test: statefulSetScale},
		{id: "statefulset-status-subresource", test: statefulSetStatus},
	}
}

func cronJob(name string) *batchv1.CronJob {
	pod := sleeper("", "")
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	return &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"special": "label"}},
		Spec: batchv1.CronJobSpec{
			Schedule: "* */1 * * ?", ConcurrencyPolicy: batchv1.AllowConcurrent, Suspend: ptr(true), StartingDeadlineSeconds: ptr(int64(30)),
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: pod.Spec}}},
		},
	}
}

// cronJobAPI uses every verb of the API for CronJobs.
func cronJobAPI(t *testing.T, ctx context.Context, namespace string) {
	discovered(t, "batch", "cronjobs", "cronjobs/status")
	crons, label := admin.BatchV1().CronJobs(namespace), metav1.ListOptions{LabelSelector: "special=label"}
	for _, name := range []string{"a", "b", "c"} {
		_, err := crons.Create(ctx, cronJob(name), metav1.CreateOptions{})
		check(t, err)
	}
	_, err := crons.Get(ctx, "a", metav1.GetOptions{})
	check(t, err)
	all, err := admin.BatchV1().CronJobs("").List(ctx, label)
	check(t, err)
	if !slices.ContainsFunc(all.Items, func(c batchv1.CronJob) bool { return c.Namespace == namespace && c.Name == "a" }) {
		t.Error("the list of all namespaces lacks a CronJob")
	}
	list, err := crons.List(ctx, label)
	check(t, err)
	if len(list.Items) != 3 {
		t.Errorf("the list has %d CronJobs", len(list.Items))
	}
	w, err := crons.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, LabelSelector: label.LabelSelector})
	check(t, err)
	defer w.Stop()
	patched, err := crons.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"annotations":{"patched":"true"}}}`), metav1.PatchOptions{})
	check(t, err)
	if patched.Annotations["patched"] != "true" {
		t.Error("the patch is not applied")
	}
	patched.Annotations["updated"] = "true"
	_, err = crons.Update(ctx, patched, metav1.UpdateOptions{})
	check(t, err)
	sees(t, ctx, w, watch.Modified, func(c *batchv1.CronJob) bool { return c.Annotations["patched"] == "true" })
	sees(t, ctx, w, watch.Modified, func(c *batchv1.CronJob) bool { return c.Annotations["updated"] == "true" })
	cronJobStatus(t, ctx, namespace)

	check(t, crons.Delete(ctx, "a", metav1.DeleteOptions{}))
	sees(t, ctx, w, watch.Deleted, func(c *batchv1.CronJob) bool { return c.Name == "a" })
	if _, err := crons.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the delete: %v", err)
	}
	check(t, crons.DeleteCollection(ctx, metav1.DeleteOptions{}, label))
	list, err = crons.List(ctx, label)
	check(t, err)
	if len(list.Items) > 0 {
		t.Errorf("%d CronJobs are left", len(list.Items))
	}
}

// cronJobStatus patches, updates and reads the status of CronJob a.
func cronJobStatus(t *testing.T, ctx context.Context, namespace string) {
	t.Helper()
	crons, then := admin.BatchV1().CronJobs(namespace), metav1.NewTime(time.Now().Truncate(time.Second))
	text, err := then.MarshalJSON()
	check(t, err)
	patched, err := crons.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"annotations":{"patchedstatus":"true"}},"status":{"lastScheduleTime":`+string(text)+`}}`), metav1.PatchOptions{}, "status")
	check(t, err)
	if !patched.Status.LastScheduleTime.Equal(&then) || patched.Annotations["patchedstatus"] != "true" {
		t.Errorf("after the patch: %+v", patched.Status)
	}
	next := metav1.NewTime(then.Add(time.Second))
	patched.Status.LastScheduleTime = &next
	updated, err := crons.UpdateStatus(ctx, patched, metav1.UpdateOptions{})
	check(t, err)
	if !updated.Status.LastScheduleTime.Equal(&next) {
		t.Errorf("after the update: %+v", updated.Status)
	}
	got := &batchv1.CronJob{}
	check(t, admin.BatchV1().RESTClient().Get().Namespace(namespace).Resource("cronjobs").Name("a").SubResource("status").Do(ctx).Into(got))
	if got.UID != updated.UID || !got.Status.LastScheduleTime.Equal(&next) {
		t.Errorf("the status subresource has %+v", got.Status)
	}
}

// discovered wants resources to be served in v1 of a group.
func discovered(t *testing.T, group string, resources ...string) {
	t.Helper()
	groups, err := admin.Discovery().ServerGroups()
	check(t, err)
	if !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool {
		return g.Name == group && slices.ContainsFunc(g.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == "v1" })
	}) {
		t.Errorf("the group %s is not in discovery", group)
	}
	list, err := admin.Discovery().ServerResourcesForGroupVersion(group + "/v1")
	check(t, err)
	for _, name := range resources {
		if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name }) {
			t.Errorf("%s is not in discovery", name)
		}
	}
}

func budgetDeleteCollection(t *testing.T, ctx context.Context, first string) {
	second := namespace(t, ctx, "pdb-list-2")
	label := metav1.ListOptions{LabelSelector: "test=" + first}
	for ns, names := range map[string][]string{first: {"a", "b", "c"}, second: {"d"}} {
		for _, name := range names {
			_, err := admin.PolicyV1().PodDisruptionBudgets(ns).Create(ctx, &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": first}},
				Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}},
			}, metav1.CreateOptions{})
			check(t, err)
		}
	}
	listed := func(ns string, want int) error {
		list, err := admin.PolicyV1().PodDisruptionBudgets(ns).List(ctx, label)
		if err == nil && len(list.Items) != want {
			err = fmt.Errorf("the list of namespace %q has %d, want %d", ns, len(list.Items), want)
		}
		return err
	}
	check(t, listed("", 4))
	check(t, listed(first, 3))
	check(t, admin.PolicyV1().PodDisruptionBudgets(first).DeleteCollection(ctx, metav1.DeleteOptions{}, label))
	eventually(t, ctx, "the collection is deleted", func() error { return listed(first, 0) })
	check(t, listed(second, 1))
}

func createStatefulSet(t *testing.T, ctx context.Context, namespace string) {
	t.Helper()
	of := idle("set", "")
	_, err := admin.AppsV1().StatefulSets(namespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "set", Labels: map[string]string{"test": namespace}},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr(int32(1)), ServiceName: "set", Selector: &metav1.LabelSelector{MatchLabels: of.Labels}, Template: of},
	}, metav1.CreateOptions{})
	check(t, err)
}

func statefulSetDeleteCollection(t *testing.T, ctx context.Context, namespace string) {
	sets, label := admin.AppsV1().StatefulSets(namespace), metav1.ListOptions{LabelSelector: "test=" + namespace}
	createStatefulSet(t, ctx, namespace)
	list, err := admin.AppsV1().StatefulSets("").List(ctx, label)
	check(t, err)
	if len(list.Items) != 1 {
		t.Errorf("the list of all namespaces has %d StatefulSets", len(list.Items))
	}
	patch := `{"metadata":{"labels":{"patched":"yes"}},"spec":{"replicas":2,"template":{"spec":{"terminationGracePeriodSeconds":0,"containers":[{"name":"c","image":"` + web + `"}]}}}}`
	_, err = sets.Patch(ctx, "set", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	check(t, err)
	got, err := sets.Get(ctx, "set", metav1.GetOptions{})
	check(t, err)
	if got.Labels["patched"] != "yes" || *got.Spec.Replicas != 2 || got.Spec.Template.Spec.Containers[0].Image != web {
		t.Errorf("after the patch: labels %v, %d replicas, image %s", got.Labels, *got.Spec.Replicas, got.Spec.Template.Spec.Containers[0].Image)
	}
	check(t, sets.DeleteCollection(ctx, metav1.DeleteOptions{}, label))
	eventually(t, ctx, "the StatefulSets are gone", func() error {
		list, err := sets.List(ctx, label)
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		return err
	})
}

func statefulSetScale(t *testing.T, ctx context.Context, namespace string) {
	sets := admin.AppsV1().StatefulSets(namespace)
	createStatefulSet(t, ctx, namespace)
	replicas := func(want int32) {
		t.Helper()
		got, err := sets.Get(ctx, "set", metav1.GetOptions{})
		check(t, err)
		if *got.Spec.Replicas != want {
			t.Errorf("the StatefulSet has %d replicas, want %d", *got.Spec.Replicas, want)
		}
	}
	scale, err := sets.GetScale(ctx, "set", metav1.GetOptions{})
	check(t, err)
	if scale.Spec.Replicas != 1 {
		t.Errorf("the scale has %d replicas", scale.Spec.Replicas)
	}
	_, err = sets.UpdateScale(ctx, "set", &autoscaling.Scale{ObjectMeta: metav1.ObjectMeta{Name: "set", Namespace: namespace}, Spec: autoscaling.ScaleSpec{Replicas: 2}}, metav1.UpdateOptions{})
	check(t, err)
	replicas(2)
	_, err = sets.Patch(ctx, "set", types.StrategicMergePatchType, []byte(`{"spec":{"replicas":4}}`), metav1.PatchOptions{}, "scale")
	check(t, err)
	replicas(4)
}

func statefulSetStatus(t *testing.T, ctx context.Context, namespace string) {
	sets := admin.AppsV1().StatefulSets(namespace)
	createStatefulSet(t, ctx, namespace)
	w, err := sets.Watch(ctx, metav1.ListOptions{LabelSelector: "test=" + namespace})
	check(t, err)
	defer w.Stop()
	has := func(kind appsv1.StatefulSetConditionType) func(*appsv1.StatefulSet) bool {
		return func(s *appsv1.StatefulSet) bool {
			return slices.ContainsFunc(s.Status.Conditions, func(c appsv1.StatefulSetCondition) bool { return c.Type == kind })
		}
	}
	read := func() (*appsv1.StatefulSet, error) {
		s := &appsv1.StatefulSet{}
		return s, admin.AppsV1().RESTClient().Get().Namespace(namespace).Resource("statefulsets").Name("set").SubResource("status").Do(ctx).Into(s)
	}
	eventually(t, ctx, "the status is updated", func() error {
		s, err := read()
		if err != nil {
			return err
		}
		s.Status.Conditions = append(s.Status.Conditions, appsv1.StatefulSetCondition{Type: "StatusUpdate", Status: corev1.ConditionTrue, Reason: "E2E", Message: "set by the test"})
		_, err = sets.UpdateStatus(ctx, s, metav1.UpdateOptions{})
		return err
	})
	sees(t, ctx, w, watch.Modified, has("StatusUpdate"))
	_, err = sets.Patch(ctx, "set", types.MergePatchType, []byte(`{"status":{"conditions":[{"type":"StatusPatched","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	check(t, err)
	sees(t, ctx, w, watch.Modified, has("StatusPatched"))
	got, err := read()
	check(t, err)
	if !has("StatusPatched")(got) {
		t.Errorf("the status subresource has %+v", got.Status)
	}
}
