package devices_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podium/pkg/kubelet/devices"
	"podium/pkg/kubelet/devices/devicetest"
)

func TestListsOfDevices(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := devicetest.New(gpus, "a")
		n.plugin(p)
		p.Set(append(append(devicetest.Healthy("a", "b", "a", ""), devicetest.Unhealthy("b")...), &api.Device{ID: "c", Health: "well"})...)
		n.want("[example.com/gpu 1/3]") // twice is once, and one without an id is none
		var many []string
		for i := range 50_000 {
			many = append(many, fmt.Sprintf("device-%05d", i))
		}
		p.Set(devicetest.Healthy(many...)...)
		n.want("[example.com/gpu 50k/50k]")
		n.mustAllocate(pod("user", 2))
		n.wantDevices("user", "main", "[device-00000 device-00001]")
		long := strings.Repeat("x", 5<<20)
		p.Set(devicetest.Healthy(long)...) // more than gRPC takes: the plugin is lost
		n.want("[example.com/gpu 0/50k]")
	})
}

// A flood of updates takes neither memory nor the turn of others.
func TestFloodOfUpdates(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p, other := devicetest.New(gpus, "a"), devicetest.New("example.com/other", "x")
		n.plugin(p)
		if stop, err := n.serve(other, "other.sock"); err != nil {
			t.Fatal(err)
		} else {
			defer stop()
		}
		var ids []string
		for i := range 1000 {
			ids = append(ids, fmt.Sprintf("device-%d", i))
		}
		lists := [][]*api.Device{devicetest.Healthy(ids...), devicetest.Unhealthy(ids...)}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range 2000 {
			p.Set(lists[i%2]...)
			if i%100 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
			t.Errorf("the heap has grown by %d bytes", grown)
		}
		o := pod("o", 0)
		o.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/other": resource.MustParse("1")}
		n.mustAllocate(o)
		p.Set(lists[0]...)
		n.want("[example.com/gpu 1k/1k example.com/other 1/1]")
		if got := n.reported(); len(got) > 10 {
			t.Errorf("%d reports", len(got))
		}
	})
}

func TestPluginsThatHang(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := devicetest.New(gpus, "a")
		p.Before = func(ctx context.Context, method string) error { <-ctx.Done(); return ctx.Err() }
		begin := time.Now()
		stop, err := n.serve(p, "hangs.sock")
		defer stop()
		if err == nil || time.Since(begin) > 11*time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		for _, method := range []string{"ListAndWatch", "GetPreferredAllocation", "Allocate", "PreStartContainer"} {
			p := devicetest.New(gpus, "a")
			p.Options = &api.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}
			p.Before = func(ctx context.Context, called string) error {
				if called == method {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}
			stop, err := n.serve(p, method+".sock")
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			user := pod(method, 1)
			_, err = n.Options(context.Background(), user, &user.Spec.Containers[0])
			if took := time.Since(begin); took > 61*time.Second || err == nil && method != "ListAndWatch" {
				t.Errorf("%s: %v after %v", method, err, took)
			}
			n.Release(user.UID)
			stop()
			synctest.Wait()
		}
	})
}

func TestResourcesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := devicetest.New(gpus, "a")
		l, _ := n.listen(n.socket("many.sock"))
		defer p.Serve(l)()
		var err error
		count := 0
		for ; err == nil && count < 1000; count++ {
			p.Change(func() { p.Resource = fmt.Sprintf("example.com/r%d", count) })
			err = n.register(p, "many.sock")
		}
		if err == nil || !strings.Contains(err.Error(), "ResourceExhausted") {
			t.Errorf("%d resources: %v", count, err)
		}
	})
}

