package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/kubelet/csi/csitest"
	"podium/pkg/kubelet/volumes"
)

// csiVolume returns a CSIDriver, and a persistent volume of it with a claim.
func csiVolume(name, driver string) string {
	return fmt.Sprintf(`
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: %[2]s}
spec: {attachRequired: true, podInfoOnMount: true, fsGroupPolicy: File}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  claimRef: {namespace: %[1]s, name: data}
  csi: {driver: %[2]s, volumeHandle: disk-1}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: "", volumeName: %[1]s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`, name, driver)
}

// disks is a CSI driver on the node, which this process runs, and its external-attacher.
type disks struct {
	*space
	driver *csitest.Driver
	root   string // the kubelet's
	stop   func()

	mu    sync.Mutex
	fault func(method string) error
	calls []string
}

func newDisks(t *testing.T, name string) *disks {
	s := newSpace(t)
	d := &disks{space: s, root: kubeletRoot(t)}
	d.driver = &csitest.Driver{
		Name: name, NodeID: "machine-a", Dir: t.TempDir(), Mounts: csitest.Kernel{},
		Capabilities: []csitest.Capability{spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME},
		Before: func(_ context.Context, method string, _ any) error {
			d.mu.Lock()
			d.calls = append(d.calls, method)
			fault := d.fault
			d.mu.Unlock()
			if fault != nil {
				return fault(method)
			}
			return nil
		},
	}
	d.serve()
	t.Cleanup(func() { d.stop() })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.attach(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	s.apply(csiVolume(s.name, name))
	t.Cleanup(func() {
		ctx := context.Background()
		_ = client.For[*storagev1.CSIDriver](s.api).Delete(ctx, name, metav1.DeleteOptions{})
		_ = client.For[*corev1.PersistentVolume](s.api).Delete(ctx, s.name, metav1.DeleteOptions{})
	})
	return d
}

func (d *disks) serve() {
	stop, err := d.driver.Serve(filepath.Join(d.root, "plugins", d.driver.Name, "csi.sock"), filepath.Join(d.root, "plugins_registry"))
	if err != nil {
		d.Fatal(err)
	}
	d.stop = stop
}

// kubeletRoot returns the --root-dir of the node's kubelet.
func kubeletRoot(t *testing.T) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", the.pid(t, "kubelet")))
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Split(string(line), "\x00")
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--root-dir="); ok {
			return value
		}
		if arg == "--root-dir" {
			return args[i+1]
		}
	}
	t.Fatalf("the kubelet has no --root-dir: %q", args)
	return ""
}

// attach marks the driver's VolumeAttachments as attached, as an external-attacher does.
func (d *disks) attach(ctx context.Context) {
	attachments := client.For[*storagev1.VolumeAttachment](d.api)
	for ctx.Err() == nil {
		list, err := attachments.List(ctx, metav1.ListOptions{})
		if err == nil {
			for _, a := range list.Items {
				if a.Spec.Attacher == d.driver.Name && !a.Status.Attached {
					_, _ = attachments.Patch(ctx, a.Name, types.MergePatchType, []byte(`{"status":{"attached":true}}`), "status") // repeated
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// unused waits until the node has no trace of the volume, and it is detached.
func (d *disks) unused() {
	d.Helper()
	eventually(d.T, 2*time.Minute, "nothing of the volume is left", func() error {
		points, err := volumes.Kernel{}.Under(d.root)
		if err != nil {
			return err
		}
		for _, p := range points {
			if strings.Contains(p, "csi/"+d.driver.Name) || strings.HasSuffix(p, "csi/"+d.name+"/mount") {
				return fmt.Errorf("%s is mounted", p)
			}
		}
		list, err := client.For[*storagev1.VolumeAttachment](d.api).List(d.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, a := range list.Items {
			if a.Spec.Attacher == d.driver.Name {
				return errors.New("it is attached")
			}
		}
		n, err := client.For[*corev1.Node](d.api).Get(d.Context(), "node-a")
		if err == nil && strings.Contains(fmt.Sprint(n.Status.VolumesInUse, n.Status.VolumesAttached), d.driver.Name) {
			err = fmt.Errorf("in use %v, attached %v", n.Status.VolumesInUse, n.Status.VolumesAttached)
		}
		return err
	})
}

func (d *disks) remove(pod string) {
	d.Helper()
	d.deleted(pod, func() error { return in[*corev1.Pod](d.space).Delete(d.Context(), pod, metav1.DeleteOptions{}) })
}

// What a pod writes to a CSI volume, the next one reads. The driver fails once in each call,
// and says so in an event.
func TestCSIVolumes(t *testing.T) {
	d := newDisks(t, "life.example.com")
	failed := map[string]bool{}
	d.mu.Lock()
	d.fault = func(method string) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if strings.HasPrefix(method, "Node") && !strings.HasPrefix(method, "NodeGet") && !failed[method] {
			failed[method] = true
			return status.Error(codes.Unavailable, "the driver restarts")
		}
		return nil
	}
	d.mu.Unlock()
	node, err := client.For[*storagev1.CSINode](d.api).Get(t.Context(), "node-a")
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	t.Logf("CSINode before: %v", node.Spec.Drivers)
	d.apply(claiming("writer", "data", "echo kept > /data/file"))
	d.pod("writer", "ends", succeeded)
	d.said("writer", "SuccessfulAttachVolume", "AttachVolume.Attach succeeded for volume")
	d.said("writer", "FailedMount", "NodeStageVolume: rpc error: code = Unavailable desc = the driver restarts")
	d.remove("writer")
	d.apply(claiming("reader", "data", "grep -q kept /data/file && test $(stat -c %g /data/file) = 2000"))
	d.pod("reader", "reads what was written", succeeded)
	d.remove("reader")
	d.unused()
	for _, method := range []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"} {
		if !failed[method] {
			t.Errorf("%s was not called: %v", method, d.calls)
		}
	}
}

// The kubelet is killed between staging and publishing, and the pod is deleted before it
// runs again.
func TestKubeletKilledWhileItMounts(t *testing.T) {
	d := newDisks(t, "killed.example.com")
	killed := make(chan struct{}, 10)
	d.mu.Lock()
	d.fault = func(method string) error {
		if method != "NodePublishVolume" {
			return nil
		}
		select {
		case killed <- struct{}{}:
			the.kill(t, "kubelet")
		default:
		}
		return status.Error(codes.Unavailable, "too late")
	}
	d.mu.Unlock()
	d.apply(claiming("p", "data", "sleep 3600"))
	<-killed
	d.mu.Lock()
	d.fault = nil
	d.mu.Unlock()
	now := int64(0)
	if err := in[*corev1.Pod](d.space).Delete(t.Context(), "p", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	if err := the.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.unused()
}
