package conformance

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	autoscaling "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// replication returns the rows of ReplicationControllers in the area apps.
func replication() []testcase {
	return []testcase{
		{id: "rc-adopt", test: controllerAdopts},
		{id: "rc-lifecycle", test: controllerLifecycle},
		{id: "rc-quota-failure-condition", test: controllerOverQuota},
		{id: "rc-release", test: controllerReleases},
		{id: "rc-scale-subresource", test: controllerScale},
		{id: "rc-serve-image", test: controllerServesImage},
	}
}

// collected returns the rows in which the garbage collector sees
// ReplicationControllers and their pods.
func collected() []testcase {
	return []testcase{
		{id: "gc-multiple-owners", test: multipleOwners, serial: true},
		{id: "gc-rc-background", test: controllerBackground},
		{id: "gc-rc-foreground", test: controllerForeground, serial: true},
		{id: "gc-rc-orphan", test: controllerOrphan, serial: true},
	}
}

func createController(t *testing.T, ctx context.Context, namespace, name string, replicas int32, of corev1.PodTemplateSpec) *corev1.ReplicationController {
	t.Helper()
	made, err := admin.CoreV1().ReplicationControllers(namespace).Create(ctx, &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": namespace}},
		Spec:       corev1.ReplicationControllerSpec{Replicas: &replicas, Selector: of.Labels, Template: &of},
	}, metav1.CreateOptions{})
	check(t, err)
	return made
}

