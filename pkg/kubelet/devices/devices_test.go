package devices_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podium/pkg/kubelet/devices"
	"podium/pkg/kubelet/devices/devicetest"
	"podium/pkg/kubelet/plugins"
)

func TestCapacityFollowsThePlugin(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.want("[]")
		p := devicetest.New(gpus, "a", "b", "c")
		stop := n.plugin(p)
		n.want("[example.com/gpu 3/3]")
		p.Set(append(devicetest.Healthy("a"), devicetest.Unhealthy("b", "c")...)...)
		n.want("[example.com/gpu 1/3]")
		p.Set()
		n.want("[example.com/gpu 0/0]")
		p.Set(devicetest.Healthy("a", "b")...)
		n.want("[example.com/gpu 2/2]")
		stop() // the plugin is lost
		n.want("[example.com/gpu 0/2]")
		time.Sleep(5*time.Minute - time.Second)
		n.want("[example.com/gpu 0/2]")
		time.Sleep(2 * time.Second)
		n.want("[example.com/gpu 0/0]")
		if _, err := n.Options(t.Context(), pod("late", 1), &pod("late", 1).Spec.Containers[0]); err != nil {
			t.Errorf("a removed resource is still that of a plugin: %v", err)
		}
		n.plugin(devicetest.New(gpus, "a")) // it is back
		n.want("[example.com/gpu 1/1]")
	})
}

func TestChangesAreReportedAtMostOnceASecond(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := devicetest.New(gpus, "a", "b")
		n.plugin(p)
		n.mustAllocate(pod("user", 1))
		synctest.Wait()
		time.Sleep(2 * time.Second)
		n.reported()
		begin := time.Now()
		for range 50 {
			p.Set(devicetest.Unhealthy("a", "b")...)
			time.Sleep(10 * time.Millisecond)
			p.Set(devicetest.Healthy("a", "b")...)
			time.Sleep(90 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		got := n.reported()
		if most := int(time.Since(begin).Seconds()) + 1; len(got) == 0 || len(got) > most {
			t.Fatalf("%d reports in %v", len(got), time.Since(begin))
		}
		if diff := cmp.Diff([]types.UID{"user"}, got[0]); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRegistrationIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		conn, err := n.dial(n.socket("kubelet.sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for name, c := range map[string]struct {
			req  *api.RegisterRequest
			want string
		}{
			"version":  {&api.RegisterRequest{Version: "v1alpha", Endpoint: "x", ResourceName: gpus}, `requested API version "v1alpha" is not supported by kubelet. Supported version is ["v1beta1"]`},
			"native":   {&api.RegisterRequest{Version: api.Version, Endpoint: "x", ResourceName: "cpu"}, `the ResourceName "cpu" is invalid`},
			"ours":     {&api.RegisterRequest{Version: api.Version, Endpoint: "x", ResourceName: "kubernetes.io/gpu"}, `the ResourceName "kubernetes.io/gpu" is invalid`},
			"quota":    {&api.RegisterRequest{Version: api.Version, Endpoint: "x", ResourceName: "requests.example.com/gpu"}, `the ResourceName "requests.example.com/gpu" is invalid`},
			"long":     {&api.RegisterRequest{Version: api.Version, Endpoint: "x", ResourceName: "a/" + strings.Repeat("b", 100000)}, "is invalid"},
			"endpoint": {&api.RegisterRequest{Version: api.Version, ResourceName: gpus}, "the endpoint is empty"},
			"absent":   {&api.RegisterRequest{Version: api.Version, Endpoint: "../../x", ResourceName: gpus}, "failed to get device plugin options"},
		} {
			if _, err := api.NewRegistrationClient(conn).Register(t.Context(), c.req); err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
				t.Errorf("%s: %.200v", name, err)
			}
		}
		if err := n.Register(t.Context(), plugins.Plugin{Name: gpus, Endpoint: "x", Versions: []string{"v1"}}); err == nil || !strings.Contains(err.Error(), "manager version, v1beta1, is not among plugin supported versions [v1]") {
			t.Error(err)
		}
		n.want("[]")
	})
}

// A plugin that restarts takes the place of the earlier one; the end of that has no effect.
func TestPluginIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		first, second := devicetest.New(gpus, "a", "b"), devicetest.New(gpus, "b", "c", "d")
		stop, err := n.serve(first, "first.sock")
		if err != nil {
			t.Fatal(err)
		}
		n.mustAllocate(pod("user", 1))
		n.plugin(second)
		stop()
		n.want("[example.com/gpu 3/3]")
		n.mustAllocate(pod("other", 3))
		n.wantDevices("user", "main", "[a]")
		n.wantDevices("other", "main", "[b c d]")
	})
}

