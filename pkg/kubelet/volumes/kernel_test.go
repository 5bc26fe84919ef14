package volumes_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podium/pkg/kubelet/volumes"
)

func owner(info fs.FileInfo) (uid, gid uint32) {
	st := info.Sys().(*syscall.Stat_t)
	return st.Uid, st.Gid
}

// needMounts skips the test if the machine does not permit mounts.
func needMounts(t *testing.T) {
	dir := t.TempDir()
	if err := (volumes.Kernel{}).Mount("tmpfs", dir, "size=1m"); err != nil {
		t.Skipf("mounting a tmpfs needs root and CAP_SYS_ADMIN: %v", err)
	}
	if err := (volumes.Kernel{}).Unmount(dir); err != nil {
		t.Fatal(err)
	}
}

// The lifecycle of a pod's volumes on the real kernel.
func TestOnTheKernel(t *testing.T) {
	needMounts(t)
	n := newNode(t)
	n.Mounter = volumes.Kernel{}
	n.api.secrets["s"] = &corev1.Secret{Data: map[string][]byte{"k": []byte("x")}}
	p := pod(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: ptr(resource.MustParse("1Mi"))}},
		corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	t.Cleanup(func() {
		if err := n.TearDown(t.Context(), p.UID); err != nil {
			t.Logf("clean up: %v", err)
		}
	})
	got, err := n.SetUp(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	memory, secret, disk := got["v0"], got["v1"], got["v2"]
	if d := describe(t, memory.HostPath); d != "drwxrwxrwx 0:0" {
		t.Errorf("the memory volume is %s", d)
	}
	if err := os.WriteFile(filepath.Join(memory.HostPath, "big"), make([]byte, 2<<20), 0o600); err == nil {
		t.Error("a volume of 1Mi took 2Mi")
	}
	for _, dir := range []string{memory.HostPath, secret.HostPath} {
		var st syscall.Statfs_t
		if err := syscall.Statfs(dir, &st); err != nil || st.Type != 0x01021994 {
			t.Errorf("%s is not a tmpfs: %v %x", dir, err, st.Type)
		}
	}

	// A sub-path keeps showing what was mounted, even if the container replaces the
	// source.
	os.MkdirAll(filepath.Join(disk.HostPath, "logs"), 0o755)
	os.WriteFile(filepath.Join(disk.HostPath, "logs/a"), []byte("a"), 0o644)
	sub, err := n.SubPath(t.Context(), disk, "logs")
	if err != nil {
		t.Fatal(err)
	}
	os.Rename(filepath.Join(disk.HostPath, "logs"), filepath.Join(disk.HostPath, "moved"))
	os.Symlink("/", filepath.Join(disk.HostPath, "logs"))
	if data, err := os.ReadFile(filepath.Join(sub, "a")); err != nil || string(data) != "a" {
		t.Errorf("after the swap: %q, %v", data, err)
	}
	if _, err := n.SubPath(t.Context(), disk, "logs"); err == nil {
		t.Error("a link to / was taken for a sub-path")
	}
	// A container that starts after a set was replaced sees the new file.
	key, err := n.SubPath(t.Context(), secret, "k")
	if err != nil {
		t.Fatal(err)
	}
	n.api.secrets["s"] = &corev1.Secret{Data: map[string][]byte{"k": []byte("y")}}
	if err := n.Refresh(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(key); string(data) != "x" {
		t.Errorf("a mounted sub-path changed to %q", data)
	}
	if key, err = n.SubPath(t.Context(), secret, "k"); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(key); string(data) != "y" {
		t.Errorf("mounted anew it shows %q", data)
	}

	n.restart()
	n.Mounter = volumes.Kernel{}
	busy, err := os.Open(filepath.Join(memory.HostPath)) // keeps the tmpfs busy
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	if err := n.TearDown(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	if points, err := (volumes.Kernel{}).Under(n.root); err != nil || len(points) > 0 {
		t.Errorf("left mounted: %v, %v", points, err)
	}
	if left, _ := os.ReadDir(filepath.Join(n.root, "pods", string(p.UID))); len(left) > 0 {
		t.Errorf("left on disk: %v", left)
	}
}