func controllerBecomes(t *testing.T, ctx context.Context, namespace, name, what string, ok func(*corev1.ReplicationController) bool) {
	t.Helper()
	eventually(t, ctx, "ReplicationController "+name+" "+what, func() error {
		rc, err := admin.CoreV1().ReplicationControllers(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && !ok(rc) {
			err = fmt.Errorf("its status is %+v", rc.Status)
		}
		return err
	})
}

// available reports that the controller has that many available pods.
func available(replicas int32) func(*corev1.ReplicationController) bool {
	return func(rc *corev1.ReplicationController) bool {
		return rc.Status.Replicas == replicas && rc.Status.AvailableReplicas == replicas
	}
}

func podsOf(t *testing.T, ctx context.Context, namespace string) []corev1.Pod {
	t.Helper()
	list, err := admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	check(t, err)
	return list.Items
}

// controllerAdopts makes a pod first, then a ReplicationController that selects it.
func controllerAdopts(t *testing.T, ctx context.Context, namespace string) {
	pod := sleeper(namespace, "orphan")
	pod.Labels = map[string]string{"app": "rc"}
	pod = run(t, ctx, pod)
	rc := createController(t, ctx, namespace, "rc", 1, idle("rc", ""))
	podBecomes(t, ctx, pod, "is adopted", func(pod *corev1.Pod) bool {
		owner := metav1.GetControllerOf(pod)
		return owner != nil && owner.UID == rc.UID
	})
	controllerBecomes(t, ctx, namespace, "rc", "counts it", available(1))
	if pods := podsOf(t, ctx, namespace); len(pods) != 1 {
		t.Errorf("there are %d pods", len(pods))
	}
}

// controllerReleases changes the label of a pod of a ReplicationController.
func controllerReleases(t *testing.T, ctx context.Context, namespace string) {
	createController(t, ctx, namespace, "rc", 1, idle("rc", ""))
	controllerBecomes(t, ctx, namespace, "rc", "is available", available(1))
	pod := podsOf(t, ctx, namespace)[0]
	updatePod(t, ctx, namespace, pod.Name, func(pod *corev1.Pod) { pod.Labels["app"] = "other" })
	podBecomes(t, ctx, &pod, "is released", func(pod *corev1.Pod) bool { return metav1.GetControllerOf(pod) == nil })
}

// controllerLifecycle follows a ReplicationController on a watch.
func controllerLifecycle(t *testing.T, ctx context.Context, namespace string) {
	controllers, labels := admin.CoreV1().ReplicationControllers(namespace), metav1.ListOptions{LabelSelector: "test=" + namespace}
	w, err := controllers.Watch(ctx, labels)
	check(t, err)
	defer w.Stop()
	createController(t, ctx, namespace, "rc", 1, idle("rc", ""))
	sees[*corev1.ReplicationController](t, ctx, w, watch.Added, nil)
	sees(t, ctx, w, watch.Modified, func(rc *corev1.ReplicationController) bool { return rc.Status.ReadyReplicas == 1 })

	_, err = controllers.Patch(ctx, "rc", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"patched":"yes"}}}`), metav1.PatchOptions{})
	check(t, err)
	sees(t, ctx, w, watch.Modified, func(rc *corev1.ReplicationController) bool { return rc.Labels["patched"] == "yes" })
	_, err = controllers.Patch(ctx, "rc", types.StrategicMergePatchType, []byte(`{"metadata":{"annotations":{"patched":"status"}},"status":{"readyReplicas":0,"availableReplicas":0}}`), metav1.PatchOptions{}, "status")
	check(t, err)
	sees(t, ctx, w, watch.Modified, func(rc *corev1.ReplicationController) bool {
		return rc.Annotations["patched"] == "status" && rc.Status.ReadyReplicas == 0
	})
	got := &corev1.ReplicationController{}
	check(t, admin.CoreV1().RESTClient().Get().Namespace(namespace).Resource("replicationcontrollers").Name("rc").SubResource("status").Do(ctx).Into(got))
	if got.Annotations["patched"] != "status" {
		t.Errorf("the status subresource has the annotations %v", got.Annotations)
	}
	_, err = controllers.Patch(ctx, "rc", types.StrategicMergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}, "scale")
	check(t, err)
	sees(t, ctx, w, watch.Modified, func(rc *corev1.ReplicationController) bool {
		return *rc.Spec.Replicas == 2 && rc.Status.ReadyReplicas == 2
	})
	list, err := admin.CoreV1().ReplicationControllers("").List(ctx, labels)
	check(t, err)
	if len(list.Items) != 1 {
		t.Errorf("the list of all namespaces has %d ReplicationControllers", len(list.Items))
	}
	eventually(t, ctx, "the ReplicationController is updated", func() error {
		rc, err := controllers.Get(ctx, "rc", metav1.GetOptions{})
		if err != nil {
			return err
		}
		rc.Spec.Replicas = ptr(int32(3))
		_, err = controllers.Update(ctx, rc, metav1.UpdateOptions{})
		return err
	})
	sees(t, ctx, w, watch.Modified, func(rc *corev1.ReplicationController) bool {
		return *rc.Spec.Replicas == 3 && rc.Status.ReadyReplicas == 3
	})
	check(t, controllers.DeleteCollection(ctx, metav1.DeleteOptions{}, labels))
	sees[*corev1.ReplicationController](t, ctx, w, watch.Deleted, nil)
}

func controllerScale(t *testing.T, ctx context.Context, namespace string) {
	controllers := admin.CoreV1().ReplicationControllers(namespace)
	createController(t, ctx, namespace, "rc", 1, idle("rc", ""))
	controllerBecomes(t, ctx, namespace, "rc", "is available", available(1))
	scale, err := controllers.GetScale(ctx, "rc", metav1.GetOptions{})
	check(t, err)
	if scale.Spec.Replicas != 1 || scale.Status.Replicas != 1 {
		t.Errorf("the scale is %+v", scale)
	}
	scaled, err := controllers.UpdateScale(ctx, "rc", &autoscaling.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: "rc", Namespace: namespace}, Spec: autoscaling.ScaleSpec{Replicas: 2},
	}, metav1.UpdateOptions{})
	check(t, err)
	if scaled.Spec.Replicas != 2 {
		t.Errorf("the answer has %d replicas", scaled.Spec.Replicas)
	}
	controllerBecomes(t, ctx, namespace, "rc", "has two pods", available(2))
}

// controllerServesImage asks each pod for its name, through the API server's proxy.
func controllerServesImage(t *testing.T, ctx context.Context, namespace string) {
	createController(t, ctx, namespace, "rc", 2, template("rc", conformanceImage))
	controllerBecomes(t, ctx, namespace, "rc", "is available", available(2))
	for _, pod := range podsOf(t, ctx, namespace) {
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

// controllerOverQuota wants a ReplicationController that a quota keeps from its third pod
// to say so, until it is scaled down to two.
func controllerOverQuota(t *testing.T, ctx context.Context, namespace string) {
	limited(t, ctx, namespace, quota("q", amounts{"pods": "2"}))
	createController(t, ctx, namespace, "rc", 3, idle("rc", ""))
	failed := func(rc *corev1.ReplicationController) *corev1.ReplicationControllerCondition {
		for i, c := range rc.Status.Conditions {
			if c.Type == corev1.ReplicationControllerReplicaFailure && rc.Status.ObservedGeneration == rc.Generation {
				return &rc.Status.Conditions[i]
			}
		}
		return nil
	}
	controllerBecomes(t, ctx, namespace, "rc", "has failed to create a pod", func(rc *corev1.ReplicationController) bool {
		c := failed(rc)
		return c != nil && c.Status == corev1.ConditionTrue && c.Reason == "FailedCreate" && strings.Contains(c.Message, "exceeded quota")
	})
	_, err := admin.CoreV1().ReplicationControllers(namespace).Patch(ctx, "rc", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{})
	check(t, err)
	controllerBecomes(t, ctx, namespace, "rc", "has all its pods", func(rc *corev1.ReplicationController) bool {
		return rc.Status.ObservedGeneration == rc.Generation && failed(rc) == nil && rc.Status.Replicas == 2
	})
}

// many is the number of pods in the rows of the garbage collector.
const many = 10

func deleteController(t *testing.T, ctx context.Context, namespace, name string, policy metav1.DeletionPropagation) {
	t.Helper()
	check(t, admin.CoreV1().ReplicationControllers(namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy}))
}

// controllerGone waits until a ReplicationController no longer exists, and calls while
// before each look.
func controllerGone(t *testing.T, ctx context.Context, namespace, name string, while func(*corev1.ReplicationController)) {
	t.Helper()
	eventually(t, ctx, "ReplicationController "+name+" is gone", func() error {
		rc, err := admin.CoreV1().ReplicationControllers(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		while(rc)
		return fmt.Errorf("it has the finalizers %v", rc.Finalizers)
	})
}

func controllerBackground(t *testing.T, ctx context.Context, namespace string) {
	createController(t, ctx, namespace, "rc", many, idle("rc", ""))
	controllerBecomes(t, ctx, namespace, "rc", "has its pods", func(rc *corev1.ReplicationController) bool { return rc.Status.Replicas == many })
	deleteController(t, ctx, namespace, "rc", metav1.DeletePropagationBackground)
	controllerGone(t, ctx, namespace, "rc", func(*corev1.ReplicationController) {})
	eventually(t, ctx, "the pods are deleted", func() error {
		if pods := podsOf(t, ctx, namespace); len(pods) > 0 {
			return fmt.Errorf("%d are left", len(pods))
		}
		return nil
	})
}

// controllerForeground wants the ReplicationController to exist as long as its pods do.
func controllerForeground(t *testing.T, ctx context.Context, namespace string) {
	createController(t, ctx, namespace, "rc", many, idle("rc", ""))
	controllerBecomes(t, ctx, namespace, "rc", "is available", available(many))
	deleteController(t, ctx, namespace, "rc", metav1.DeletePropagationForeground)
	controllerGone(t, ctx, namespace, "rc", func(rc *corev1.ReplicationController) {
		if len(rc.Finalizers) != 1 || rc.Finalizers[0] != metav1.FinalizerDeleteDependents || rc.DeletionTimestamp == nil {
			t.Errorf("it has the finalizers %v", rc.Finalizers)
		}
	})
	if pods := podsOf(t, ctx, namespace); len(pods) > 0 {
		t.Errorf("%d pods are left", len(pods))
	}
}

// controllerOrphan looks at the pods for 30 seconds after their owner is gone.
func controllerOrphan(t *testing.T, ctx context.Context, namespace string) {
	createController(t, ctx, namespace, "rc", many, idle("rc", ""))
	controllerBecomes(t, ctx, namespace, "rc", "has its pods", func(rc *corev1.ReplicationController) bool { return rc.Status.Replicas == many })
	deleteController(t, ctx, namespace, "rc", metav1.DeletePropagationOrphan)
	controllerGone(t, ctx, namespace, "rc", func(*corev1.ReplicationController) {})
	w, err := admin.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{TimeoutSeconds: ptr(int64(30))})
	check(t, err)
	defer w.Stop()
	for e := range w.ResultChan() { // ends after 30 seconds
		if pod, ok := e.Object.(*corev1.Pod); ok && (e.Type == watch.Deleted || pod.DeletionTimestamp != nil) {
			t.Errorf("pod %s is deleted", pod.Name)
		}
	}
	pods := podsOf(t, ctx, namespace)
	if len(pods) != many {
		t.Errorf("%d pods are left", len(pods))
	}
	for _, pod := range pods {
		if len(pod.OwnerReferences) > 0 {
			t.Errorf("pod %s has the owners %+v", pod.Name, pod.OwnerReferences)
		}
	}
}

// multipleOwners gives half of the pods a second owner, and deletes the first one.
func multipleOwners(t *testing.T, ctx context.Context, namespace string) {
	createController(t, ctx, namespace, "first", many, idle("first", ""))
	second := createController(t, ctx, namespace, "second", 0, idle("second", ""))
	controllerBecomes(t, ctx, namespace, "first", "is available", available(many))
	owned := map[string]bool{}
	for _, pod := range podsOf(t, ctx, namespace)[:many/2] {
		owned[pod.Name] = true
		updatePod(t, ctx, namespace, pod.Name, func(pod *corev1.Pod) {
			pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ReplicationController", Name: second.Name, UID: second.UID})
		})
	}
	deleteController(t, ctx, namespace, "first", metav1.DeletePropagationForeground)
	controllerGone(t, ctx, namespace, "first", func(*corev1.ReplicationController) {})
	pods := podsOf(t, ctx, namespace)
	if len(pods) != len(owned) {
		t.Errorf("%d pods are left", len(pods))
	}
	for _, pod := range pods {
		if !owned[pod.Name] || pod.DeletionTimestamp != nil || len(pod.OwnerReferences) != 1 || pod.OwnerReferences[0].UID != second.UID {
			t.Errorf("pod %s: deleted %v, owners %+v", pod.Name, pod.DeletionTimestamp, pod.OwnerReferences)
		}
	}
}

// wrappedConfigMaps starts the pods of a ReplicationController, all on one node and with
// 50 ConfigMaps each, three times.
func wrappedConfigMaps(t *testing.T, ctx context.Context, namespace string) {
	const maps, pods, rounds = 50, 5, 3
	list, err := admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	check(t, err)
	node := ""
	for _, n := range list.Items {
		if !n.Spec.Unschedulable && len(n.Spec.Taints) == 0 {
			node = n.Name
		}
	}
	of := idle("racey", "")
	of.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	for i := range maps {
		name := fmt.Sprintf("racey-configmap-%d", i)
		_, err := admin.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"data-1": "value-1"}}, metav1.CreateOptions{})
		check(t, err)
		of.Spec.Volumes = append(of.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: []corev1.KeyToPath{{Key: "data-1", Path: "data-1"}},
		}}})
		of.Spec.Containers[0].VolumeMounts = append(of.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: fmt.Sprintf("/etc/config-%d", i)})
	}
	for round := range rounds {
		name := fmt.Sprintf("racey-%d", round)
		createController(t, ctx, namespace, name, pods, of)
		controllerBecomes(t, ctx, namespace, name, "is available", available(pods))
		deleteController(t, ctx, namespace, name, metav1.DeletePropagationForeground)
		controllerGone(t, ctx, namespace, name, func(*corev1.ReplicationController) {})
	}
	events, err := admin.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedMount"})
	check(t, err)
	for _, e := range events.Items {
		t.Errorf("%s %s: %s", e.InvolvedObject.Name, e.LastTimestamp.Format(time.TimeOnly), e.Message)
	}
}
