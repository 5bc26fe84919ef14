package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/scheme"
)

// node is the attacked node, of the cluster of KUBECONFIG.
type node struct {
	*testing.T
	pods    client.Resource[*corev1.Pod]
	nodes   client.Resource[*corev1.Node]
	api     *client.Client
	kubelet string // the file with its process id
	bound   string // the node that run gives a pod; "": the scheduler chooses
}

func newNode(t *testing.T) *node {
	t.Helper()
	file := os.Getenv("KUBECONFIG")
	if file == "" {
		t.Fatal("KUBECONFIG names no cluster: run this by hack/test disk")
	}
	config, err := kubeconfig.Load(file)
	check(t, err)
	cfg, _, err := config.Client("")
	check(t, err)
	api, err := client.New(scheme.New(), cfg)
	check(t, err)
	return &node{
		T: t, pods: client.For[*corev1.Pod](api).In("default"), nodes: client.For[*corev1.Node](api),
		api: api, kubelet: filepath.Join(filepath.Dir(file), "pids", "kubelet.json"),
	}
}

// A pod fills the disk, or its table of inodes, as fast as it can. The kubelet evicts this
// pod and says why; it stays up, and so does the pod beside it. Then the node takes pods
// again.
func TestFullDisk(t *testing.T) {
	for _, tc := range []struct{ name, script, resource string }{
		{"bytes", `i=0; while true; do dd if=/dev/zero of=/data/$i bs=1M count=50 2>/dev/null; i=$((i+1)); done`, "ephemeral-storage"},
		{"inodes", `i=0; while true; do mkdir /data/$i; for j in $(seq 500); do true >/data/$i/$j; done; i=$((i+1)); done 2>/dev/null`, "inodes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t)
			before, err := os.ReadFile(n.kubelet)
			check(t, err)
			n.run("beside", "sleep 3600")
			beside := n.becomes("beside", "runs", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
			n.run("filler", tc.script)
			filler := n.becomes("filler", "is evicted", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
			if want := "The node was low on resource: " + tc.resource; filler.Status.Reason != "Evicted" || !strings.Contains(filler.Status.Message, want) {
				t.Errorf("the pod has failed with %s, %q, want %q", filler.Status.Reason, filler.Status.Message, want)
			}
			n.pressure(corev1.ConditionTrue)
			n.remove("filler")
			n.pressure(corev1.ConditionFalse)
			n.run("next", "echo x > /data/file && sleep 3600")
			n.becomes("next", "runs", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })

			after, err := os.ReadFile(n.kubelet)
			check(t, err)
			if string(before) != string(after) {
				t.Errorf("the kubelet was started again: %s, then %s", before, after)
			}
			n.same(beside)
			n.remove("beside")
			n.remove("next")
		})
	}
}

// run creates a pod with an emptyDir in /data.
func (n *node) run(name, script string) {
	n.Helper()
	zero := int64(0)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName: n.bound, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &zero,
		Containers: []corev1.Container{{
			Name: "c", Image: "localhost/podium/busybox:v1", Command: []string{"sh", "-c", script},
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}}
	n.eventually(name+" is created", func() error { // the account of the namespace may be missing for a moment
		_, err := n.pods.Create(n.Context(), pod)
		return err
	})
}

// becomes waits for a pod.
func (n *node) becomes(name, what string, ok func(*corev1.Pod) bool) (pod *corev1.Pod) {
	n.Helper()
	n.eventually(name+" "+what, func() (err error) {
		if pod, err = n.pods.Get(n.Context(), name); err == nil && !ok(pod) {
			err = fmt.Errorf("it is %s, %s %s, %+v", pod.Status.Phase, pod.Status.Reason, pod.Status.Message, pod.Status.ContainerStatuses)
		}
		return err
	})
	return pod
}

func (n *node) remove(name string) {
	n.Helper()
	n.eventually(name+" is gone", func() error {
		if err := n.pods.Delete(n.Context(), name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete: %v", err)
		}
		return nil
	})
}

// pressure waits until the condition DiskPressure has the status, and its taint is there
// or gone.
func (n *node) pressure(want corev1.ConditionStatus) {
	n.Helper()
	n.eventually("DiskPressure is "+string(want), func() error {
		list, err := n.nodes.List(n.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return errors.New("there is not one node")
		}
		status, tainted := list.Items[0].Status, false
		for _, t := range list.Items[0].Spec.Taints {
			tainted = tainted || t.Key == corev1.TaintNodeDiskPressure
		}
		for _, c := range status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return fmt.Errorf("the node is not ready: %s", c.Message)
			}
			if c.Type == corev1.NodeDiskPressure && (c.Status != want || tainted != (want == corev1.ConditionTrue)) {
				return fmt.Errorf("it is %s, tainted: %t", c.Status, tainted)
			}
		}
		return nil
	})
}

func (n *node) eventually(what string, ok func() error) {
	n.Helper()
	var err error
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = ok(); err == nil {
			return
		}
	}
	n.Fatalf("%s: %v", what, err)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
