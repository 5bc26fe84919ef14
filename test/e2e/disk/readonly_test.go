package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// readOnly makes the kubelet's directory read-only until the test ends or writable is called:
// it mounts the directory over itself, since the kernel refuses to change a mount that a
// process writes to.
func (n *node) readOnly() (writable func()) {
	n.Helper()
	dir := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(n.kubelet))), "node")
	check(n.T, unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""))
	writable = sync.OnceFunc(func() { check(n.T, unix.Unmount(dir, unix.MNT_DETACH)) })
	n.Cleanup(writable)
	check(n.T, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	return writable
}

// The kubelet's directory becomes read-only, as after an error of its disk. The kubelet stays
// up and says so; the pod beside keeps running. A pod that names the node waits, with an
// event, and a pod can be deleted. When the directory is writable again, all goes on.
func TestReadOnlyDisk(t *testing.T) {
	n := newNode(t)
	before, err := os.ReadFile(n.kubelet)
	check(t, err)
	running := func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning }
	n.run("beside", "sleep 3600")
	beside := n.becomes("beside", "runs", running)
	n.run("leaving", "sleep 3600")
	n.becomes("leaving", "runs", running)

	writable := n.readOnly()
	n.pressure(corev1.ConditionTrue)
	n.reported(beside.Spec.NodeName, "FilesystemIsReadOnly", "is read-only")
	n.bind("waiting", beside.Spec.NodeName)
	n.reported("waiting", "FailedToMakePodDataDirectories", "read-only file system")
	if err := n.pods.Delete(t.Context(), "leaving", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	n.same(beside)

	writable()
	n.pressure(corev1.ConditionFalse)
	n.becomes("waiting", "runs", running)
	n.same(beside)
	after, err := os.ReadFile(n.kubelet)
	check(t, err)
	if string(before) != string(after) {
		t.Errorf("the kubelet was started again: %s, then %s", before, after)
	}
	for _, name := range []string{"leaving", "waiting", "beside"} {
		n.remove(name)
	}
}

// bind creates a pod with an emptyDir that names its node, so that no scheduler heeds the
// node's taints.
func (n *node) bind(name, to string) {
	n.Helper()
	n.bound = to
	defer func() { n.bound = "" }()
	n.run(name, "sleep 3600")
}

// same checks that a pod runs in the same container as before.
func (n *node) same(before *corev1.Pod) {
	n.Helper()
	now := n.becomes(before.Name, "is there", func(*corev1.Pod) bool { return true })
	was, is := before.Status.ContainerStatuses[0], now.Status.ContainerStatuses[0]
	if is.ContainerID != was.ContainerID || is.State.Running == nil || now.DeletionTimestamp != nil {
		n.Errorf("the pod %s was %+v and is %+v", before.Name, was, is)
	}
}

// reported waits for an event about an object.
func (n *node) reported(object, reason, text string) {
	n.Helper()
	n.eventually(fmt.Sprintf("an event of %s, %s", object, reason), func() error {
		list, err := client.For[*corev1.Event](n.api).In("default").List(n.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var all []string
		for _, e := range list.Items {
			if e.InvolvedObject.Name != object {
				continue
			}
			if e.Reason == reason && strings.Contains(e.Message, text) {
				return nil
			}
			all = append(all, e.Reason+": "+e.Message)
		}
		return errors.New(strings.Join(all, "\n"))
	})
}
