package volumes_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/kubelet/volumes"
	"podium/pkg/volumebinding"
)

// localPath binds the claim to a local-path volume "v", and returns its directory.
func (n *node) localPath() string {
	dir := filepath.Join(volumes.LocalPathRoot(n.Root), "v")
	n.boundClaim(dir)
	n.api.volumes["v"].Annotations = map[string]string{volumebinding.ProvisionedBy: volumebinding.LocalPath}
	return dir
}

// deleted returns the volume as it is after its deletion.
func (n *node) deleted() *corev1.PersistentVolume {
	v := n.api.volumes["v"].DeepCopy()
	v.DeletionTimestamp = &metav1.Time{}
	n.api.volumes["v"] = v
	return v
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func absent(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s: %v", path, err)
	}
}

func TestLocalPathsAreMadeAndRemoved(t *testing.T) {
	n := newNode(t)
	dir, p := n.localPath(), claiming(false)
	if _, err := setUp(t.Context(), n.Manager, p); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode() != os.ModeDir|0o777 {
		t.Errorf("the directory: %v %v", info.Mode(), err)
	}
	if !volumebinding.Held(n.api.volumes["v"]) {
		t.Error("the volume has no finalizer")
	}
	write(t, filepath.Join(dir, "f"), "data")
	v := n.deleted()
	if err := n.RemoveLocalPath(t.Context(), v); err == nil || !strings.Contains(err.Error(), string(p.UID)) {
		t.Errorf("it is removed while a pod uses it: %v", err)
	}
	n.restart()
	if err := n.RemoveLocalPath(t.Context(), v); err == nil {
		t.Error("a restarted kubelet does not know the pod")
	}
	if err := n.TearDown(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "f")); err != nil {
		t.Errorf("tear-down removed data: %v", err)
	}
	for range 2 { // twice: the finalizer could not be removed
		if err := n.RemoveLocalPath(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	absent(t, dir)
	if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) > 0 {
		t.Errorf("left: %v %v", entries, err)
	}
}

func TestLocalPathsOfDeletedVolumesAreNotMade(t *testing.T) {
	n := newNode(t)
	dir := n.localPath()
	n.deleted()
	if _, err := setUp(t.Context(), n.Manager, claiming(false)); err == nil || !strings.Contains(err.Error(), "is being deleted") {
		t.Errorf("set-up: %v", err)
	}
	absent(t, dir)
	other := newNode(t)
	other.localPath()
	other.api.volumes["v"].Spec.Local.Path = "/etc"
	if _, err := setUp(t.Context(), other.Manager, claiming(false)); err == nil || !strings.Contains(err.Error(), "this kubelet keeps it at") {
		t.Errorf("set-up at another path: %v", err)
	}
}

// A removal that was interrupted after the directory was renamed continues, and a
// directory of the same name that was made meanwhile is not confused with it.
func TestInterruptedRemovalsContinue(t *testing.T) {
	n := newNode(t)
	dir := n.localPath()
	trash := filepath.Join(filepath.Dir(dir), ".deleted-v")
	for _, d := range []string{filepath.Join(trash, "sub"), filepath.Join(dir, "sub")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.SweepLocalPaths(t.Context()); err != nil {
		t.Fatal(err)
	}
	absent(t, trash)
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the sweep removed a live directory: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(trash, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := n.RemoveLocalPath(t.Context(), n.deleted()); err != nil {
		t.Fatal(err)
	}
	absent(t, trash)
	absent(t, dir)
}

// What containers write cannot make the kubelet remove anything outside of the directory.
func TestRemovalStaysInTheDirectory(t *testing.T) {
	outside := t.TempDir()
	n := newNode(t)
	dir := n.localPath()
	write(t, filepath.Join(outside, "precious"), "data")
	if err := os.MkdirAll(filepath.Join(dir, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{"link", "a/link"} {
		if err := os.Symlink(outside, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.RemoveLocalPath(t.Context(), n.deleted()); err != nil {
		t.Fatal(err)
	}
	absent(t, dir)
	if err := os.Symlink(outside, dir); err != nil {
		t.Fatal(err)
	}
	if err := n.RemoveLocalPath(t.Context(), n.deleted()); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Errorf("a link in place of the directory: %v", err)
	}
	v := n.deleted()
	v.Name, v.Spec.Local.Path = "../pods", filepath.Join(n.Root, "pods")
	if err := n.RemoveLocalPath(t.Context(), v); err == nil {
		t.Error("a name with a slash is accepted")
	}
	if _, err := os.Stat(filepath.Join(outside, "precious")); err != nil {
		t.Error(err)
	}
}

// What is mounted in the directory is not the volume's data: the kubelet removes nothing
// until an administrator has unmounted it.
func TestRemovalDoesNotCrossMounts(t *testing.T) {
	needMounts(t)
	n := newNode(t)
	n.Mounter = volumes.Kernel{}
	dir := n.localPath()
	mounted := filepath.Join(dir, "sub", "mnt")
	if err := os.MkdirAll(mounted, 0o755); err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	write(t, filepath.Join(outside, "precious"), "data")
	if err := syscall.Mount(outside, mounted, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	err := n.RemoveLocalPath(t.Context(), n.deleted())
	if err == nil || !strings.Contains(err.Error(), "is a mount point") {
		t.Errorf("with a mount inside: %v", err)
	}
	if err := n.Mounter.Unmount(mounted); err != nil {
		t.Fatal(err)
	}
	if err := n.RemoveLocalPath(t.Context(), n.deleted()); err != nil {
		t.Fatal(err)
	}
	absent(t, dir)
	if _, err := os.Stat(filepath.Join(outside, "precious")); err != nil {
		t.Error(err)
	}
}
