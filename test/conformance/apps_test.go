package conformance

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
)

// apps returns the rows of the area apps.
func apps() []testcase {
	return slices.Concat(deployments(), replication(), statefulSets(), daemonSets(), budgets(), jobRows, workloadObjects())
}

// deployments returns the rows of Deployments and ReplicaSets.
func deployments() []testcase {
	return []testcase{
		{id: "deployment-lifecycle", test: deploymentLifecycle},
		{id: "deployment-proportional-scaling", test: proportionalScaling},
		{id: "deployment-recreate", test: recreate},
		{id: "deployment-revision-history-limit", test: historyLimit},
		{id: "deployment-rollingupdate-adopt", test: rollingUpdateAdopts},
		{id: "deployment-rollover", test: rollover},
		{id: "deployment-scale-subresource", test: deploymentScale},
		{id: "deployment-status-subresource", test: deploymentStatus},
		{id: "replicaset-adopt-release", test: adoptRelease},
		{id: "replicaset-list-deletecollection", test: replicaSetDeleteCollection},
		{id: "replicaset-replace-patch", test: replacePatch},
		{id: "replicaset-scale-subresource", test: replicaSetScale},
		{id: "replicaset-serve-image", test: serveImage},
		{id: "replicaset-status-subresource", test: replicaSetStatus},
	}
}

// template returns a pod template of the image.
func template(app, image string) corev1.PodTemplateSpec {
	pod := server("", "", map[string]string{"app": app})
	pod.Spec.Containers[0].Image = image
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec}
}

// idle returns a template whose containers sleep; note changes the template.
func idle(app, note string) corev1.PodTemplateSpec {
	pod := sleeper("", "")
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}, Annotations: map[string]string{"note": note}}, Spec: pod.Spec}
}

func deployment(namespace, name string, replicas int32, of corev1.PodTemplateSpec) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"test": namespace}},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: of.Labels}, Template: of},
	}
}

func createDeployment(t *testing.T, ctx context.Context, d *appsv1.Deployment) {
	t.Helper()
	_, err := admin.AppsV1().Deployments(d.Namespace).Create(ctx, d, metav1.CreateOptions{})
	check(t, err)
}

// deploymentBecomes waits until the Deployment is as ok wants it.
func deploymentBecomes(t *testing.T, ctx context.Context, namespace, name, what string, ok func(*appsv1.Deployment) bool) *appsv1.Deployment {
	t.Helper()
	var last *appsv1.Deployment
	eventually(t, ctx, "Deployment "+name+" "+what, func() error {
		d, err := admin.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if last = d; !ok(d) {
			return fmt.Errorf("its status is %+v", d.Status)
		}
		return nil
	})
	return last
}

// complete tells that a rollout has ended.
func complete(d *appsv1.Deployment) bool {
	s := d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == *d.Spec.Replicas && s.Replicas == *d.Spec.Replicas && s.AvailableReplicas == *d.Spec.Replicas
}

func updateDeployment(t *testing.T, ctx context.Context, namespace, name string, change func(*appsv1.Deployment)) *appsv1.Deployment {
	t.Helper()
	var made *appsv1.Deployment
	eventually(t, ctx, "update of Deployment "+name, func() error {
		d, err := admin.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(d)
		made, err = admin.AppsV1().Deployments(namespace).Update(ctx, d, metav1.UpdateOptions{})
		return err
	})
	return made
}

// replicaSets returns the ReplicaSets of the app, oldest revision first.
func replicaSets(t *testing.T, ctx context.Context, namespace, app string) []appsv1.ReplicaSet {
	t.Helper()
	list, err := admin.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	check(t, err)
	slices.SortFunc(list.Items, func(a, b appsv1.ReplicaSet) int {
		return strings.Compare(a.Annotations["deployment.kubernetes.io/revision"], b.Annotations["deployment.kubernetes.io/revision"])
	})
	return list.Items
}

