package conformance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// daemonSets returns the rows of DaemonSets and ControllerRevisions in the area apps.
func daemonSets() []testcase {
	return []testcase{
		{id: "controllerrevision-lifecycle", test: revisionLifecycle, serial: true},
		{id: "daemonset-list-deletecollection", test: daemonDeleteCollection, serial: true},
		{id: "daemonset-node-selector", test: daemonNodeSelector, serial: true},
		{id: "daemonset-retry-failed-pod", test: daemonRetries, serial: true},
		{id: "daemonset-rollback-no-restart", test: daemonRollback, serial: true},
		{id: "daemonset-rolling-update", test: daemonRollingUpdate, serial: true},
		{id: "daemonset-simple", test: daemonSimple, serial: true},
		{id: "daemonset-status-subresource", test: daemonStatus, serial: true},
	}
}

// createDaemon creates DaemonSet daemon.
func createDaemon(t *testing.T, ctx context.Context, namespace string, change ...func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	t.Helper()
	of := idle("daemon", "")
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "daemon", Labels: map[string]string{"test": namespace}},
		Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: of.Labels}, Template: of},
	}
	for _, f := range change {
		f(ds)
	}
	ds, err := admin.AppsV1().DaemonSets(namespace).Create(ctx, ds, metav1.CreateOptions{})
	check(t, err)
	return ds
}

