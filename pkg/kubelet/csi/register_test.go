package csi_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/kubelet/plugins"
)

func TestRegistrationWritesTheNode(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.driver.Limit, w.driver.Topology = 8, map[string]string{"example.com/rack": "r1"}
		w.node.Annotations = map[string]string{"csi.volume.kubernetes.io/nodeid": `{"other":"x"}`}
	})
	want := []storagev1.CSINodeDriver{{
		Name: driverName, NodeID: "machine-1", TopologyKeys: []string{"example.com/rack"}, Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(8))},
	}}
	if diff := cmp.Diff(want, w.csiNode.Spec.Drivers); diff != "" {
		t.Error(diff)
	}
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "node"}}
	if diff := cmp.Diff(owner, w.csiNode.OwnerReferences); diff != "" {
		t.Error(diff)
	}
	if got := w.node.Annotations["csi.volume.kubernetes.io/nodeid"]; got != `{"disks.example.com":"machine-1","other":"x"}` || w.node.Labels["example.com/rack"] != "r1" {
		t.Errorf("annotation %s, labels %v", got, w.node.Labels)
	}
	must(t, w.csi.Deregister(t.Context(), plugins.Plugin{Name: driverName}))
	if got := w.node.Annotations["csi.volume.kubernetes.io/nodeid"]; got != `{"other":"x"}` || len(w.csiNode.Spec.Drivers) > 0 {
		t.Errorf("after deregistration: %s, %v", got, w.csiNode.Spec.Drivers)
	}
	if _, err := w.setUp(w.pod("a")); err == nil || !strings.Contains(err.Error(), "driver name disks.example.com not found in the list of registered CSI drivers") {
		t.Errorf("a driver that is gone: %v", err)
	}
	must(t, w.tearDown("a"))
	w.clean()
}

func TestDriversWithGarbageAreNotRegistered(t *testing.T) {
	w := newWorld(t)
	endpoint := filepath.Join(w.root, "plugins", driverName, "csi.sock")
	for name, row := range map[string]struct {
		plugin plugins.Plugin
		nodeID string
		labels map[string]string
		want   string
	}{
		"OldVersion": {plugins.Plugin{Versions: []string{"0.3.0", "x"}}, "id", nil, "none of the CSI versions"},
		"NoID":       {plugins.Plugin{Versions: []string{"1.0.0"}}, "", nil, "returned no node id"},
		"Collision":  {plugins.Plugin{Versions: []string{"v1.2.0"}}, "id", map[string]string{"zone": "other"}, "detected topology value collision"},
		"NoSocket":   {plugins.Plugin{Versions: []string{"1.0.0"}, Endpoint: filepath.Join(w.root, "none")}, "id", nil, "NodeGetInfo"},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, w.PatchNode(t.Context(), "n", []byte(`{"metadata":{"labels":{"zone":"mine"}}}`)))
			w.driver.NodeID, w.driver.Topology = row.nodeID, row.labels
			row.plugin.Name = "garbage.example.com"
			if row.plugin.Endpoint == "" {
				row.plugin.Endpoint = endpoint
			}
			if err := w.csi.Register(t.Context(), row.plugin); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, want %s", err, row.want)
			}
		})
	}
}

// The watcher registers a driver by its socket, and deregisters it when the socket goes.
func TestWatcher(t *testing.T) {
	w := newWorld(t)
	must(t, w.csi.Deregister(t.Context(), plugins.Plugin{Name: driverName}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	watcher := plugins.Watcher{Dir: filepath.Join(w.root, "plugins_registry"), Handlers: map[string]plugins.Handler{plugins.CSI: w.csi}, Log: w.log}
	go func() { done <- watcher.Run(ctx) }()
	registered := func() bool {
		n, err := w.GetCSINode(ctx, "n")
		return err == nil && len(n.Spec.Drivers) == 1
	}
	w.until("the driver is registered", registered)
	w.until("the driver is told", func() bool { s := w.driver.Statuses(); return len(s) == 1 && s[0] == "" })
	must(t, os.Remove(filepath.Join(watcher.Dir, driverName+"-reg.sock")))
	w.until("the driver is deregistered", func() bool { return !registered() })
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