// deploymentLifecycle follows a Deployment on a watch.
func deploymentLifecycle(t *testing.T, ctx context.Context, namespace string) {
	deployments, labels := admin.AppsV1().Deployments(namespace), metav1.ListOptions{LabelSelector: "test=" + namespace}
	w, err := deployments.Watch(ctx, labels)
	check(t, err)
	defer w.Stop()
	createDeployment(t, ctx, deployment(namespace, "d", 1, idle("d", "")))
	sees[*appsv1.Deployment](t, ctx, w, watch.Added, nil)
	sees(t, ctx, w, watch.Modified, func(d *appsv1.Deployment) bool { return d.Status.AvailableReplicas == 1 && d.Status.ReadyReplicas == 1 })

	patch := `{"metadata":{"labels":{"patched":"yes"}},"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"c","image":"` + busybox + `","args":["3601"]}]}}}}`
	_, err = deployments.Patch(ctx, "d", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	check(t, err)
	sees(t, ctx, w, watch.Modified, func(d *appsv1.Deployment) bool { return d.Labels["patched"] == "yes" && d.Status.ReadyReplicas == 2 })
	list, err := admin.AppsV1().Deployments("").List(ctx, labels)
	check(t, err)
	if len(list.Items) != 1 || list.Items[0].Labels["patched"] != "yes" {
		t.Errorf("the list of all namespaces has %d Deployments", len(list.Items))
	}
	_, err = deployments.UpdateScale(ctx, "d", &autoscaling.Scale{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: namespace}, Spec: autoscaling.ScaleSpec{Replicas: 1}}, metav1.UpdateOptions{})
	check(t, err)
	sees(t, ctx, w, watch.Modified, func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 1 })

	_, err = deployments.Patch(ctx, "d", types.StrategicMergePatchType, []byte(`{"metadata":{"annotations":{"patched":"status"}},"status":{"conditions":[{"type":"Patched","status":"True","reason":"E2E"}]}}`), metav1.PatchOptions{}, "status")
	check(t, err)
	sees(t, ctx, w, watch.Modified, func(d *appsv1.Deployment) bool { return d.Annotations["patched"] == "status" })
	eventually(t, ctx, "the status is updated", func() error {
		d, err := deployments.Get(ctx, "d", metav1.GetOptions{})
		if err != nil {
			return err
		}
		d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{Type: "Updated", Status: corev1.ConditionTrue, Reason: "E2E"})
		_, err = deployments.UpdateStatus(ctx, d, metav1.UpdateOptions{})
		return err
	})
	check(t, deployments.DeleteCollection(ctx, metav1.DeleteOptions{}, labels))
	sees[*appsv1.Deployment](t, ctx, w, watch.Deleted, nil)
}

// proportionalScaling scales a Deployment whose rollout is stuck: 8 and 5 of 10
// become 20 and 13 of 30.
func proportionalScaling(t *testing.T, ctx context.Context, namespace string) {
	d := deployment(namespace, "d", 10, idle("d", "one"))
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
		MaxSurge: ptr(intstr.FromInt32(3)), MaxUnavailable: ptr(intstr.FromInt32(2)),
	}}
	createDeployment(t, ctx, d)
	deploymentBecomes(t, ctx, namespace, "d", "is available", complete)
	updateDeployment(t, ctx, namespace, "d", func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Image = "localhost/podium/absent:v404"
		d.Spec.Template.Spec.Containers[0].ImagePullPolicy = corev1.PullNever
	})
	sizes := func(old, new int32) {
		t.Helper()
		eventually(t, ctx, fmt.Sprintf("the ReplicaSets have %d and %d pods", old, new), func() error {
			sets := replicaSets(t, ctx, namespace, "d")
			if len(sets) != 2 || *sets[0].Spec.Replicas != old || *sets[1].Spec.Replicas != new {
				var got []int32
				for _, s := range sets {
					got = append(got, *s.Spec.Replicas)
				}
				return fmt.Errorf("they have %v", got)
			}
			return nil
		})
	}
	sizes(8, 5)
	deploymentBecomes(t, ctx, namespace, "d", "has observed the change", func(d *appsv1.Deployment) bool {
		return d.Status.ObservedGeneration >= d.Generation && d.Status.Replicas == 13
	})
	updateDeployment(t, ctx, namespace, "d", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr(int32(30)) })
	sizes(20, 13)
}

