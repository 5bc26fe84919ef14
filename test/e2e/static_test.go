package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestStaticPod restarts the kubelet with a directory of manifests. The pod of a manifest
// runs and has a mirror, through which it is reached; a mirror that is deleted comes back,
// and the pod runs on. Both end with the manifest.
func TestStaticPod(t *testing.T) {
	dir := t.TempDir()
	static := []string{"--extra-config", "kubelet.pod-manifest-path=" + dir, "--extra-config", "kubelet.file-check-frequency=1s"}
	the.kubeletWith(t, static...)
	t.Cleanup(func() { the.kubeletWith(t) })

	s := newSpace(t)
	file := filepath.Join(dir, "web.yaml")
	manifest := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: %s}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: box, image: "localhost/podium/busybox:v1", command: [sh, -c, "echo hello; sleep 3600"]}]
`, s.name)
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	const name = "web-node-a"
	first := s.ready(name)
	if first.Annotations[corev1.MirrorPodAnnotationKey] == "" || len(first.OwnerReferences) != 1 || first.OwnerReferences[0].Name != "node-a" {
		t.Errorf("the mirror is %+v", first.ObjectMeta)
	}
	if got := s.exec(name, "hostname"); got != name {
		t.Errorf("exec answers %q", got)
	}
	if got := s.podium("logs", name); got != "hello\n" {
		t.Errorf("the log is %q", got)
	}

	s.podium("delete", "pod", name, "--wait=false")
	second := s.pod(name, "is mirrored again", func(p *corev1.Pod) bool { return p.UID != first.UID && p.Status.Phase == corev1.PodRunning })
	if a, b := first.Status.ContainerStatuses[0].ContainerID, second.Status.ContainerStatuses[0].ContainerID; a != b {
		t.Errorf("the container was replaced: %s, before %s", b, a)
	}

	the.kubeletWith(t, static...)
	third := s.ready(name)
	if third.UID != second.UID || third.Status.ContainerStatuses[0].ContainerID != second.Status.ContainerStatuses[0].ContainerID {
		t.Error("a restart of the kubelet replaces the mirror or the container")
	}

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s.podium("wait", "--for=delete", "pod/"+name, "--timeout=60s")
	if list, err := in[*corev1.Pod](s).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("pods are left: %v, %v", list, err)
	}
	s.same(map[string]container{})
}
