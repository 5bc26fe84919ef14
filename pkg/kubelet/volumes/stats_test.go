package volumes_test

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/stats"
)

// measuring runs Measure until the test ends.
func (n *node) measuring(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.Measure(ctx)
	}()
	t.Cleanup(func() { stop(); <-done })
}

// A local volume has the statistics of its file system, and a
// volume on the node's disk what its directory uses. A hostPath volume has none.
func TestStats(t *testing.T) {
	dir := t.TempDir()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	capacity := fs.Blocks * uint64(fs.Bsize)
	local := func(n *node) *corev1.Pod { n.boundClaim(dir); return claiming(false) }
	empty := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	for name, tc := range map[string]struct {
		pod      func(*node) *corev1.Pod
		has      bool
		capacity uint64
		inodes   uint64 // in use; 0: not known, or as the file system
		most     uint64 // bytes in use; 0: not known, or as the file system
	}{
		"Local":    {pod: local, has: true, capacity: capacity},
		"EmptyDir": {pod: func(*node) *corev1.Pod { return pod(empty) }, has: true, capacity: capacity, inodes: 2, most: 32 << 10},
		"HostPath": {pod: func(*node) *corev1.Pod {
			return pod(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}})
		}},
		"HostPathOfAClaim": {pod: func(n *node) *corev1.Pod {
			n.boundClaim(dir)
			n.api.volumes["v"].Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}
			return claiming(false)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				p := tc.pod(n)
				n.measuring(t)
				mounts, err := setUp(t.Context(), n.Manager, p)
				if err != nil {
					t.Fatal(err)
				}
				if tc.most > 0 {
					write(t, filepath.Join(mounts["v0"].HostPath, "file"), "some bytes")
				}
				time.Sleep(61 * time.Second)
				synctest.Wait()
				got, ok := n.Stats(p.UID, "v0")
				if ok != tc.has {
					t.Fatalf("measured %t: %+v", ok, got)
				}
				if !ok {
					return
				}
				if *got.CapacityBytes != tc.capacity || *got.AvailableBytes > tc.capacity || *got.Inodes < *got.InodesFree || !got.Time.Time.Equal(n.clock) {
					t.Errorf("%+v: want a capacity of %d", text(got), tc.capacity)
				}
				if tc.most > 0 && (*got.UsedBytes == 0 || *got.UsedBytes > tc.most || *got.InodesUsed != tc.inodes) {
					t.Errorf("%+v: want at most %d bytes, and %d inodes", text(got), tc.most, tc.inodes)
				}
				if err := n.TearDown(t.Context(), p.UID); err != nil {
					t.Fatal(err)
				}
				if got, ok := n.Stats(p.UID, "v0"); ok {
					t.Errorf("after the tear-down: %+v", text(got))
				}
			})
		})
	}
}

// text returns the numbers of statistics, all of which must be there.
func text(f stats.Filesystem) []uint64 {
	return []uint64{*f.CapacityBytes, *f.AvailableBytes, *f.UsedBytes, *f.Inodes, *f.InodesFree, *f.InodesUsed}
}