// recreate wants no pod of the new template to exist while one of the old one
// does.
func recreate(t *testing.T, ctx context.Context, namespace string) {
	d := deployment(namespace, "d", 2, idle("d", "old"))
	d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
	createDeployment(t, ctx, d)
	deploymentBecomes(t, ctx, namespace, "d", "is available", complete)
	list, err := admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	check(t, err)
	w, err := admin.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	check(t, err)
	defer w.Stop()
	updateDeployment(t, ctx, namespace, "d", func(d *appsv1.Deployment) { d.Spec.Template.Annotations["note"] = "new" })
	old, started := len(list.Items), 0
	for started < 2 {
		select {
		case e := <-w.ResultChan():
			pod, ok := e.Object.(*corev1.Pod)
			if !ok {
				t.Fatalf("the watch delivered %T", e.Object)
			}
			switch isNew := pod.Annotations["note"] == "new"; {
			case !isNew && e.Type == watch.Deleted:
				old--
			case isNew && e.Type == watch.Added:
				if started++; old > 0 {
					t.Errorf("pod %s began while %d old ones were there", pod.Name, old)
				}
			}
		case <-ctx.Done():
			t.Fatalf("%d old pods, %d new ones", old, started)
		}
	}
	deploymentBecomes(t, ctx, namespace, "d", "is complete", complete)
}

func historyLimit(t *testing.T, ctx context.Context, namespace string) {
	d := deployment(namespace, "d", 1, idle("d", "old"))
	d.Spec.RevisionHistoryLimit = ptr(int32(0))
	createDeployment(t, ctx, d)
	deploymentBecomes(t, ctx, namespace, "d", "is available", complete)
	updateDeployment(t, ctx, namespace, "d", func(d *appsv1.Deployment) { d.Spec.Template.Annotations["note"] = "new" })
	eventually(t, ctx, "the old ReplicaSet is deleted", func() error {
		sets := replicaSets(t, ctx, namespace, "d")
		if len(sets) != 1 || sets[0].Spec.Template.Annotations["note"] != "new" {
			return fmt.Errorf("there are %d", len(sets))
		}
		return nil
	})
	deploymentBecomes(t, ctx, namespace, "d", "is complete", complete)
}

// rollingUpdateAdopts makes a Deployment beside a ReplicaSet with the same
// selector.
func rollingUpdateAdopts(t *testing.T, ctx context.Context, namespace string) {
	set := replicaSet("set", 1, idle("d", "old"))
	set.Annotations = map[string]string{"deployment.kubernetes.io/revision": "3546343826724305832"}
	_, err := admin.AppsV1().ReplicaSets(namespace).Create(ctx, set, metav1.CreateOptions{})
	check(t, err)
	setBecomes(t, ctx, namespace, "set", "is available", func(s *appsv1.ReplicaSet) bool { return s.Status.AvailableReplicas == 1 })
	createDeployment(t, ctx, deployment(namespace, "d", 1, idle("d", "new")))
	d := deploymentBecomes(t, ctx, namespace, "d", "is complete", complete)
	if got := d.Annotations["deployment.kubernetes.io/revision"]; got != "3546343826724305833" {
		t.Errorf("the revision is %s", got)
	}
	old := setBecomes(t, ctx, namespace, "set", "is empty", func(s *appsv1.ReplicaSet) bool { return *s.Spec.Replicas == 0 && s.Status.Replicas == 0 })
	if owner := metav1.GetControllerOf(old); owner == nil || owner.UID != d.UID {
		t.Errorf("the old ReplicaSet belongs to %v", owner)
	}
}

// rollover changes the template while a rollout is under way.
func rollover(t *testing.T, ctx context.Context, namespace string) {
	d := deployment(namespace, "d", 1, idle("d", "one"))
	d.Spec.MinReadySeconds = 5
	d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: ptr(intstr.FromInt32(1)), MaxUnavailable: ptr(intstr.FromInt32(0))}
	createDeployment(t, ctx, d)
	deploymentBecomes(t, ctx, namespace, "d", "is available", complete)
	for _, note := range []string{"two", "three"} {
		updateDeployment(t, ctx, namespace, "d", func(d *appsv1.Deployment) { d.Spec.Template.Annotations["note"] = note })
		eventually(t, ctx, "there is a ReplicaSet for "+note, func() error {
			for _, s := range replicaSets(t, ctx, namespace, "d") {
				if s.Spec.Template.Annotations["note"] == note && *s.Spec.Replicas > 0 {
					return nil
				}
			}
			return fmt.Errorf("not yet")
		})
	}
	deploymentBecomes(t, ctx, namespace, "d", "is complete", complete)
	eventually(t, ctx, "only the newest ReplicaSet has pods", func() error {
		for _, s := range replicaSets(t, ctx, namespace, "d") {
			want := int32(0)
			if s.Spec.Template.Annotations["note"] == "three" {
				want = 1
			}
			if s.Status.Replicas != want || *s.Spec.Replicas != want {
				return fmt.Errorf("%s has %d", s.Spec.Template.Annotations["note"], s.Status.Replicas)
			}
		}
		return nil
	})
}

