package csi_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/attachment"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Two pods of a node share the staged volume; the last one unstages it.
func TestLifeOfAVolume(t *testing.T) {
	w := newWorld(t)
	mount, err := w.setUp(w.pod("a"))
	must(t, err)
	if want := filepath.Join(w.root, "pods/a/volumes/kubernetes.io~csi/pv/mount"); mount.HostPath != want {
		t.Errorf("mounted at %s, want %s", mount.HostPath, want)
	}
	_, err = w.setUp(w.pod("b"))
	must(t, err)
	if diff := cmp.Diff([]string{"NodeStageVolume", "NodePublishVolume", "NodePublishVolume"}, w.took()); diff != "" {
		t.Error(diff)
	}
	must(t, w.tearDown("a"))
	_, err = w.setUp(w.pod("b"))
	must(t, err)
	if diff := cmp.Diff([]string{"NodeUnpublishVolume"}, w.took()); diff != "" {
		t.Errorf("the volume is unstaged while a pod uses it:\n%s", diff)
	}
	must(t, w.tearDown("b"))
	w.clean()
	if diff := cmp.Diff([]string{"NodeUnpublishVolume", "NodeUnstageVolume"}, w.took()); diff != "" {
		t.Error(diff)
	}
}

// The record of a volume is upstream's, so that tools that read it work.
func TestRecordOnDisk(t *testing.T) {
	w := newWorld(t, func(w *world) { w.object = nil })
	_, err := w.setUp(w.pod("a"))
	must(t, err)
	data, err := os.ReadFile(filepath.Join(w.root, "pods/a/volumes/kubernetes.io~csi/pv/vol_data.json"))
	must(t, err)
	want := `{"specVolID":"pv","volumeHandle":"disk-1","driverName":"disks.example.com","nodeName":"n",` +
		`"attachmentID":"` + attachment.Name(driverName, "disk-1", "n") + `","volumeLifecycleMode":"Persistent"}`
	if string(data) != want {
		t.Errorf("%s\nwant %s", data, want)
	}
	if got := w.csi.InUse(); len(got) != 1 || got[0] != "kubernetes.io/csi/disks.example.com^disk-1" {
		t.Errorf("volumes in use: %v", got)
	}
	staged := fmt.Sprintf("plugins/kubernetes.io/csi/disks.example.com/%x/globalmount", sha256.Sum256([]byte("disk-1")))
	if ok, _ := w.mounts.Mounted(filepath.Join(w.root, staged)); !ok {
		t.Errorf("not staged at %s: %v", staged, w.left())
	}
}

// A kubelet that is killed at any call leaves nothing behind once the pod is gone.
func TestKilledAtEveryCall(t *testing.T) {
	for _, method := range []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"} {
		for _, when := range []string{"before", "after"} {
			t.Run(when+" "+method, func(t *testing.T) {
				w := newWorld(t)
				ctx, kill := context.WithCancel(t.Context())
				hit := make(chan struct{}, 100)
				die := func(ctx context.Context, called string) error {
					if called != method {
						return nil
					}
					kill()
					hit <- struct{}{}
					<-ctx.Done() // the answer never arrives
					return ctx.Err()
				}
				w.mu.Lock()
				if when == "before" {
					w.fault = die
				} else {
					w.driver.After = func(ctx context.Context, called string, _ any) error { return die(ctx, called) }
				}
				w.mu.Unlock()
				p := w.pod("a")
				_, _ = w.volumes.SetUp(ctx, p, &p.Spec.Volumes[0])
				_ = w.volumes.TearDown(ctx, "a")
				if method == "NodeUnstageVolume" {
					<-hit
				}
				w.mu.Lock()
				w.fault, w.driver.After = nil, nil
				w.mu.Unlock()
				w.restart()
				must(t, w.tearDown("a"))
				w.clean()
			})
		}
	}
}

