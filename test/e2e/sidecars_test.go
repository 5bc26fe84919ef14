package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/kubelet/csi/csitest"
)

const provisioned = "provisioned.example.com"

// provisionedClaim is a claim of a class whose volumes the external-provisioner makes.
var provisionedClaim = fmt.Sprintf(`
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: %[1]s}
spec: {attachRequired: true, fsGroupPolicy: File}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %[1]s}
provisioner: %[1]s
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: %[1]s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`, provisioned)

func startSidecar(t *testing.T, socket, name string, args ...string) *peer {
	t.Helper()
	return startPeer(t, name, append([]string{"--kubeconfig=" + filepath.Join(the.dir, "kubeconfig"), "--csi-address=" + socket, "--v=3"}, args...)...)
}

// provisions returns a driver that creates volumes, and serves it to the kubelet and to
// the sidecars. The first volume is created before its provisioner, which dies, hears of
// it.
func provisions(t *testing.T, s *space) (d *csitest.Driver, socket string, created <-chan struct{}, published <-chan *spec.NodePublishVolumeRequest) {
	first, mounts := make(chan struct{}, 10), make(chan *spec.NodePublishVolumeRequest, 10)
	d = &csitest.Driver{
		Name: provisioned, NodeID: "machine-a", Dir: t.TempDir(), Mounts: csitest.Kernel{}, Provisions: true,
		Capabilities: []csitest.Capability{spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, spec.NodeServiceCapability_RPC_EXPAND_VOLUME},
		After: func(ctx context.Context, method string, req any) error {
			switch req := req.(type) {
			case *spec.CreateVolumeRequest:
				first <- struct{}{}
				if len(first) == 1 {
					<-ctx.Done() // the client has been killed
				}
			case *spec.NodePublishVolumeRequest:
				mounts <- req
			}
			return nil
		},
	}
	root := kubeletRoot(t)
	socket = filepath.Join(root, "plugins", d.Name, "csi.sock")
	stop, err := d.Serve(socket, filepath.Join(root, "plugins_registry"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	t.Cleanup(func() {
		ctx := context.Background()
		_ = client.For[*storagev1.StorageClass](s.api).Delete(ctx, d.Name, metav1.DeleteOptions{})
		_ = client.For[*storagev1.CSIDriver](s.api).Delete(ctx, d.Name, metav1.DeleteOptions{})
	})
	return d, socket, first, mounts
}

// Upstream's sidecars create, attach, expand, detach and delete a volume. The provisioner
// is killed when the driver has created the volume and before it knows; then there is one
// volume nevertheless.
func TestCSISidecars(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	d, socket, created, published := provisions(t, s)
	provisioner := startSidecar(t, socket, "csi-provisioner", "--extra-create-metadata")
	startSidecar(t, socket, "csi-attacher")
	startSidecar(t, socket, "csi-resizer")
	s.apply(provisionedClaim)
	s.apply(claiming("user", "data", "echo kept > /data/file; sleep 3600"))
	<-created
	provisioner.end()
	provisioner.start()
	s.pod("user", "runs", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	s.said("data", "ProvisioningSucceeded", "Successfully provisioned volume pvc-")
	if r := <-published; r.PublishContext["attached-to"] != d.NodeID || r.VolumeContext[csitest.MadeFor] != "data" {
		t.Errorf("the volume is published with the contexts %v and %v", r.PublishContext, r.VolumeContext)
	}
	if have := d.Volumes(); len(have) != 1 {
		t.Errorf("one claim has the volumes %v", have)
	}

	claims := in[*corev1.PersistentVolumeClaim](s)
	s.podium("patch", "pvc", "data", "-p", `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)
	var volume string
	eventually(t, 2*time.Minute, "the claim has 2Gi", func() error {
		c, err := claims.Get(t.Context(), "data")
		if err != nil {
			return err
		}
		volume = c.Spec.VolumeName
		if got := c.Status.Capacity.Storage().String(); got != "2Gi" || len(c.Status.Conditions) > 0 {
			return fmt.Errorf("it has %s, conditions %v", got, c.Status.Conditions)
		}
		return nil
	})
	if got := s.exec("user", "cat /data/file"); strings.TrimSpace(got) != "kept" {
		t.Errorf("the file contains %q", got)
	}

	s.deleted("user", func() error { return in[*corev1.Pod](s).Delete(t.Context(), "user", metav1.DeleteOptions{}) })
	s.deleted("data", func() error { return claims.Delete(t.Context(), "data", metav1.DeleteOptions{}) })
	eventually(t, 2*time.Minute, "nothing of the volume is left", func() error {
		if _, err := client.For[*corev1.PersistentVolume](s.api).Get(t.Context(), volume); !apierrors.IsNotFound(err) {
			return fmt.Errorf("get the volume: %v", err)
		}
		if have := d.Volumes(); len(have) > 0 {
			return fmt.Errorf("the driver has %v", have)
		}
		list, err := client.For[*storagev1.VolumeAttachment](s.api).List(t.Context(), metav1.ListOptions{})
		for i := range list.Items {
			if list.Items[i].Spec.Attacher == d.Name {
				err = errors.New("it is attached")
			}
		}
		return err
	})
}