func deploymentScale(t *testing.T, ctx context.Context, namespace string) {
	deployments := admin.AppsV1().Deployments(namespace)
	createDeployment(t, ctx, deployment(namespace, "d", 1, idle("d", "")))
	deploymentBecomes(t, ctx, namespace, "d", "is available", complete)
	scale, err := deployments.GetScale(ctx, "d", metav1.GetOptions{})
	check(t, err)
	if scale.Spec.Replicas != 1 || scale.Status.Replicas != 1 {
		t.Errorf("the scale is %+v", scale)
	}
	scale.ResourceVersion, scale.Spec.Replicas = "", 2
	scaled, err := deployments.UpdateScale(ctx, "d", scale, metav1.UpdateOptions{})
	check(t, err)
	if scaled.Spec.Replicas != 2 {
		t.Errorf("the answer has %d replicas", scaled.Spec.Replicas)
	}
	d, err := deployments.Get(ctx, "d", metav1.GetOptions{})
	check(t, err)
	if *d.Spec.Replicas != 2 {
		t.Errorf("the Deployment has %d replicas", *d.Spec.Replicas)
	}
	_, err = deployments.Patch(ctx, "d", types.StrategicMergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{}, "scale")
	check(t, err)
	d, err = deployments.Get(ctx, "d", metav1.GetOptions{})
	check(t, err)
	if *d.Spec.Replicas != 3 {
		t.Errorf("after the patch the Deployment has %d replicas", *d.Spec.Replicas)
	}
}