func TestPluginOfTheWatcher(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := devicetest.New(gpus, "a")
		l, _ := n.listen("/plugins_registry/gpu.sock")
		defer p.Serve(l)()
		is := plugins.Plugin{Name: gpus, Endpoint: "/plugins_registry/gpu.sock", Socket: "/plugins_registry/gpu.sock", Versions: []string{api.Version}}
		if err := n.Register(t.Context(), is); err != nil {
			t.Fatal(err)
		}
		n.want("[example.com/gpu 1/1]")
		other := is
		other.Socket = "/other.sock"
		if err := n.Deregister(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		n.want("[example.com/gpu 1/1]")
		if err := n.Deregister(t.Context(), is); err != nil {
			t.Fatal(err)
		}
		n.want("[example.com/gpu 0/1]")
	})
}

func TestDevicesOfInitContainersAreReused(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := devicetest.New(gpus, "a", "b", "c", "d")
		n.plugin(p)
		n.mustAllocate(pod("user", 1, initContainers(container("first", 2), sidecar(container("side", 1)), container("second", 1))))
		n.wantDevices("user", "first", "[a b]")
		n.wantDevices("user", "side", "[a]")
		n.wantDevices("user", "second", "[b]")
		n.wantDevices("user", "main", "[b]")
		n.mustAllocate(pod("other", 2))
		n.wantDevices("other", "main", "[c d]")
	})
}

func TestPluginPrefersDevices(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := devicetest.New(gpus, "a", "b", "c", "d")
		p.Options = &api.DevicePluginOptions{GetPreferredAllocationAvailable: true}
		n.plugin(p)
		n.mustAllocate(pod("user", 2, initContainers(container("first", 1))))
		p.Change(func() {
			p.Prefer = func(*api.ContainerPreferredAllocationRequest) []string { return []string{"none", "d", "c", "c"} }
		})
		n.mustAllocate(pod("other", 2))
		want := []string{
			"GetPreferredAllocation 1 of [a b c d] with []", "Allocate [d]",
			"GetPreferredAllocation 2 of [a b c d] with [d]", "Allocate [c d]",
			"GetPreferredAllocation 2 of [a b] with []", "Allocate [a b]",
		}
		if diff := cmp.Diff(want, p.Calls()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAllocationIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		refused := func(p *corev1.Pod, want string) {
			t.Helper()
			if err := n.allocate(p); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
		p := devicetest.New(gpus, "a", "b")
		n.plugin(p)
		n.mustAllocate(pod("user", 1))
		refused(pod("other", 2), "requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1")
		refused(pod("user", 2), `pod "user" container "main" changed request for resource "example.com/gpu" from 1 to 2`)
		var short *devices.ShortageError
		if err := n.allocate(pod("other", 2)); !errors.As(err, &short) || len(short.Holders) != 1 || short.Holders[0] != "user" {
			t.Errorf("%v: %+v", err, short)
		}
		p.Change(func() { p.Before = func(context.Context, string) error { return errors.New("out of order") } })
		refused(pod("other", 1), "out of order")
		p.Change(func() { p.Before = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() } })
		begin := time.Now()
		refused(pod("other", 1), "DeadlineExceeded")
		if took := time.Since(begin); took > 2*time.Minute {
			t.Errorf("a plugin that hangs takes %v", took)
		}
		p.Change(func() { p.Before = nil })
		p.Set(devicetest.Unhealthy("a", "b")...)
		synctest.Wait()
		refused(pod("other", 1), "no healthy devices present; cannot allocate unhealthy devices example.com/gpu")
		p.Set(devicetest.Healthy("a", "b")...)
		synctest.Wait()
		n.wantDevices("other", "main", "[]")
		n.mustAllocate(pod("other", 1)) // nothing is left of the failed attempts
		n.Release("user")
		n.Release("user")
		n.mustAllocate(pod("third", 1))
	})
}

// A failure in a later container takes the devices of the earlier ones back, and only those
// of this call.
func TestRefusalRollsBack(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.plugin(devicetest.New(gpus, "a", "b"))
		two := pod("two", 1, func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, container("more", 2)) })
		if err := n.allocate(two); err == nil {
			t.Fatal("there are only two devices")
		}
		n.mustAllocate(pod("user", 2))
	})
}

func TestReleaseDuringAllocation(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := devicetest.New(gpus, "a")
		p.Before = func(_ context.Context, method string) error {
			if method == "Allocate" {
				n.Release("user")
			}
			return nil
		}
		n.plugin(p)
		if err := n.allocate(pod("user", 1)); err == nil || !strings.Contains(err.Error(), "released") {
			t.Error(err)
		}
		p.Change(func() { p.Before = nil })
		n.mustAllocate(pod("other", 1))
	})
}

