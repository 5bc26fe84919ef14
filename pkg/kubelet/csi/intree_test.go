package csi_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/attachment"
	"podium/pkg/intree"
	"podium/pkg/kubelet/plugins"
)

// own is a driver of the kubelet itself that stages volumes. Its calls are the world's.
type own struct {
	spec.UnimplementedNodeServer
	w *world
}

func (o own) NodeGetCapabilities(ctx context.Context, req *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	return &spec.NodeGetCapabilitiesResponse{Capabilities: []*spec.NodeServiceCapability{{Type: &spec.NodeServiceCapability_Rpc{
		Rpc: &spec.NodeServiceCapability_RPC{Type: spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}}}}}, o.w.before(ctx, "NodeGetCapabilities", req)
}

func (o own) NodeStageVolume(ctx context.Context, req *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	return &spec.NodeStageVolumeResponse{}, o.w.before(ctx, "NodeStageVolume", req)
}

func (o own) NodePublishVolume(ctx context.Context, req *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	return &spec.NodePublishVolumeResponse{}, o.w.before(ctx, "NodePublishVolume", req)
}

func (o own) NodeUnpublishVolume(ctx context.Context, req *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	return &spec.NodeUnpublishVolumeResponse{}, o.w.before(ctx, "NodeUnpublishVolume", req)
}

func (o own) NodeUnstageVolume(ctx context.Context, req *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	return &spec.NodeUnstageVolumeResponse{}, o.w.before(ctx, "NodeUnstageVolume", req)
}

func target(p *corev1.Pod) {
	p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{
		TargetPortal: "10.0.0.1", IQN: "iqn.x", ReadOnly: true, SessionCHAPAuth: true, SecretRef: &corev1.LocalObjectReference{Name: "chap"},
	}}
}

// TestInTreeInline checks that pods share what is staged of an iSCSI volume, that it is
// unstaged after the last one, also by another process, and that nothing waits for an
// attachment.
func TestInTreeInline(t *testing.T) {
	w := newWorld(t)
	w.secrets["default/chap"] = &corev1.Secret{Data: map[string][]byte{"k": []byte("v")}}
	for _, pod := range []string{"a", "b"} {
		mount, err := w.setUp(w.pod(pod, target))
		if err != nil {
			t.Fatal(err)
		}
		if !mount.ReadOnly {
			t.Error("the mount of a read-only volume is not")
		}
	}
	if got, want := w.took(), []string{"NodeStageVolume", "NodePublishVolume", "NodePublishVolume"}; !slices.Equal(got, want) {
		t.Errorf("calls %v, want %v", got, want)
	}
	staged := w.requests["NodeStageVolume"].(*spec.NodeStageVolumeRequest)
	if staged.Secrets["k"] != "v" || staged.VolumeContext[intree.IQN] != "iqn.x" || staged.VolumeId != "10.0.0.1:3260:iqn.x:0:default/chap" {
		t.Errorf("staged by %v", staged)
	}
	if used := w.csi.InUse(); len(used) > 0 {
		t.Errorf("in use as attached: %v", used)
	}
	w.restart()
	for _, pod := range []string{"a", "b"} {
		if err := w.tearDown(pod); err != nil {
			t.Fatal(err)
		}
	}
	w.until("the volume is unstaged", func() bool { return slices.Contains(w.took(), "NodeUnstageVolume") })
	w.clean()
}

// TestInTreeStagesAsLongAsItTakes checks that the call that may make a file system has no
// timeout but the pod's, and that the others have one.
func TestInTreeStagesAsLongAsItTakes(t *testing.T) {
	w := newWorld(t)
	w.secrets["default/chap"] = &corev1.Secret{}
	var limited []string
	w.fault = func(ctx context.Context, method string) error {
		if end, ok := ctx.Deadline(); ok && time.Until(end) <= callTimeout {
			limited = append(limited, method)
		}
		return nil
	}
	if _, err := w.setUp(w.pod("a", target)); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(limited, "NodePublishVolume") || slices.Contains(limited, "NodeStageVolume") {
		t.Errorf("with a timeout: %v", limited)
	}
}

// TestInTreePersistent checks that a persistent iSCSI volume waits for its attachment.
func TestInTreePersistent(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", IQN: "iqn.x"}}
		w.node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: attachment.Volume(intree.ISCSI, "10.0.0.1:3260:iqn.x:0")}}
		w.node.Status.VolumesInUse = []corev1.UniqueVolumeName{attachment.Volume(intree.ISCSI, "10.0.0.1:3260:iqn.x:0")}
	})
	if _, err := w.setUp(w.pod("a")); err != nil {
		t.Fatal(err)
	}
	if used := w.csi.InUse(); len(used) != 1 {
		t.Errorf("in use as attached: %v", used)
	}
	if err := w.tearDown("a"); err != nil {
		t.Fatal(err)
	}
	w.until("the volume is unstaged", func() bool { return slices.Contains(w.took(), "NodeUnstageVolume") })
	w.clean()
}

// TestInTreeNames checks that no plugin takes the place of a driver of the kubelet, and that
// an inline CSI volume cannot name one.
func TestInTreeNames(t *testing.T) {
	w := newWorld(t)
	err := w.csi.Register(t.Context(), plugins.Plugin{Name: intree.ISCSI, Endpoint: "/nowhere", Versions: []string{"1.0.0"}})
	if err == nil || !strings.Contains(err.Error(), "the kubelet has the driver") {
		t.Errorf("registered: error %v", err)
	}
	_, err = w.setUp(w.pod("a", func(p *corev1.Pod) {
		p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: intree.ISCSI}}
	}))
	if err == nil || !strings.Contains(err.Error(), `volume mode "Ephemeral" not supported by driver iscsi.podium.dev`) {
		t.Errorf("inline: error %v", err)
	}
	if err := w.volumes.TearDown(t.Context(), types.UID("a")); err != nil {
		t.Error(err)
	}
}
