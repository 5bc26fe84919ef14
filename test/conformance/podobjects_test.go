package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// podObjects returns the rows of pods as objects of the API.
func podObjects() []testcase {
	return []testcase{
		{id: "image-volume-pull-always", test: imageVolume},
		{id: "pod-active-deadline-update", test: activeDeadline},
		{id: "pod-and-status-lifecycle", test: podAndStatus},
		{id: "pod-deletecollection", test: podDeleteCollection},
		{id: "pod-exec-websocket", test: execWebSocket},
		{id: "pod-host-ip", test: hostIP},
		{id: "pod-label-update", test: podLabel},
		{id: "pod-log-websocket", test: logWebSocket},
		{id: "pod-status-patch", test: podStatusPatch},
		{id: "pod-submit-remove-watch", test: submitAndRemove},
	}
}

func activeDeadline(t *testing.T, ctx context.Context, namespace string) {
	pod := run(t, ctx, sleeper(namespace, "pod"))
	updatePod(t, ctx, namespace, pod.Name, func(pod *corev1.Pod) { pod.Spec.ActiveDeadlineSeconds = ptr(int64(5)) })
	podBecomes(t, ctx, pod, "exceeds its deadline", func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "DeadlineExceeded"
	})
}

// podAndStatus follows a pod on a watch through create, patch, changes of its
// status, and deletecollection.
func podAndStatus(t *testing.T, ctx context.Context, namespace string) {
	pods, labels := admin.CoreV1().Pods(namespace), metav1.ListOptions{LabelSelector: "test=" + namespace}
	w, err := pods.Watch(ctx, labels)
	check(t, err)
	defer w.Stop()
	pod := sleeper(namespace, "pod")
	pod.Labels = map[string]string{"test": namespace}
	create(t, ctx, pod)
	sees[*corev1.Pod](t, ctx, w, watch.Added, nil)
	sees(t, ctx, w, watch.Modified, isReady)

	_, err = pods.Patch(ctx, "pod", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"patched":"yes"}},"spec":{"containers":[{"name":"c","image":"`+web+`"}]}}`), metav1.PatchOptions{})
	check(t, err)
	sees(t, ctx, w, watch.Modified, func(pod *corev1.Pod) bool {
		return pod.Labels["patched"] == "yes" && pod.Spec.Containers[0].Image == web
	})

	eventually(t, ctx, "the status is updated", func() error {
		got := &corev1.Pod{}
		if err := admin.CoreV1().RESTClient().Get().Namespace(namespace).Resource("pods").Name("pod").SubResource("status").Do(ctx).Into(got); err != nil {
			return err
		}
		got.Status.Conditions = append(got.Status.Conditions, corev1.PodCondition{Type: "StatusUpdated", Status: corev1.ConditionTrue, Reason: "E2E", Message: "set by the test"})
		_, err := pods.UpdateStatus(ctx, got, metav1.UpdateOptions{})
		return err
	})
	sees(t, ctx, w, watch.Modified, func(pod *corev1.Pod) bool { return hasCondition(pod, "StatusUpdated", corev1.ConditionTrue) })
	check(t, pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(1))}, labels))
	sees[*corev1.Pod](t, ctx, w, watch.Deleted, nil)
}

func podDeleteCollection(t *testing.T, ctx context.Context, namespace string) {
	labels := metav1.ListOptions{LabelSelector: "type=testing"}
	for i := range 3 {
		pod := sleeper(namespace, fmt.Sprintf("pod-%d", i))
		pod.Labels = map[string]string{"type": "testing"}
		create(t, ctx, pod)
	}
	keep := create(t, ctx, sleeper(namespace, "other"))
	for i := range 3 {
		podBecomes(t, ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("pod-%d", i)}}, "runs", inPhase(corev1.PodRunning))
	}
	check(t, admin.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(1))}, labels))
	eventually(t, ctx, "the pods are gone", func() error {
		list, err := admin.CoreV1().Pods(namespace).List(ctx, labels)
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are left", len(list.Items))
		}
		return err
	})
	_, err := admin.CoreV1().Pods(namespace).Get(ctx, keep.Name, metav1.GetOptions{})
	check(t, err)
}

func hostIP(t *testing.T, ctx context.Context, namespace string) {
	pod := run(t, ctx, sleeper(namespace, "pod"))
	if _, err := netip.ParseAddr(pod.Status.HostIP); err != nil {
		t.Error(err)
	}
}

func podLabel(t *testing.T, ctx context.Context, namespace string) {
	pod := sleeper(namespace, "pod")
	pod.Labels = map[string]string{"time": "before"}
	run(t, ctx, pod)
	updatePod(t, ctx, namespace, "pod", func(pod *corev1.Pod) { pod.Labels["time"] = "after" })
	for value, want := range map[string]int{"before": 0, "after": 1} {
		list, err := admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "time=" + value})
		check(t, err)
		if len(list.Items) != want {
			t.Errorf("time=%s: %d pods, want %d", value, len(list.Items), want)
		}
	}
}

func podStatusPatch(t *testing.T, ctx context.Context, namespace string) {
	pod := run(t, ctx, sleeper(namespace, "pod"))
	_, err := admin.CoreV1().Pods(namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(`{"status":{"message":"patched","reason":"Patched"}}`), metav1.PatchOptions{}, "status")
	check(t, err)
	got, err := admin.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	check(t, err)
	if got.Status.Message != "patched" || got.Status.Reason != "Patched" {
		t.Errorf("message %q, reason %q", got.Status.Message, got.Status.Reason)
	}
}

func submitAndRemove(t *testing.T, ctx context.Context, namespace string) {
	pods, labels := admin.CoreV1().Pods(namespace), metav1.ListOptions{LabelSelector: "test=" + namespace}
	list, err := pods.List(ctx, labels)
	check(t, err)
	labels.ResourceVersion = list.ResourceVersion
	w, err := pods.Watch(ctx, labels)
	check(t, err)
	defer w.Stop()
	pod := sleeper(namespace, "pod")
	pod.Labels = map[string]string{"test": namespace}
	create(t, ctx, pod)
	sees[*corev1.Pod](t, ctx, w, watch.Added, nil)
	podBecomes(t, ctx, pod, "runs", inPhase(corev1.PodRunning))
	check(t, pods.Delete(ctx, "pod", metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(5))}))
	sees(t, ctx, w, watch.Modified, func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	last := sees[*corev1.Pod](t, ctx, w, watch.Deleted, nil)
	if last.DeletionTimestamp == nil || *last.DeletionGracePeriodSeconds > 5 {
		t.Errorf("the deleted pod has deletionTimestamp %v", last.DeletionTimestamp)
	}
	labels.ResourceVersion = ""
	list, err = pods.List(ctx, labels)
	check(t, err)
	if len(list.Items) != 0 {
		t.Errorf("%d pods are left", len(list.Items))
	}
}

// dial opens a WebSocket to the API server.
func dial(t *testing.T, ctx context.Context, target *url.URL, protocol string) *websocket.Conn {
	t.Helper()
	tls, err := rest.TLSConfigFor(config)
	check(t, err)
	tls.NextProtos = []string{"http/1.1"}
	target.Scheme = "wss"
	header := http.Header{}
	if config.BearerToken != "" {
		header.Set("Authorization", "Bearer "+config.BearerToken)
	}
	dialer := websocket.Dialer{TLSClientConfig: tls, Subprotocols: []string{protocol}}
	conn, _, err := dialer.DialContext(ctx, target.String(), header)
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	if conn.Subprotocol() != protocol {
		t.Fatalf("the subprotocol is %q", conn.Subprotocol())
	}
	return conn
}

// frames reads messages until the server closes cleanly.
func frames(t *testing.T, conn *websocket.Conn, each func(kind int, data []byte)) {
	t.Helper()
	for {
		kind, data, err := conn.ReadMessage()
		var closed *websocket.CloseError
		switch {
		case errors.As(err, &closed) && closed.Code == websocket.CloseNormalClosure:
			return
		case err != nil:
			t.Fatalf("read a message: %v", err)
		}
		each(kind, data)
	}
}

func execWebSocket(t *testing.T, ctx context.Context, namespace string) {
	pod := run(t, ctx, sleeper(namespace, "pod"))
	target := admin.CoreV1().RESTClient().Get().Resource("pods").Namespace(namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: "c", Command: []string{"echo", "remote execution test"}, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	conn, got := dial(t, ctx, target, "channel.k8s.io"), ""
	frames(t, conn, func(kind int, data []byte) {
		switch {
		case kind != websocket.BinaryMessage || len(data) == 0:
			t.Errorf("a frame of type %d with %d bytes", kind, len(data))
		case data[0] == 1:
			got += string(data[1:])
		case len(data) > 1:
			t.Errorf("channel %d: %q", data[0], data[1:])
		}
	})
	if got != "remote execution test\n" {
		t.Errorf("stdout is %q", got)
	}
}

func logWebSocket(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "echo container is alive")
	pod = podBecomes(t, ctx, create(t, ctx, pod), "succeeds", inPhase(corev1.PodSucceeded))
	target := admin.CoreV1().RESTClient().Get().Resource("pods").Namespace(namespace).Name(pod.Name).SubResource("log").Param("container", "c").URL()
	var got strings.Builder
	frames(t, dial(t, ctx, target, "binary.k8s.io"), func(_ int, data []byte) { got.Write(data) })
	if got.String() != "container is alive\n" {
		t.Errorf("the log is %q", got.String())
	}
}

// notFound wants a 404.
func notFound(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsNotFound(err) {
		t.Errorf("%s: got %v, want not found", what, err)
	}
}