func TestOptionsOfSeveralPlugins(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		gpu, nic := devicetest.New(gpus, "a"), devicetest.New("example.com/nic", "x")
		gpu.Give = func([]string) *api.ContainerAllocateResponse {
			return &api.ContainerAllocateResponse{
				Envs: map[string]string{"GPU": "a", "BOTH": "gpu"}, Annotations: map[string]string{"both": "gpu"},
				Mounts:     []*api.Mount{{ContainerPath: "/lib", HostPath: "/host/lib", ReadOnly: true}, {ContainerPath: "/lib", HostPath: "/host/lib", ReadOnly: true}},
				Devices:    []*api.DeviceSpec{{ContainerPath: "/dev/gpu", HostPath: "/dev/gpu0", Permissions: "rw"}},
				CdiDevices: []*api.CDIDevice{{Name: "example.com/gpu=a"}, {Name: "example.com/gpu=a"}},
			}
		}
		nic.Give = func([]string) *api.ContainerAllocateResponse {
			return &api.ContainerAllocateResponse{
				Envs: map[string]string{"BOTH": "nic"}, Annotations: map[string]string{"both": "nic", "nic": "x"},
				Mounts:  []*api.Mount{{ContainerPath: "/lib", HostPath: "/elsewhere"}, {ContainerPath: "/nic", HostPath: "/host/nic"}},
				Devices: []*api.DeviceSpec{{ContainerPath: "/dev/gpu", HostPath: "/dev/nic0", Permissions: "r"}},
			}
		}
		n.plugin(gpu)
		stop, err := n.serve(nic, "nic.sock")
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		user := pod("user", 1)
		user.Spec.Containers[0].Resources.Limits["example.com/nic"] = resource.MustParse("1")
		got, err := n.Options(t.Context(), user, &user.Spec.Containers[0])
		if err != nil {
			t.Fatal(err)
		}
		want := devices.Options{
			Envs:        []*runtimeapi.KeyValue{{Key: "BOTH", Value: []byte("gpu")}, {Key: "GPU", Value: []byte("a")}},
			Mounts:      []*runtimeapi.Mount{{ContainerPath: "/lib", HostPath: "/host/lib", Readonly: true}, {ContainerPath: "/nic", HostPath: "/host/nic"}},
			Devices:     []*runtimeapi.Device{{ContainerPath: "/dev/gpu", HostPath: "/dev/gpu0", Permissions: "rw"}},
			Annotations: map[string]string{"both": "gpu", "nic": "x"},
			CDI:         []*runtimeapi.CDIDevice{{Name: "example.com/gpu=a"}},
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		empty := pod("empty", 0)
		if got, err := n.Options(t.Context(), empty, &empty.Spec.Containers[0]); err != nil || fmt.Sprint(got) != fmt.Sprint(devices.Options{}) {
			t.Errorf("%v %v", got, err)
		}
	})
}

// Without a checkpoint on disk a device could be given twice after a restart: the pod is
// refused, and the device stays free.
func TestCheckpointCannotBeWritten(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.plugin(devicetest.New(gpus, "a"))
		file := filepath.Join(n.dir, "device-plugins", "kubelet_internal_checkpoint.new")
		if err := os.Mkdir(file, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := n.allocate(pod("user", 1)); err == nil || !strings.Contains(err.Error(), "write checkpoint") {
			t.Error(err)
		}
		n.wantDevices("user", "main", "[]")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		n.mustAllocate(pod("user", 1))
		if err := os.Mkdir(file, 0o700); err != nil {
			t.Fatal(err)
		}
		n.Release("user") // this must not fail: the disk may be full
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		n.mustAllocate(pod("other", 1))
		n.restart()
		if diff := cmp.Diff("[other]", fmt.Sprint(n.Pods())); diff != "" {
			t.Error(diff)
		}
	})
}

// The sockets that an earlier kubelet left are removed, other files are not.
func TestSocketsAreRemovedAtStart(t *testing.T) {
	root, err := os.MkdirTemp("", "dev") // short: the path of a socket has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	dir := filepath.Join(root, "device-plugins")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	p := realPlugin{t: t, root: root, Plugin: devicetest.New(gpus, "a")}
	defer p.listen()()
	if err := os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	changed, stop := p.kubelet()
	<-changed.listening
	if _, err := os.Lstat(p.socket()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the plugin's socket is still there: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "notes")); err != nil {
		t.Error(err)
	}
	defer stop()
	defer p.listen()()
	if err := p.register(); err != nil {
		t.Fatal(err)
	}
	<-changed.reported
	if q := changed.m.Allocatable(); len(q) != 1 {
		t.Errorf("devices %v", q)
	}
}
