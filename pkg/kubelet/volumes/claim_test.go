package volumes_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestEphemeralVolumesAreMountedFromTheirOwnClaim(t *testing.T) {
	for name, tc := range map[string]struct{ owner, want string }{
		"Own":     {owner: "uid-1"},
		"Foreign": {owner: "other", want: "PVC default/pod-data was not created for pod default/pod (pod is not owner)"},
	} {
		t.Run(name, func(t *testing.T) {
			n, p := newNode(t), claiming(false)
			dir := t.TempDir()
			n.boundClaim(dir)
			p.Name, p.UID = "pod", "uid-1"
			p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
			pvc := n.api.claims["data"]
			pvc.Name = "pod-" + p.Spec.Volumes[0].Name
			pvc.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", UID: types.UID(tc.owner), Controller: ptr(true)}}
			n.api.volumes["v"].Spec.ClaimRef.Name = pvc.Name
			n.api.claims = map[string]*corev1.PersistentVolumeClaim{pvc.Name: pvc}
			got, err := setUp(t.Context(), n.Manager, p)
			if tc.want != "" {
				want := strings.ReplaceAll(tc.want, "pod-data", pvc.Name)
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
				return
			}
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			for _, m := range got {
				if m.HostPath != dir {
					t.Errorf("mounted %+v", m)
				}
			}
		})
	}
}

// boundClaim adds a claim to the API that is bound to a local volume.
func (n *node) boundClaim(path string) {
	n.api.claims = map[string]*corev1.PersistentVolumeClaim{"data": {
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: "claim"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "v"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}}
	n.api.volumes = map[string]*corev1.PersistentVolume{"v": {
		ObjectMeta: metav1.ObjectMeta{Name: "v"},
		Spec: corev1.PersistentVolumeSpec{
			ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: "data", UID: "claim"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
		},
	}}
}

func claiming(readOnly bool) *corev1.Pod {
	p := pod(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data", ReadOnly: readOnly}})
	p.Namespace = "default"
	return p
}

func TestClaimsAreMountedFromTheirVolume(t *testing.T) {
	n, dir := newNode(t), t.TempDir()
	n.boundClaim(dir)
	for _, readOnly := range []bool{false, true} {
		got, err := setUp(t.Context(), n.Manager, claiming(readOnly))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range got {
			if m.HostPath != dir || m.ReadOnly != readOnly {
				t.Errorf("read-only %v: %+v", readOnly, m)
			}
		}
		n.restart()
	}
	if err := n.TearDown(t.Context(), claiming(false).UID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the volume's directory: %v", err)
	}
}

// A second pod of the node waits until the volumes of the first are torn down, even if the
// kubelet restarts meanwhile.
func TestOnePodUsesAnExclusiveVolume(t *testing.T) {
	n := newNode(t)
	n.boundClaim(t.TempDir())
	n.api.volumes["v"].Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	first, second := claiming(false), claiming(false)
	second.UID = "second"
	if _, err := setUp(t.Context(), n.Manager, first); err != nil {
		t.Fatal(err)
	}
	n.restart()
	if _, err := setUp(t.Context(), n.Manager, first); err != nil {
		t.Errorf("the pod that has it: %v", err)
	}
	want := "volume uses the ReadWriteOncePod access mode and is already in use by another pod"
	if _, err := setUp(t.Context(), n.Manager, second); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if err := n.TearDown(t.Context(), first.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := setUp(t.Context(), n.Manager, second); err != nil {
		t.Error(err)
	}
}

func TestUnboundClaimsAreNotMounted(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume)
		want   string
	}{
		"Pending": {func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			c.Status.Phase = corev1.ClaimPending
		}, "PVC is not bound"},
		"Deleted": {func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			c.DeletionTimestamp = &metav1.Time{}
		}, "PVC is being deleted"},
		"OtherUID":  {func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "other" }, "PV v is not bound to it"},
		"NoUID":     {func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "" }, "PV v is not bound to it"},
		"NoVolume":  {func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) { c.Spec.VolumeName = "gone" }, "failed to fetch PV gone"},
		"Directory": {func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Spec.Local.Path = "/dev/null" }, "is not a directory"},
		"Absent":    {func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Spec.Local.Path = "/absent" }, "no such file"},
		"Block": {func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) {
			v.Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock)
		}, "volumeMode Block"},
		"NFS": {func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}}
		}, "no volume plugin matched"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.boundClaim(t.TempDir())
			tc.change(n.api.claims["data"], n.api.volumes["v"])
			_, err := setUp(t.Context(), n.Manager, claiming(false))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// The files of a local volume belong to the pod's fsGroup; what symbolic links lead to
// does not.
func TestLocalVolumesBelongToTheGroup(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("changing a file's group needs root")
	}
	n, dir, outside := newNode(t), t.TempDir(), filepath.Join(t.TempDir(), "outside")
	n.boundClaim(dir)
	deep := filepath.Join(dir, "a", "b", "file")
	for _, err := range []error{
		os.WriteFile(outside, nil, 0o600), os.MkdirAll(filepath.Dir(deep), 0o700), os.WriteFile(deep, nil, 0o600), os.Symlink(outside, filepath.Join(dir, "link")),
		os.Symlink(filepath.Dir(outside), filepath.Join(dir, "a", "up")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	group := func(path string) (gid uint32, mode os.FileMode) {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Gid, info.Mode()
	}
	with := func(policy corev1.PodFSGroupChangePolicy) {
		p := claiming(false)
		p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr(int64(2000)), FSGroupChangePolicy: &policy}
		if _, err := setUp(t.Context(), n.Manager, p); err != nil {
			t.Fatal(err)
		}
		n.restart()
	}
	with(corev1.FSGroupChangeAlways)
	for _, path := range []string{dir, filepath.Dir(deep), deep} {
		if gid, mode := group(path); gid != 2000 || mode&0o060 != 0o060 || mode.IsDir() && mode&os.ModeSetgid == 0 {
			t.Errorf("%s: group %d, mode %v", path, gid, mode)
		}
	}
	if gid, mode := group(outside); gid == 2000 || mode != 0o600 {
		t.Errorf("outside the volume: group %d, mode %v", gid, mode)
	}
	if err := os.Lchown(deep, -1, 0); err != nil {
		t.Fatal(err)
	}
	with(corev1.FSGroupChangeOnRootMismatch)
	if gid, _ := group(deep); gid != 0 {
		t.Errorf("the directory matches, but a file in it changed to group %d", gid)
	}
}