// A failed call is retried, and its error says which call it was.
func TestErrorsNameTheCall(t *testing.T) {
	for method, want := range map[string]string{
		"NodeGetCapabilities": `MountVolume.SetUp failed for volume "pv" : NodeGetCapabilities: rpc error: code = Internal desc = broken`,
		"NodeStageVolume":     `MountVolume.MountDevice failed for volume "pv" : NodeStageVolume: rpc error: code = Internal desc = broken`,
		"NodePublishVolume":   `MountVolume.SetUp failed for volume "pv" : NodePublishVolume: rpc error: code = Internal desc = broken`,
	} {
		t.Run(method, func(t *testing.T) {
			w := newWorld(t)
			w.mu.Lock()
			w.fault = func(_ context.Context, called string) error {
				if called == method {
					return status.Error(codes.Internal, "broken")
				}
				return nil
			}
			w.mu.Unlock()
			_, err := w.setUp(w.pod("a"))
			if err == nil || err.Error() != want {
				t.Errorf("%v\nwant %s", err, want)
			}
			w.mu.Lock()
			w.fault = nil
			w.mu.Unlock()
			_, err = w.setUp(w.pod("a"))
			must(t, err)
			must(t, w.tearDown("a"))
			w.clean()
		})
	}
}

// A driver that does not answer ends with its deadline, or with the pod.
func TestHangingDriver(t *testing.T) {
	w := newWorld(t)
	w.mu.Lock()
	w.fault = func(ctx context.Context, method string) error {
		if method == "NodeStageVolume" {
			<-ctx.Done()
		}
		return ctx.Err()
	}
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	p, start := w.pod("a"), time.Now()
	// The driver has the deadline too, and may answer just before it.
	if _, err := w.volumes.SetUp(ctx, p, &p.Spec.Volumes[0]); err == nil || time.Since(start) > 2*time.Second {
		t.Errorf("the set-up does not end with its context: %v", err)
	}
	if _, err := w.setUp(p); !strings.Contains(err.Error(), "DeadlineExceeded") {
		t.Errorf("no deadline: %v", err)
	}
	w.mu.Lock()
	w.fault = nil
	w.mu.Unlock()
	must(t, w.tearDown("a"))
	w.clean()
}

// Unstaging is retried until the driver succeeds, without the pod.
func TestUnstagingIsRetried(t *testing.T) {
	w := newWorld(t)
	_, err := w.setUp(w.pod("a"))
	must(t, err)
	fails := 2
	w.mu.Lock()
	w.fault = func(_ context.Context, method string) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if method == "NodeUnstageVolume" && fails > 0 {
			fails--
			return status.Error(codes.Internal, "busy")
		}
		return nil
	}
	w.mu.Unlock()
	must(t, w.tearDown("a"))
	w.clean()
}

// What the driver is told of the volume and the pod.
func TestPublishRequest(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.object.Spec = storagev1.CSIDriverSpec{
			AttachRequired: new(true), PodInfoOnMount: new(true), TokenRequests: []storagev1.TokenRequest{{Audience: "vault"}},
		}
		w.pv.Spec.MountOptions, w.pv.Spec.CSI.FSType = []string{"noatime"}, "ext4"
		w.pv.Spec.CSI.NodePublishSecretRef = &corev1.SecretReference{Namespace: "storage", Name: "key"}
		w.secrets["storage/key"] = &corev1.Secret{Data: map[string][]byte{"user": []byte("admin")}}
		w.driver.Capabilities = append(w.driver.Capabilities, spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP, spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	})
	_, err := w.setUp(w.pod("a", func(p *corev1.Pod) {
		p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
		p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(2000))}
	}))
	must(t, err)
	got := w.requests["NodePublishVolume"].(*spec.NodePublishVolumeRequest)
	about := map[string]string{
		"kind": "fast", "csi.storage.k8s.io/pod.name": "pod-a", "csi.storage.k8s.io/pod.namespace": "default", "csi.storage.k8s.io/pod.uid": "a",
		"csi.storage.k8s.io/serviceAccount.name": "robot", "csi.storage.k8s.io/ephemeral": "false",
		"csi.storage.k8s.io/serviceAccount.tokens": `{"vault":{"token":"robot for vault","expirationTimestamp":"2100-01-01T00:00:00Z"}}`,
	}
	if diff := cmp.Diff(about, got.VolumeContext); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"path": "/dev/x"}, got.PublishContext); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"user": "admin"}, got.Secrets); diff != "" {
		t.Error(diff)
	}
	m := got.VolumeCapability.GetMount()
	if !got.Readonly || m.FsType != "ext4" || m.VolumeMountGroup != "2000" || len(m.MountFlags) != 1 ||
		got.VolumeCapability.AccessMode.Mode != spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER {
		t.Errorf("capability %v, read-only %v", got.VolumeCapability, got.Readonly)
	}
	if !strings.HasSuffix(got.StagingTargetPath, "/globalmount") {
		t.Errorf("staged at %s", got.StagingTargetPath)
	}
}