func deploymentStatus(t *testing.T, ctx context.Context, namespace string) {
	deployments := admin.AppsV1().Deployments(namespace)
	createDeployment(t, ctx, deployment(namespace, "d", 1, idle("d", "")))
	deploymentBecomes(t, ctx, namespace, "d", "is available", complete)
	has := func(d *appsv1.Deployment, kind appsv1.DeploymentConditionType) bool {
		return slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == kind })
	}
	w, err := deployments.Watch(ctx, metav1.ListOptions{LabelSelector: "test=" + namespace})
	check(t, err)
	defer w.Stop()
	eventually(t, ctx, "the status is updated", func() error {
		d := &appsv1.Deployment{}
		if err := admin.AppsV1().RESTClient().Get().Namespace(namespace).Resource("deployments").Name("d").SubResource("status").Do(ctx).Into(d); err != nil {
			return err
		}
		d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{Type: "StatusUpdate", Status: corev1.ConditionTrue, Reason: "E2E", Message: "set by the test"})
		_, err := deployments.UpdateStatus(ctx, d, metav1.UpdateOptions{})
		return err
	})
	sees(t, ctx, w, watch.Modified, func(d *appsv1.Deployment) bool { return has(d, "StatusUpdate") })
	_, err = deployments.Patch(ctx, "d", types.StrategicMergePatchType, []byte(`{"status":{"conditions":[{"type":"StatusPatched","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	check(t, err)
	sees(t, ctx, w, watch.Modified, func(d *appsv1.Deployment) bool { return has(d, "StatusPatched") })
}

func replicaSet(name string, replicas int32, of corev1.PodTemplateSpec) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: of.Labels},
		Spec:       appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: of.Labels}, Template: of},
	}
}

func createSet(t *testing.T, ctx context.Context, namespace string, s *appsv1.ReplicaSet) {
	t.Helper()
	_, err := admin.AppsV1().ReplicaSets(namespace).Create(ctx, s, metav1.CreateOptions{})
	check(t, err)
}

func setBecomes(t *testing.T, ctx context.Context, namespace, name, what string, ok func(*appsv1.ReplicaSet) bool) *appsv1.ReplicaSet {
	t.Helper()
	var last *appsv1.ReplicaSet
	eventually(t, ctx, "ReplicaSet "+name+" "+what, func() error {
		s, err := admin.AppsV1().ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if last = s; !ok(s) {
			return fmt.Errorf("its status is %+v", s.Status)
		}
		return nil
	})
	return last
}

// adoptRelease makes a pod first, then a ReplicaSet that selects it, and then
// changes the pod's label.
func adoptRelease(t *testing.T, ctx context.Context, namespace string) {
	pod := sleeper(namespace, "orphan")
	pod.Labels = map[string]string{"app": "set"}
	pod = run(t, ctx, pod)
	createSet(t, ctx, namespace, replicaSet("set", 1, idle("set", "")))
	s := setBecomes(t, ctx, namespace, "set", "has a pod", func(s *appsv1.ReplicaSet) bool { return s.Status.Replicas == 1 })
	podBecomes(t, ctx, pod, "is adopted", func(pod *corev1.Pod) bool {
		owner := metav1.GetControllerOf(pod)
		return owner != nil && owner.UID == s.UID
	})
	updatePod(t, ctx, namespace, "orphan", func(pod *corev1.Pod) { pod.Labels["app"] = "other" })
	podBecomes(t, ctx, pod, "is released", func(pod *corev1.Pod) bool { return metav1.GetControllerOf(pod) == nil })
	eventually(t, ctx, "the pod is replaced", func() error {
		list, err := admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=set"})
		if err == nil && len(list.Items) != 1 {
			err = fmt.Errorf("there are %d pods", len(list.Items))
		}
		return err
	})
}

func replicaSetDeleteCollection(t *testing.T, ctx context.Context, namespace string) {
	createSet(t, ctx, namespace, replicaSet("set", 2, idle("set", "")))
	setBecomes(t, ctx, namespace, "set", "is available", func(s *appsv1.ReplicaSet) bool { return s.Status.AvailableReplicas == 2 })
	labels := metav1.ListOptions{LabelSelector: "app=set"}
	counts := func(want int) error {
		list, err := admin.AppsV1().ReplicaSets(namespace).List(ctx, labels)
		if err == nil && len(list.Items) != want {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		return err
	}
	check(t, counts(1))
	check(t, admin.AppsV1().ReplicaSets(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, labels))
	eventually(t, ctx, "the ReplicaSets are gone", func() error { return counts(0) })
}

func replacePatch(t *testing.T, ctx context.Context, namespace string) {
	sets := admin.AppsV1().ReplicaSets(namespace)
	w, err := sets.Watch(ctx, metav1.ListOptions{})
	check(t, err)
	defer w.Stop()
	createSet(t, ctx, namespace, replicaSet("set", 1, idle("set", "")))
	sees(t, ctx, w, watch.Modified, func(s *appsv1.ReplicaSet) bool { return s.Status.AvailableReplicas == 1 })
	eventually(t, ctx, "the ReplicaSet is scaled", func() error {
		s, err := sets.Get(ctx, "set", metav1.GetOptions{})
		if err != nil {
			return err
		}
		s.Spec.Replicas = ptr(int32(3))
		_, err = sets.Update(ctx, s, metav1.UpdateOptions{})
		return err
	})
	sees(t, ctx, w, watch.Modified, func(s *appsv1.ReplicaSet) bool { return s.Status.AvailableReplicas == 3 })
	patch := `{"metadata":{"labels":{"patched":"yes"}},"spec":{"replicas":4,"template":{"spec":{"terminationGracePeriodSeconds":1,"containers":[{"name":"c","image":"` + web + `","command":null}]}}}}`
	_, err = sets.Patch(ctx, "set", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	check(t, err)
	last := sees(t, ctx, w, watch.Modified, func(s *appsv1.ReplicaSet) bool {
		return s.Labels["patched"] == "yes" && s.Status.AvailableReplicas == 4
	})
	if image := last.Spec.Template.Spec.Containers[0].Image; image != web || *last.Spec.Template.Spec.TerminationGracePeriodSeconds != 1 {
		t.Errorf("the template has image %s", image)
	}
}

func replicaSetScale(t *testing.T, ctx context.Context, namespace string) {
	sets := admin.AppsV1().ReplicaSets(namespace)
	createSet(t, ctx, namespace, replicaSet("set", 1, idle("set", "")))
	scale, err := sets.GetScale(ctx, "set", metav1.GetOptions{})
	check(t, err)
	if scale.Spec.Replicas != 1 {
		t.Errorf("the scale has %d replicas", scale.Spec.Replicas)
	}
	scale.ResourceVersion, scale.Spec.Replicas = "", 2
	_, err = sets.UpdateScale(ctx, "set", scale, metav1.UpdateOptions{})
	check(t, err)
	setBecomes(t, ctx, namespace, "set", "has two pods", func(s *appsv1.ReplicaSet) bool { return *s.Spec.Replicas == 2 && s.Status.AvailableReplicas == 2 })
	_, err = sets.Patch(ctx, "set", types.StrategicMergePatchType, []byte(`{"spec":{"replicas":4}}`), metav1.PatchOptions{}, "scale")
	check(t, err)
	setBecomes(t, ctx, namespace, "set", "has four pods", func(s *appsv1.ReplicaSet) bool { return *s.Spec.Replicas == 4 && s.Status.AvailableReplicas == 4 })
}

// serveImage asks each pod for its name, through the API server's proxy.
func serveImage(t *testing.T, ctx context.Context, namespace string) {
	createSet(t, ctx, namespace, replicaSet("set", 2, template("set", conformanceImage)))
	setBecomes(t, ctx, namespace, "set", "is available", func(s *appsv1.ReplicaSet) bool { return s.Status.AvailableReplicas == 2 })
	list, err := admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=set"})
	check(t, err)
	for _, pod := range list.Items {
		if pod.Status.Phase != corev1.PodRunning {
			t.Errorf("pod %s is %s", pod.Name, pod.Status.Phase)
		}
		eventually(t, ctx, "pod "+pod.Name+" answers with its name", func() error {
			code, body, _ := through(t, ctx, http.MethodGet, "/api/v1/namespaces/"+namespace+"/pods/"+pod.Name+":8080/proxy/hostname")
			if code != http.StatusOK || strings.TrimSpace(body) != pod.Name {
				return fmt.Errorf("%d %q", code, body)
			}
			return nil
		})
	}
}

func replicaSetStatus(t *testing.T, ctx context.Context, namespace string) {
	sets := admin.AppsV1().ReplicaSets(namespace)
	createSet(t, ctx, namespace, replicaSet("set", 1, idle("set", "")))
	setBecomes(t, ctx, namespace, "set", "is available", func(s *appsv1.ReplicaSet) bool { return s.Status.AvailableReplicas == 1 })
	w, err := sets.Watch(ctx, metav1.ListOptions{})
	check(t, err)
	defer w.Stop()
	has := func(s *appsv1.ReplicaSet, kind appsv1.ReplicaSetConditionType) bool {
		return slices.ContainsFunc(s.Status.Conditions, func(c appsv1.ReplicaSetCondition) bool { return c.Type == kind })
	}
	eventually(t, ctx, "the status is updated", func() error {
		s := &appsv1.ReplicaSet{}
		if err := admin.AppsV1().RESTClient().Get().Namespace(namespace).Resource("replicasets").Name("set").SubResource("status").Do(ctx).Into(s); err != nil {
			return err
		}
		s.Status.Conditions = append(s.Status.Conditions, appsv1.ReplicaSetCondition{Type: "StatusUpdate", Status: corev1.ConditionTrue, Reason: "E2E"})
		_, err := sets.UpdateStatus(ctx, s, metav1.UpdateOptions{})
		return err
	})
	sees(t, ctx, w, watch.Modified, func(s *appsv1.ReplicaSet) bool { return has(s, "StatusUpdate") })
	_, err = sets.Patch(ctx, "set", types.StrategicMergePatchType, []byte(`{"status":{"conditions":[{"type":"StatusPatched","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	check(t, err)
	sees(t, ctx, w, watch.Modified, func(s *appsv1.ReplicaSet) bool { return has(s, "StatusPatched") })
}
