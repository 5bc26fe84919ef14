package conformance

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
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
	nodes  int                  // that take any pod
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
	if err == nil {
		nodes, err = schedulableNodes()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := report(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "report the results:", err)
		code = 1
	}
	os.Exit(code)
}

// schedulableNodes returns the number of nodes that take any pod.
func schedulableNodes() (int, error) {
	list, err := admin.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	n := 0
	for _, node := range list.Items {
		if !node.Spec.Unschedulable && len(node.Spec.Taints) == 0 {
			n++
		}
	}
	return n, nil
}

// A testcase is the test of a row of the catalogue. The test runs in parallel
// with others, in a namespace of its own that is deleted afterwards.
type testcase struct {
	id   string
	test func(t *testing.T, ctx context.Context, namespace string)

	nodes  int  // schedulable nodes that the row needs; 0 means one
	serial bool // changes what other rows see, such as a node's taints
	long   bool // waits for more than a minute, and so is among the first to start

	timeout time.Duration // 0: rowTimeout
}

// testcases returns the tests of all areas.
func testcases() []testcase {
	return slices.Concat(commonNode(), auth(), storage(), network(), apps(), machinery(), customResources(), webhookRows(), extensionRows(), policyRows(), scheduling(), nodeRows(), kindRows(), commandLine())
}

func TestRows(t *testing.T) {
	for _, long := range []bool{true, false} {
		for _, tc := range testcases() {
			if tc.long == long {
				t.Run(tc.id, func(t *testing.T) { tc.run(t) })
			}
		}
	}
}

func (tc testcase) run(t *testing.T) {
	if tc.nodes < *leastNodes {
		t.Skipf("needs fewer than %d nodes: another run has it", *leastNodes)
	}
	if tc.nodes > nodes {
		t.Skipf("needs %d schedulable nodes, the cluster has %d", tc.nodes, nodes)
	}
	if !tc.serial {
		t.Parallel()
	}
	defer func() { record(t, tc.id) }()
	ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tc.timeout, rowTimeout))
	defer cancel()
	tc.test(t, ctx, namespace(t, ctx, tc.id))
}

// rowTimeout bounds a row: five restarts with their back-off take six minutes.
const rowTimeout = 8 * time.Minute

// namespace creates a namespace that lasts as long as the test.
func namespace(t *testing.T, ctx context.Context, prefix string) string {
	t.Helper()
	ns, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix[:min(len(prefix), 40)] + "-"}}, metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() {
		if err := admin.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return ns.Name
}

// TestCatalogue checks the lists against the catalogue: the tests and the files
// name rows that exist, once each, and no row that has passed lost its test.
func TestCatalogue(t *testing.T) {
	rows, err := readCatalogue()
	check(t, err)
	known, tested := map[string]bool{}, map[string]bool{}
	for _, r := range rows {
		known[r.id] = true
	}
	for _, tc := range testcases() {
		if !known[tc.id] {
			t.Errorf("%s: the catalogue has no such row", tc.id)
		}
		if tested[tc.id] {
			t.Errorf("%s: two tests", tc.id)
		}
		tested[tc.id] = true
	}
	reasons, err := readPairs("notrunnable.tsv")
	check(t, err)
	for id, reason := range reasons {
		if !known[id] || tested[id] || reason == "" {
			t.Errorf("notrunnable.tsv: %s must be a row without a test, with a reason", id)
		}
	}
	passing, err := readLines("passing.txt")
	check(t, err)
	for _, id := range passing {
		if !tested[id] {
			t.Errorf("%s has passed before and has no test now", id)
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

// exec runs a command in one of the pod's containers, wants it to succeed, and
// returns its output.
func exec(t *testing.T, ctx context.Context, pod *corev1.Pod, container string, command ...string) string {
	t.Helper()
	out, err := tryExec(ctx, pod, container, command...)
	check(t, err)
	return out
}

// tryExec is exec for commands that may fail.
func tryExec(ctx context.Context, pod *corev1.Pod, container string, command ...string) (string, error) {
	url := admin.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewWebSocketExecutor(config, "GET", url.String())
	if err != nil {
		return "", err
	}
	var out, errs bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errs}); err != nil {
		return "", fmt.Errorf("%v: %w: %s%s", command, err, &out, &errs)
	}
	return out.String(), nil
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