func inline(p *corev1.Pod) {
	p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: driverName}}
}

func TestInlineVolumes(t *testing.T) {
	w := newWorld(t)
	_, err := w.setUp(w.pod("a", inline))
	want := `MountVolume.SetUp failed for volume "v" : volume mode "Ephemeral" not supported by driver disks.example.com (only supports [])`
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	w.object.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
	_, err = w.setUp(w.pod("a", inline))
	must(t, err)
	w.restart()
	must(t, w.tearDown("a"))
	w.clean()
	if diff := cmp.Diff([]string{"NodePublishVolume", "NodeUnpublishVolume"}, w.took()); diff != "" {
		t.Error(diff)
	}
}

// The claim of an ephemeral volume is that of the pod, and of no other.
func TestGenericEphemeralVolumes(t *testing.T) {
	ephemeral := func(p *corev1.Pod) {
		p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	}
	w := newWorld(t, func(w *world) {
		w.claim.Name, w.pv.Spec.ClaimRef.Name = "pod-a-v", "pod-a-v"
		w.object.Spec.RequiresRepublish = new(true)
	})
	p := w.pod("a", ephemeral)
	want := `MountVolume.SetUp failed for volume "v" : PVC default/pod-a-v was not created for pod default/pod-a (pod is not owner)`
	if _, err := w.setUp(p); err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	w.claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod"))}
	for range 2 {
		_, err := w.setUp(p)
		must(t, err)
	}
	w.restart()
	must(t, w.tearDown("a"))
	w.clean()
	if diff := cmp.Diff([]string{"NodeStageVolume", "NodePublishVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"}, w.took()); diff != "" {
		t.Error(diff)
	}
}

// A pod that is refused an exclusive volume does not reach the driver.
func TestExclusiveVolumes(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	})
	_, err := w.setUp(w.pod("a"))
	must(t, err)
	w.took()
	want := `MountVolume.SetUp failed for volume "v" : volume uses the ReadWriteOncePod access mode and is already in use by another pod`
	if _, err := w.setUp(w.pod("b")); err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	if calls := w.took(); len(calls) > 0 {
		t.Errorf("the driver is called: %v", calls)
	}
	must(t, w.tearDown("b"))
	must(t, w.tearDown("a"))
	w.clean()
	_, err = w.setUp(w.pod("b"))
	must(t, err)
}

func TestBlockDevices(t *testing.T) {
	w := newWorld(t, func(w *world) { w.pv.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) })
	p := w.pod("a", func(p *corev1.Pod) {
		p.Spec.Containers[0].VolumeMounts = nil
		p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "v", DevicePath: "/dev/data"}}
	})
	if _, err := w.setUp(w.pod("b")); err == nil || !strings.Contains(err.Error(), "has volumeMode Block, but is specified in volumeMounts") {
		t.Errorf("a device is mounted: %v", err)
	}
	mount, err := w.setUp(p)
	must(t, err)
	if want := filepath.Join(w.root, "plugins/kubernetes.io/csi/volumeDevices/publish/pv/a"); !mount.Device || mount.HostPath != want {
		t.Errorf("%+v, want %s", mount, want)
	}
	if w.requests["NodePublishVolume"].(*spec.NodePublishVolumeRequest).VolumeCapability.GetBlock() == nil {
		t.Error("the driver is not asked for a block device")
	}
	w.restart()
	must(t, w.tearDown("a"))
	w.clean()
}