func TestRestartKeepsTheDevicesOfPods(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := devicetest.New(gpus, "a", "b")
		p.Options = &api.DevicePluginOptions{PreStartRequired: true}
		p.Set(&api.Device{ID: "a", Health: api.Healthy, Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: 1}, {ID: 0}, {ID: 1}}}}, devicetest.Healthy("b")[0])
		n.plugin(p)
		user := pod("user", 1)
		n.mustAllocate(user)
		n.restart()
		n.want("[example.com/gpu 0/0]")
		n.wantDevices("user", "main", "[a]")
		if diff := cmp.Diff([]devices.Device{{Resource: gpus, ID: "a", Nodes: []int64{0, 1}}}, n.Devices("user", "main")); diff != "" {
			t.Error(diff)
		}
		if err := n.allocate(pod("other", 1)); err == nil || !strings.Contains(err.Error(), "no healthy devices present") {
			t.Errorf("before the plugin is back: %v", err)
		}
		n.mustAllocate(user) // it has its device
		if _, err := n.Options(t.Context(), user, &user.Spec.Containers[0]); err == nil || !strings.Contains(err.Error(), "has been stopped") {
			t.Errorf("a container starts before its plugin has prepared the device: %v", err)
		}
		if err := n.register(p, "plugin.sock"); err != nil {
			t.Fatal(err)
		}
		n.want("[example.com/gpu 2/2]")
		o, err := n.Options(t.Context(), user, &user.Spec.Containers[0])
		if err != nil || len(o.Envs) != 1 || string(o.Envs[0].Value) != "[a]" {
			t.Errorf("%v %v", o, err)
		}
		n.mustAllocate(pod("other", 1))
		n.wantDevices("other", "main", "[b]")
		if got := n.Pods(); len(got) != 2 {
			t.Errorf("pods %v", got)
		}
	})
}

// The kubelet dies while the plugin prepares a device, before the checkpoint is written, and
// with a checkpoint that cannot be read.
func TestKubeletDies(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := devicetest.New(gpus, "a")
		hang := make(chan struct{})
		p.Before = func(ctx context.Context, method string) error {
			if method == "Allocate" {
				close(hang)
				<-ctx.Done()
			}
			return nil
		}
		n.plugin(p)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- n.Allocate(ctx, pod("user", 1)) }()
		<-hang
		cancel()
		if err := <-done; err == nil {
			t.Error("the call was canceled")
		}
		p.Change(func() { p.Before = nil })
		n.restart()
		n.wantDevices("user", "main", "[]")
		if err := n.register(p, "plugin.sock"); err != nil {
			t.Fatal(err)
		}
		n.mustAllocate(pod("user", 1))
		file := filepath.Join(n.dir, "device-plugins", "kubelet_internal_checkpoint")
		if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		n.restart()
		n.want("[]")
		if _, err := os.Stat(file + ".corrupt"); err != nil {
			t.Error(err)
		}
		if err := n.register(p, "plugin.sock"); err != nil {
			t.Fatal(err)
		}
		user := pod("user", 1)
		if _, err := n.Options(t.Context(), user, &user.Spec.Containers[0]); err != nil {
			t.Error(err)
		}
		n.wantDevices("user", "main", "[a]")
	})
}

// Monitoring agents read the checkpoint of upstream.
func TestCheckpointHasUpstreamsStructure(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := devicetest.New(gpus, "a", "b")
		n.plugin(p)
		n.mustAllocate(pod("user", 1))
		text, err := os.ReadFile(filepath.Join(n.dir, "device-plugins", "kubelet_internal_checkpoint"))
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Data map[string]any }
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{
			"PodDeviceEntries": []any{map[string]any{
				"PodUID": "user", "ContainerName": "main", "ResourceName": gpus, "DeviceIDs": map[string]any{"-1": []any{"a"}},
				"AllocResp": "Cg4KB0RFVklDRVMSA1thXQ==",
			}},
			"RegisteredDevices": map[string]any{gpus: []any{"a", "b"}},
		}
		if diff := cmp.Diff(want, got.Data); diff != "" {
			t.Error(diff)
		}
	})
}

func TestStatusShowsTheHealthOfDevices(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := devicetest.New(gpus, "a", "b", "c")
		stop := n.plugin(p)
		n.mustAllocate(pod("user", 3))
		health := func(want ...corev1.ResourceHealthStatus) {
			t.Helper()
			synctest.Wait()
			var list []corev1.ResourceHealth
			for i, id := range []corev1.ResourceID{"a", "b", "c"} {
				list = append(list, corev1.ResourceHealth{ResourceID: id, Health: want[i]})
			}
			if diff := cmp.Diff([]corev1.ResourceStatus{{Name: gpus, Resources: list}}, n.Status("user", "main")); diff != "" {
				t.Error(diff)
			}
		}
		health("Healthy", "Healthy", "Healthy")
		p.Set(append(devicetest.Healthy("a"), devicetest.Unhealthy("b")...)...)
		health("Healthy", "Unhealthy", "Unknown")
		stop()
		health("Unknown", "Unknown", "Unknown")
		if got := n.Status("user", "other"); got != nil {
			t.Errorf("a container without devices has %v", got)
		}
	})
}