func updateDaemon(t *testing.T, ctx context.Context, namespace string, change func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	t.Helper()
	var made *appsv1.DaemonSet
	eventually(t, ctx, "update of the DaemonSet", func() error {
		ds, err := admin.AppsV1().DaemonSets(namespace).Get(ctx, "daemon", metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(ds)
		made, err = admin.AppsV1().DaemonSets(namespace).Update(ctx, ds, metav1.UpdateOptions{})
		return err
	})
	return made
}

// eligible returns the names of the nodes that take any pod.
func eligible(t *testing.T, ctx context.Context) []string {
	t.Helper()
	list, err := admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	check(t, err)
	var out []string
	for _, n := range list.Items {
		if len(n.Spec.Taints) == 0 {
			out = append(out, n.Name)
		}
	}
	slices.Sort(out)
	return out
}

// daemonPods returns the pods of the DaemonSet.
func daemonPods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	list, err := admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=daemon"})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// daemonRuns waits until each of the nodes, and no other, has one pod, which is ready and of
// the current template. It returns the pods by node.
func daemonRuns(t *testing.T, ctx context.Context, namespace string, on []string) map[string]corev1.Pod {
	t.Helper()
	var byNode map[string]corev1.Pod
	eventually(t, ctx, fmt.Sprintf("the DaemonSet runs on %v", on), func() error {
		ds, err := admin.AppsV1().DaemonSets(namespace).Get(ctx, "daemon", metav1.GetOptions{})
		if err != nil {
			return err
		}
		pods, err := daemonPods(ctx, namespace)
		if err != nil {
			return err
		}
		byNode = map[string]corev1.Pod{}
		for _, p := range pods {
			if isReady(&p) && p.DeletionTimestamp == nil {
				byNode[p.Spec.NodeName] = p
			}
		}
		n, s := int32(len(on)), ds.Status
		if !slices.Equal(slices.Sorted(maps.Keys(byNode)), on) || len(pods) != len(on) || s.ObservedGeneration < ds.Generation ||
			s.DesiredNumberScheduled != n || s.NumberAvailable != n || s.UpdatedNumberScheduled != n {
			return fmt.Errorf("%d pods, ready on %v, status %+v", len(pods), slices.Sorted(maps.Keys(byNode)), s)
		}
		return nil
	})
	return byNode
}

// daemonRevisions waits until there are n ControllerRevisions, and returns them, oldest first.
func daemonRevisions(t *testing.T, ctx context.Context, namespace string, n int) []appsv1.ControllerRevision {
	t.Helper()
	var out []appsv1.ControllerRevision
	eventually(t, ctx, fmt.Sprintf("there are %d ControllerRevisions", n), func() error {
		list, err := admin.AppsV1().ControllerRevisions(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=daemon"})
		if err == nil && len(list.Items) != n {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		if err == nil {
			out = list.Items
		}
		return err
	})
	slices.SortFunc(out, func(a, b appsv1.ControllerRevision) int { return int(a.Revision - b.Revision) })
	return out
}

func daemonSimple(t *testing.T, ctx context.Context, namespace string) {
	createDaemon(t, ctx, namespace)
	on := eligible(t, ctx)
	before := daemonRuns(t, ctx, namespace, on)
	check(t, admin.CoreV1().Pods(namespace).Delete(ctx, before[on[0]].Name, metav1.DeleteOptions{}))
	eventually(t, ctx, "the pod is gone", func() error {
		_, err := admin.CoreV1().Pods(namespace).Get(ctx, before[on[0]].Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
	daemonRuns(t, ctx, namespace, on)
}

func daemonRetries(t *testing.T, ctx context.Context, namespace string) {
	createDaemon(t, ctx, namespace)
	on := eligible(t, ctx)
	failed := daemonRuns(t, ctx, namespace, on)[on[0]]
	eventually(t, ctx, "the pod is set to Failed", func() error {
		p, err := admin.CoreV1().Pods(namespace).Get(ctx, failed.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		p.ResourceVersion, p.Status.Phase = "", corev1.PodFailed
		_, err = admin.CoreV1().Pods(namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
		return err
	})
	eventually(t, ctx, "the failed pod is deleted", func() error {
		p, err := admin.CoreV1().Pods(namespace).Get(ctx, failed.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %s, %w", p.Status.Phase, err)
	})
	daemonRuns(t, ctx, namespace, on)
}

func daemonNodeSelector(t *testing.T, ctx context.Context, namespace string) {
	key, node := "e2e.example.com/"+namespace, eligible(t, ctx)[0]
	label := func(ctx context.Context, value string) {
		t.Helper()
		_, err := admin.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, key, value)), metav1.PatchOptions{})
		check(t, err)
	}
	t.Cleanup(func() { label(context.Background(), "null") })
	createDaemon(t, ctx, namespace, func(ds *appsv1.DaemonSet) {
		ds.Spec.Template.Spec.NodeSelector = map[string]string{key: "blue"}
	})
	daemonRuns(t, ctx, namespace, nil)
	label(ctx, `"blue"`)
	daemonRuns(t, ctx, namespace, []string{node})
	label(ctx, `"green"`)
	daemonRuns(t, ctx, namespace, nil)
	updateDaemon(t, ctx, namespace, func(ds *appsv1.DaemonSet) {
		ds.Spec.Template.Spec.NodeSelector = map[string]string{key: "green"}
		ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType}
	})
	daemonRuns(t, ctx, namespace, []string{node})
}

func daemonRollingUpdate(t *testing.T, ctx context.Context, namespace string) {
	createDaemon(t, ctx, namespace)
	on := eligible(t, ctx)
	checkHash := func(pods map[string]corev1.Pod, r appsv1.ControllerRevision) {
		t.Helper()
		for node, p := range pods {
			if hash := p.Labels[appsv1.ControllerRevisionHashLabelKey]; hash == "" || hash != r.Labels[appsv1.ControllerRevisionHashLabelKey] {
				t.Errorf("the pod on %s has the hash %q, the revision %q", node, hash, r.Labels[appsv1.ControllerRevisionHashLabelKey])
			}
		}
	}
	first := daemonRuns(t, ctx, namespace, on)
	checkHash(first, daemonRevisions(t, ctx, namespace, 1)[0])
	_, err := admin.AppsV1().DaemonSets(namespace).Patch(ctx, "daemon", types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"`+web+`","command":null}]}}}}`), metav1.PatchOptions{})
	check(t, err)
	available := func() error { // at most one pod is missing
		pods, err := daemonPods(ctx, namespace)
		n := 0
		for _, p := range pods {
			if isReady(&p) && p.DeletionTimestamp == nil {
				n++
			}
		}
		if err == nil && n < len(on)-1 {
			t.Errorf("%d pods are ready", n)
		}
		return err
	}
	eventually(t, ctx, "all pods have the new image", func() error {
		if err := available(); err != nil {
			return err
		}
		pods, err := daemonPods(ctx, namespace)
		if err == nil && slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Spec.Containers[0].Image != web }) {
			err = fmt.Errorf("not yet")
		}
		return err
	})
	revisions := daemonRevisions(t, ctx, namespace, 2)
	checkHash(daemonRuns(t, ctx, namespace, on), revisions[1])
	if revisions[0].Revision != 1 || revisions[1].Revision != 2 {
		t.Errorf("the revisions are %d and %d", revisions[0].Revision, revisions[1].Revision)
	}
}

// daemonRollback rolls back from an image that cannot be pulled. On a cluster with one node
// the only pod is replaced; on larger ones, all others are not.
func daemonRollback(t *testing.T, ctx context.Context, namespace string) {
	createDaemon(t, ctx, namespace)
	on := eligible(t, ctx)
	before := daemonRuns(t, ctx, namespace, on)
	image := before[on[0]].Spec.Containers[0].Image
	updateDaemon(t, ctx, namespace, func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = "foo:non-existent" })
	var stuck string
	eventually(t, ctx, "the update is stuck", func() error {
		pods, err := daemonPods(ctx, namespace)
		for _, p := range pods {
			if p.Spec.Containers[0].Image != image && p.Status.Phase == corev1.PodPending && p.Spec.NodeName != "" {
				stuck = p.Spec.NodeName
			}
		}
		if err == nil && stuck == "" {
			err = fmt.Errorf("no pod has the new image")
		}
		return err
	})
	updateDaemon(t, ctx, namespace, func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = image })
	for node, p := range daemonRuns(t, ctx, namespace, on) {
		restarts := p.Status.ContainerStatuses[0].RestartCount
		if replaced := p.UID != before[node].UID; replaced != (node == stuck) || restarts > 0 {
			t.Errorf("on %s (stuck: %s) the pod was replaced: %t, restarts: %d", node, stuck, replaced, restarts)
		}
	}
}

func daemonDeleteCollection(t *testing.T, ctx context.Context, namespace string) {
	createDaemon(t, ctx, namespace)
	daemonRuns(t, ctx, namespace, eligible(t, ctx))
	label := metav1.ListOptions{LabelSelector: "test=" + namespace}
	listed := func(want int) error {
		list, err := admin.AppsV1().DaemonSets("").List(ctx, label)
		if err == nil && len(list.Items) != want {
			err = fmt.Errorf("%d DaemonSets", len(list.Items))
		}
		return err
	}
	check(t, listed(1))
	check(t, admin.AppsV1().DaemonSets(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, label))
	eventually(t, ctx, "the DaemonSet is gone", func() error { return listed(0) })
}

func daemonStatus(t *testing.T, ctx context.Context, namespace string) {
	sets := admin.AppsV1().DaemonSets(namespace)
	createDaemon(t, ctx, namespace)
	daemonRuns(t, ctx, namespace, eligible(t, ctx))
	w, err := sets.Watch(ctx, metav1.ListOptions{LabelSelector: "test=" + namespace})
	check(t, err)
	defer w.Stop()
	has := func(kind appsv1.DaemonSetConditionType) func(*appsv1.DaemonSet) bool {
		return func(ds *appsv1.DaemonSet) bool {
			return slices.ContainsFunc(ds.Status.Conditions, func(c appsv1.DaemonSetCondition) bool { return c.Type == kind })
		}
	}
	read := func() (*appsv1.DaemonSet, error) {
		ds := &appsv1.DaemonSet{}
		return ds, admin.AppsV1().RESTClient().Get().Namespace(namespace).Resource("daemonsets").Name("daemon").SubResource("status").Do(ctx).Into(ds)
	}
	eventually(t, ctx, "the status is updated", func() error {
		ds, err := read()
		if err != nil {
			return err
		}
		ds.Status.Conditions = append(ds.Status.Conditions, appsv1.DaemonSetCondition{Type: "StatusUpdate", Status: corev1.ConditionTrue, Reason: "E2E", Message: "set by the test"})
		_, err = sets.UpdateStatus(ctx, ds, metav1.UpdateOptions{})
		return err
	})
	sees(t, ctx, w, watch.Modified, has("StatusUpdate"))
	_, err = sets.Patch(ctx, "daemon", types.MergePatchType, []byte(`{"status":{"conditions":[{"type":"StatusPatched","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	check(t, err)
	sees(t, ctx, w, watch.Modified, has("StatusPatched"))
	got, err := read()
	check(t, err)
	if !has("StatusPatched")(got) {
		t.Errorf("the status subresource has %+v", got.Status)
	}
}

// revisionLifecycle changes the ControllerRevisions of a DaemonSet by hand, while its
// controller makes others.
func revisionLifecycle(t *testing.T, ctx context.Context, namespace string) {
	revisions := admin.AppsV1().ControllerRevisions(namespace)
	ds := createDaemon(t, ctx, namespace)
	daemonRuns(t, ctx, namespace, eligible(t, ctx))
	initial := daemonRevisions(t, ctx, namespace, 1)[0]
	patched, err := revisions.Patch(ctx, initial.Name, types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"`+initial.Name+`":"patched"}}}`), metav1.PatchOptions{})
	check(t, err)
	if patched.Labels[initial.Name] != "patched" {
		t.Errorf("after the patch the labels are %v", patched.Labels)
	}
	labels := maps.Clone(ds.Spec.Template.Labels)
	labels[appsv1.ControllerRevisionHashLabelKey] = "byhand"
	_, err = revisions.Create(ctx, &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: ds.Name + "-byhand", Labels: labels, Annotations: ds.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Data: initial.Data, Revision: initial.Revision + 1,
	}, metav1.CreateOptions{})
	check(t, err)
	daemonRevisions(t, ctx, namespace, 2)
	check(t, revisions.Delete(ctx, initial.Name, metav1.DeleteOptions{}))
	byHand := daemonRevisions(t, ctx, namespace, 1)[0]
	eventually(t, ctx, "the revision is updated", func() error {
		r, err := revisions.Get(ctx, byHand.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		r.Labels[byHand.Name] = "updated"
		_, err = revisions.Update(ctx, r, metav1.UpdateOptions{})
		return err
	})

	_, err = admin.AppsV1().DaemonSets(namespace).Patch(ctx, "daemon", types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":1}},"updateStrategy":{"type":"RollingUpdate"}}}`), metav1.PatchOptions{})
	check(t, err)
	current := daemonRevisions(t, ctx, namespace, 2)[1]
	check(t, revisions.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: byHand.Name + "=updated"}))
	if last := daemonRevisions(t, ctx, namespace, 1)[0]; last.Name != current.Name {
		t.Errorf("%s is left, want %s", last.Name, current.Name)
	}
	eventually(t, ctx, "the current revision has the number 3", func() error {
		_, err := revisions.Patch(ctx, current.Name, types.StrategicMergePatchType, []byte(`{"revision":3}`), metav1.PatchOptions{})
		return err
	})
	daemonRuns(t, ctx, namespace, eligible(t, ctx))
	if last := daemonRevisions(t, ctx, namespace, 1)[0]; last.Revision != 3 || last.Name != current.Name {
		t.Errorf("the current revision is %s with the number %d", last.Name, last.Revision)
	}
}