func TestExpansion(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.driver.Capabilities = append(w.driver.Capabilities, spec.NodeServiceCapability_RPC_EXPAND_VOLUME)
		w.claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
			{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue},
			{Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue},
		}
	})
	p := w.pod("a")
	_, err := w.setUp(p)
	must(t, err)
	w.mu.Lock()
	w.pv.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse("2Gi")
	w.mu.Unlock()
	if !w.volumes.Refreshes(p, &p.Spec.Volumes[0]) {
		t.Fatal("the volume is never looked at again")
	}
	_, err = w.setUp(p) // of a ready volume: a refresh
	must(t, err)
	if got := w.requests["NodeExpandVolume"].(*spec.NodeExpandVolumeRequest); got.CapacityRange.RequiredBytes != 2<<30 {
		t.Errorf("expanded to %d", got.CapacityRange.RequiredBytes)
	}
	if size := w.claim.Status.Capacity[corev1.ResourceStorage]; size.String() != "2Gi" || len(w.claim.Status.Conditions) > 0 || len(w.claim.Status.AllocatedResourceStatuses) > 0 {
		t.Errorf("the claim's status: %+v", w.claim.Status)
	}
	if len(w.patches) != 2 || !strings.Contains(w.patches[0], `{"allocatedResourceStatuses":{"storage":"NodeResizeInProgress"}}`) {
		t.Errorf("the claim's status was patched by %v", w.patches)
	}
}

// A driver that cannot make the volume so large is not asked again until the controller has
// another size; one that fails for the moment is.
func TestFailedExpansion(t *testing.T) {
	for code, want := range map[codes.Code]string{
		codes.Unavailable: "NodeResizeInProgress []",
		codes.Internal:    "NodeResizeInProgress [NodeResizeError]",
		codes.OutOfRange:  "NodeResizeInfeasible [NodeResizeError]",
	} {
		t.Run(code.String(), func(t *testing.T) {
			w := newWorld(t, func(w *world) {
				w.driver.Capabilities = append(w.driver.Capabilities, spec.NodeServiceCapability_RPC_EXPAND_VOLUME)
				w.pv.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse("2Gi")
				w.fault = func(_ context.Context, method string) error {
					if method == "NodeExpandVolume" {
						return status.Error(code, "no")
					}
					return nil
				}
			})
			p := w.pod("a")
			if _, err := w.setUp(p); status.Code(err) != code {
				t.Errorf("an expansion that fails: %v", err)
			}
			if _, err := w.setUp(p); (err == nil) != (code == codes.OutOfRange) {
				t.Errorf("the next attempt: %v", err)
			}
			if got := resizeOf(w.claim); got != want {
				t.Errorf("the claim is %s, want %s", got, want)
			}
			w.mu.Lock()
			w.fault = nil
			w.claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] = corev1.PersistentVolumeClaimNodeResizePending
			w.mu.Unlock()
			_, err := w.setUp(p)
			must(t, err)
			if got := resizeOf(w.claim); got != " []" {
				t.Errorf("an expanded claim is %s", got)
			}
		})
	}
}

// resizeOf describes the state of a claim's expansion.
func resizeOf(c *corev1.PersistentVolumeClaim) string {
	var types []corev1.PersistentVolumeClaimConditionType
	for _, cond := range c.Status.Conditions {
		types = append(types, cond.Type)
	}
	return fmt.Sprint(c.Status.AllocatedResourceStatuses[corev1.ResourceStorage], " ", types)
}

// Drivers with requiresRepublish are called at every refresh, with current tokens.
func TestRepublishing(t *testing.T) {
	w := newWorld(t, func(w *world) { w.object.Spec.RequiresRepublish = new(true) })
	p := w.pod("a")
	for range 2 {
		_, err := w.setUp(p)
		must(t, err)
	}
	if diff := cmp.Diff([]string{"NodeStageVolume", "NodePublishVolume", "NodePublishVolume"}, w.took()); diff != "" {
		t.Error(diff)
	}
}

func TestStatsAreThoseOfTheLastMeasurement(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.driver.Capabilities = append(w.driver.Capabilities, spec.NodeServiceCapability_RPC_GET_VOLUME_STATS)
	})
	_, err := w.setUp(w.pod("a"))
	must(t, err)
	if _, ok := w.csi.Stats("a", "v"); ok {
		t.Error("statistics before the first measurement")
	}
	w.csi.Measure(t.Context())
	got, ok := w.csi.Stats("a", "v")
	if !ok || *got.UsedBytes != 30 || *got.CapacityBytes != 100 || *got.AvailableBytes != 70 || *got.InodesUsed != 3 {
		t.Errorf("%+v", got)
	}
	must(t, w.tearDown("a"))
	if _, ok := w.csi.Stats("a", "v"); ok {
		t.Error("statistics of a volume that is gone")
	}
}
