package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// nodeRows returns the rows of the areas node and instrumentation.
func nodeRows() []testcase {
	user := func(set func(pod *corev1.Pod)) func(*testing.T, context.Context, string) {
		return func(t *testing.T, ctx context.Context, namespace string) {
			pod := script(namespace, "echo $(id -u) $(id -g)")
			set(pod)
			prints(t, ctx, pod, "1001 2002")
		}
	}
	return []testcase{
		{id: "node-lifecycle", test: nodeLifecycle},
		{id: "pod-generation-500-updates", test: manyUpdates},
		{id: "pod-generation-graceful-delete", test: generationDelete},
		{id: "pod-generation-updates", test: generations},
		{id: "pod-qos-guaranteed", test: guaranteed},
		{id: "prestop-hook-called", test: preStopCalled},
		{id: "security-container-user-group", test: user(func(pod *corev1.Pod) {
			pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: ptr(int64(1001)), RunAsGroup: ptr(int64(2002))}
		})},
		{id: "security-pod-user-group", test: user(func(pod *corev1.Pod) {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr(int64(1001)), RunAsGroup: ptr(int64(2002))}
		})},
		{id: "core-events-lifecycle", test: eventLifecycle},
		{id: "core-events-deletecollection", test: eventDeleteCollection},
		{id: "events-v1-deletecollection", test: newEventDeleteCollection},
		{id: "events-v1-lifecycle", test: newEventLifecycle},
		{id: "podtemplate-deletecollection", test: templateDeleteCollection},
		{id: "podtemplate-lifecycle", test: templateLifecycle},
		{id: "podtemplate-replace", test: templateReplace},
		{id: "two-untainted-nodes", test: func(t *testing.T, _ context.Context, _ string) {
			if nodes < 2 {
				t.Errorf("%d nodes take any pod", nodes)
			}
		}, nodes: 2},
	}
}

