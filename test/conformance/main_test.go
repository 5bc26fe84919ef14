package conformance

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"
)

// The images that the project makes for its tests.
const (
	busybox = "localhost/podium/busybox:v1"
	web     = "localhost/podium/web:v1"
)

var (
	config *rest.Config         // of the administrator
	admin  kubernetes.Interface // the client of config
)

func TestMain(m *testing.M) {
	file := os.Getenv("KUBECONFIG")
	if file == "" {
		fmt.Fprintln(os.Stderr, "KUBECONFIG names no cluster: run this by hack/test conformance, or under hack/with-cluster")
		os.Exit(1)
	}
	var err error
	if config, err = clientcmd.BuildConfigFromFlags("", file); err == nil {
		config.QPS = -1
		admin, err = kubernetes.NewForConfig(config)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// row runs the test of a catalogue's row in a namespace of its own.
func row(t *testing.T, id string, test func(t *testing.T, ctx context.Context, namespace string)) {
	t.Run(id, func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		ns, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: id[:min(len(id), 40)] + "-"}}, metav1.CreateOptions{})
		check(t, err)
		t.Cleanup(func() {
			if err := admin.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		})
		test(t, ctx, ns.Name)
	})
}

// TestNames holds the tests against the catalogue: each name is a row's.
func TestNames(t *testing.T) {
	text, err := os.ReadFile("catalogue.tsv")
	check(t, err)
	rows := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		id, _, _ := strings.Cut(line, "\t")
		rows[id] = true
	}
	for _, tc := range auth() {
		if !rows[tc.id] {
			t.Errorf("%s is no row of the catalogue", tc.id)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for the cluster until ctx ends.
func eventually(t *testing.T, ctx context.Context, what string, ok func() error) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}

// run makes the pod and waits until its containers run.
func run(t *testing.T, ctx context.Context, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	pod, err := admin.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	check(t, err)
	eventually(t, ctx, "pod "+pod.Name+" runs", func() error {
		pod, err = admin.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("phase %s, %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
		}
		return err
	})
	return pod
}

// exec runs a command in one of the pod's containers and returns its output.
func exec(t *testing.T, ctx context.Context, pod *corev1.Pod, container string, command ...string) string {
	t.Helper()
	url := admin.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewWebSocketExecutor(config, "GET", url.String())
	check(t, err)
	var out, errs bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errs}); err != nil {
		t.Fatalf("%v: %v: %s%s", command, err, &out, &errs)
	}
	return out.String()
}

func sleeper(namespace, name string) *corev1.Pod {
	grace := int64(0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			Containers:                    []corev1.Container{{Name: "c", Image: busybox, Command: []string{"sleep", "3600"}}},
		},
	}
}