func nodeLifecycle(t *testing.T, ctx context.Context, namespace string) {
	all, name := admin.CoreV1().Nodes(), "fake-"+namespace
	_, err := all.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Unschedulable: true}}, metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() { all.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	_, err = all.Get(ctx, name, metav1.GetOptions{})
	check(t, err)
	_, err = all.Patch(ctx, name, types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"test":"`+namespace+`"}}}`), metav1.PatchOptions{})
	check(t, err)
	list, err := all.List(ctx, metav1.ListOptions{LabelSelector: "test=" + namespace})
	check(t, err)
	if len(list.Items) != 1 {
		t.Errorf("the list has %d nodes", len(list.Items))
	}
	eventually(t, ctx, "the node is updated", func() error {
		node, err := all.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Labels["updated"] = "true"
		made, err := all.Update(ctx, node, metav1.UpdateOptions{})
		if err == nil && made.Labels["updated"] != "true" {
			t.Errorf("the labels are %v", made.Labels)
		}
		return err
	})
	check(t, all.Delete(ctx, name, metav1.DeleteOptions{}))
	_, err = all.Get(ctx, name, metav1.GetOptions{})
	notFound(t, "the deleted node", err)
}

func observes(t *testing.T, ctx context.Context, pod *corev1.Pod, generation int64) {
	t.Helper()
	podBecomes(t, ctx, pod, fmt.Sprintf("has observed generation %d", generation), func(pod *corev1.Pod) bool {
		if pod.Generation != generation {
			t.Fatalf("the generation is %d, want %d", pod.Generation, generation)
		}
		return pod.Status.ObservedGeneration == generation
	})
}

// generations changes fields of the spec, which count, and others, which do
// not.
func generations(t *testing.T, ctx context.Context, namespace string) {
	pod := run(t, ctx, sleeper(namespace, "pod"))
	observes(t, ctx, pod, 1)
	updatePod(t, ctx, namespace, "pod", func(pod *corev1.Pod) { pod.Labels = map[string]string{"a": "b"} })
	observes(t, ctx, pod, 1)
	updatePod(t, ctx, namespace, "pod", func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = web })
	observes(t, ctx, pod, 2)
	updatePod(t, ctx, namespace, "pod", func(pod *corev1.Pod) { pod.Spec.ActiveDeadlineSeconds = ptr(int64(5000)) })
	observes(t, ctx, pod, 3)
	updatePod(t, ctx, namespace, "pod", func(pod *corev1.Pod) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists})
	})
	observes(t, ctx, pod, 4)
	_, err := admin.CoreV1().Pods(namespace).Patch(ctx, "pod", types.MergePatchType, []byte(`{"status":{"message":"m"}}`), metav1.PatchOptions{}, "status")
	check(t, err)
	observes(t, ctx, pod, 4)
}

func manyUpdates(t *testing.T, ctx context.Context, namespace string) {
	pod := run(t, ctx, sleeper(namespace, "pod"))
	for i := range 499 {
		_, err := admin.CoreV1().Pods(namespace).Patch(ctx, "pod", types.MergePatchType, []byte(fmt.Sprintf(`{"spec":{"activeDeadlineSeconds":%d}}`, 20000-i)), metav1.PatchOptions{})
		check(t, err)
	}
	observes(t, ctx, pod, 500)
}

func generationDelete(t *testing.T, ctx context.Context, namespace string) {
	pod := sleeper(namespace, "pod")
	pod.Generation = 100
	pod.Finalizers = []string{"e2e.example.com/finalizer"}
	pod = run(t, ctx, pod)
	if pod.Generation != 1 {
		t.Errorf("the generation is %d", pod.Generation)
	}
	check(t, admin.CoreV1().Pods(namespace).Delete(ctx, "pod", metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(1))}))
	got, err := admin.CoreV1().Pods(namespace).Get(ctx, "pod", metav1.GetOptions{})
	check(t, err)
	if got.DeletionTimestamp == nil || got.Generation != 2 {
		t.Errorf("after the delete: deletionTimestamp %v, generation %d", got.DeletionTimestamp, got.Generation)
	}
	_, err = admin.CoreV1().Pods(namespace).Patch(ctx, "pod", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	check(t, err)
	gone(t, ctx, pod)
}

func guaranteed(t *testing.T, ctx context.Context, namespace string) {
	pod := sleeper(namespace, "pod")
	pod.Spec.Containers[0].Resources = resources("100m", "100Mi", "100m", "100Mi")
	pod = create(t, ctx, pod)
	got, err := admin.CoreV1().Pods(namespace).Get(ctx, "pod", metav1.GetOptions{})
	check(t, err)
	if got.Status.QOSClass != corev1.PodQOSGuaranteed {
		t.Errorf("the class is %s", got.Status.QOSClass)
	}
}

// preStopCalled reads the calls that a server pod has had through the API
// server's proxy.
func preStopCalled(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, `mkdir -p /tmp/www/cgi-bin && printf '#!/bin/sh\necho called > /tmp/www/called\nprintf "Content-Type: text/plain\\r\\n\\r\\nok"\n' > /tmp/www/cgi-bin/call && chmod +x /tmp/www/cgi-bin/call && echo ok > /tmp/www/ready && exec httpd -f -p 8080 -h /tmp/www`)
	pod.Name = "server"
	pod = podBecomes(t, ctx, create(t, ctx, pod), "runs", inPhase(corev1.PodRunning))
	read := func(path string) (int, string) {
		code, body, _ := through(t, ctx, "GET", "/api/v1/namespaces/"+namespace+"/pods/server:8080/proxy/"+path)
		return code, strings.TrimSpace(body)
	}
	eventually(t, ctx, "the server answers", func() error {
		if code, body := read("ready"); code != 200 {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	tester := sleeper(namespace, "tester")
	tester.Spec.TerminationGracePeriodSeconds = ptr(int64(30))
	tester.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{
		Command: []string{"wget", "-q", "-O", "/dev/null", "http://" + pod.Status.PodIP + ":8080/cgi-bin/call"},
	}}}
	tester = run(t, ctx, tester)
	if code, _ := read("called"); code == 200 {
		t.Fatal("the hook was called before the delete")
	}
	check(t, admin.CoreV1().Pods(namespace).Delete(ctx, "tester", metav1.DeleteOptions{}))
	eventually(t, ctx, "the hook is called", func() error {
		if code, body := read("called"); code != 200 || body != "called" {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	gone(t, ctx, tester)
}

func event(namespace, name string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": namespace}}, Reason: "Test", Message: "first", Type: corev1.EventTypeNormal,
		InvolvedObject: corev1.ObjectReference{Namespace: namespace, Kind: "Pod", Name: "pod"},
	}
}

func eventLifecycle(t *testing.T, ctx context.Context, namespace string) {
	events, label := admin.CoreV1().Events(namespace), metav1.ListOptions{LabelSelector: "test=" + namespace}
	_, err := events.Create(ctx, event(namespace, "event"), metav1.CreateOptions{})
	check(t, err)
	list, err := admin.CoreV1().Events("").List(ctx, label)
	check(t, err)
	if len(list.Items) != 1 || list.Items[0].Message != "first" {
		t.Fatalf("the list of all namespaces has %d events", len(list.Items))
	}
	_, err = events.Patch(ctx, "event", types.StrategicMergePatchType, []byte(`{"message":"patched"}`), metav1.PatchOptions{})
	check(t, err)
	got, err := events.Get(ctx, "event", metav1.GetOptions{})
	check(t, err)
	if got.Message != "patched" {
		t.Errorf("the message is %q", got.Message)
	}
	got.Series = &corev1.EventSeries{Count: 100, LastObservedTime: metav1.NewMicroTime(metav1.Unix(1505828956, 0).Time)}
	_, err = events.Update(ctx, got, metav1.UpdateOptions{})
	check(t, err)
	got, err = events.Get(ctx, "event", metav1.GetOptions{})
	check(t, err)
	if got.Series == nil || got.Series.Count != 100 {
		t.Errorf("the series is %+v", got.Series)
	}
	check(t, events.Delete(ctx, "event", metav1.DeleteOptions{}))
	list, err = events.List(ctx, label)
	check(t, err)
	if len(list.Items) != 0 {
		t.Errorf("%d events are left", len(list.Items))
	}
}

func eventDeleteCollection(t *testing.T, ctx context.Context, namespace string) {
	events, label := admin.CoreV1().Events(namespace), metav1.ListOptions{LabelSelector: "test=" + namespace}
	for i := range 3 {
		_, err := events.Create(ctx, event(namespace, fmt.Sprintf("event-%d", i)), metav1.CreateOptions{})
		check(t, err)
	}
	counts := func(want int) {
		t.Helper()
		list, err := events.List(ctx, label)
		check(t, err)
		if len(list.Items) != want {
			t.Errorf("there are %d events, want %d", len(list.Items), want)
		}
	}
	counts(3)
	check(t, events.DeleteCollection(ctx, metav1.DeleteOptions{}, label))
	counts(0)
}
