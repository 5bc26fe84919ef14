package pods

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podium/pkg/kubelet/cri/crifake"
	"podium/pkg/kubelet/devices"
	"podium/pkg/kubelet/devices/devicetest"
	"podium/pkg/kubelet/placement"
	"podium/pkg/kubelet/plugins"
)

const gpus = "example.com/gpu"

// cards are the devices of a rig: a plugin, and a devices.Manager that restarts with the
// kubelet.
type cards struct {
	*devicetest.Plugin
	t    *testing.T
	dir  string
	sock *bufconn.Listener

	kubelet atomic.Pointer[Manager] // whose pods are woken
	manager *devices.Manager
	stop    func()
}

// withCards runs a test on a node whose plugin has the devices a and b.
func withCards(t *testing.T, cfg crifake.Config, f func(r *rig, c *cards)) {
	t.Helper()
	var c *cards
	bubbleWith(t, cfg, func(r *rig) {
		c = &cards{t: r.t, dir: r.dir, Plugin: devicetest.New(gpus, "a", "b"), sock: bufconn.Listen(1 << 20), stop: func() {}}
		stop := c.Serve(c.sock)
		r.t.Cleanup(func() {
			c.stop()
			stop()
			for _, problem := range c.Problems() {
				t.Error(problem)
			}
		})
		r.tweak = func(cfg *Config) {
			c.restart()
			cfg.Devices = c.manager
			p, err := placement.New(placement.Config{Dir: r.dir})
			if err != nil {
				t.Fatal(err)
			}
			p.Add(c.manager.Provider(p.Nodes()))
			cfg.Placement = p
		}
	}, func(r *rig) {
		c.kubelet.Store(r.manager)
		f(r, c)
	})
}

// restart starts a Manager with the checkpoint of the one before. Its plugin registers at
// once.
func (c *cards) restart() {
	c.stop()
	m := devices.New(devices.Config{
		Root: c.dir, Log: slog.New(slog.DiscardHandler),
		Listen: func(string) (net.Listener, error) { return bufconn.Listen(1 << 10), nil },
		Dial: func(_ string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
			return grpc.NewClient("passthrough:///plugin", append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.sock.DialContext(ctx) }))...)
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		_ = m.Run(ctx, func(pods []types.UID) {
			if k := c.kubelet.Load(); k != nil {
				k.Wake(pods)
			}
		})
	})
	c.manager, c.stop = m, func() {
		cancel()
		done.Wait()
	}
	for m.Register(ctx, plugins.Plugin{Name: gpus, Versions: []string{api.Version}}) != nil {
		time.Sleep(time.Millisecond) // virtual: until Run has begun
	}
	for len(m.Allocatable()) == 0 {
		time.Sleep(time.Millisecond)
	}
}

// wants makes the container of a pod ask for devices.
func wants(n int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{gpus: *resource.NewQuantity(n, resource.DecimalSI)}
		p.Spec.Containers[0].Resources.Requests = p.Spec.Containers[0].Resources.Limits
	}
}

func TestContainersGetDevices(t *testing.T) {
	withCards(t, crifake.Config{}, func(r *rig, c *cards) {
		give := func(ids []string) *api.ContainerAllocateResponse {
			return &api.ContainerAllocateResponse{
				Envs:       map[string]string{"CARD": ids[0], "MINE": "plugin"},
				Mounts:     []*api.Mount{{ContainerPath: "/lib", HostPath: "/host/lib", ReadOnly: true}},
				Devices:    []*api.DeviceSpec{{ContainerPath: "/dev/card", HostPath: "/dev/null", Permissions: "rw"}},
				CdiDevices: []*api.CDIDevice{{Name: "example.com/gpu=a"}},
				Annotations: map[string]string{
					"example.com/card": "a", "io.kubernetes.container.preStopHandler": `{"exec":{"command":["evil"]}}`,
					"io.kubernetes.container.restartCount": "7", "podium.dev/restart-delay": "1h",
				},
			}
		}
		c.Change(func() { c.Give = give })
		r.api.create(newPod("a", wants(1), func(p *corev1.Pod) {
			p.Spec.Containers[0].Args = []string{"--card=$(CARD)", "--mine=$(MINE)"}
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "MINE", Value: "pod"}}
		}))
		r.pass(5 * time.Second)
		got := r.container("a", "app").Config
		if diff := cmp.Diff([]string{"--card=a", "--mine=pod"}, got.Args); diff != "" {
			t.Error(diff)
		}
		if len(got.Devices) != 1 || got.Devices[0].HostPath != "/dev/null" || len(got.CDIDevices) != 1 || got.Mounts[0].HostPath != "/host/lib" || !got.Mounts[0].Readonly {
			t.Errorf("devices %v, CDI devices %v, mounts %v", got.Devices, got.CDIDevices, got.Mounts)
		}
		a := got.Annotations
		if a["example.com/card"] != "a" || a["io.kubernetes.container.preStopHandler"] != "" || a["io.kubernetes.container.restartCount"] != "0" || a["podium.dev/restart-delay"] != "0s" {
			t.Errorf("annotations %v", a)
		}
		want := []corev1.ResourceStatus{{Name: gpus, Resources: []corev1.ResourceHealth{{ResourceID: "a", Health: corev1.ResourceHealthStatusHealthy}}}}
		if diff := cmp.Diff(want, r.pod("a").Status.ContainerStatuses[0].AllocatedResourcesStatus); diff != "" {
			t.Error(diff)
		}
		c.Set(append(devicetest.Unhealthy("a"), devicetest.Healthy("b")...)...)
		r.pass(3 * time.Second)
		want[0].Resources[0].Health = corev1.ResourceHealthStatusUnhealthy
		if diff := cmp.Diff(want, r.pod("a").Status.ContainerStatuses[0].AllocatedResourcesStatus); diff != "" {
			t.Error(diff)
		}
	})
}

// The plugin prepares the devices before each start of the container. While it cannot, the
// container waits.
func TestPluginPreparesEachStart(t *testing.T) {
	withCards(t, crifake.Config{}, func(r *rig, c *cards) {
		c.Change(func() {
			c.Options = &api.DevicePluginOptions{PreStartRequired: true}
			c.Before = func(_ context.Context, method string) error {
				if method == "PreStartContainer" {
					return errors.New("the card is hot")
				}
				return nil
			}
		})
		r.restart()
		r.api.create(newPod("a", wants(1)))
		r.pass(time.Second)
		if w := r.pod("a").Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "CreateContainerConfigError" || !strings.Contains(w.Message, "the card is hot") {
			t.Errorf("waiting: %v", w)
		}
		c.Change(func() { c.Before = nil })
		r.pass(20 * time.Second)
		r.runtime.Kill(r.container("a", "app").ID, 1)
		r.pass(20 * time.Second)
		if got := r.pod("a").Status.ContainerStatuses[0]; got.RestartCount != 1 || !got.Ready {
			t.Errorf("the container was not restarted: %v", got)
		}
		if diff := cmp.Diff([]string{"Allocate [a]", "PreStartContainer [a]", "PreStartContainer [a]"}, c.Calls()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestPodIsRefusedWithoutDevices(t *testing.T) {
	withCards(t, crifake.Config{}, func(r *rig, c *cards) {
		r.api.create(newPod("user", wants(1)))
		r.pass(time.Second)
		r.api.create(newPod("more", wants(2)))
		r.pass(time.Second)
		s := r.pod("more").Status
		want := "Pod was rejected: Allocate failed due to requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1, which is unexpected"
		if s.Phase != corev1.PodFailed || s.Reason != "UnexpectedAdmissionError" || s.Message != want {
			t.Errorf("%s %s: %s", s.Phase, s.Reason, s.Message)
		}
		r.api.create(newPod("fits", wants(1)))
		r.pass(time.Second)
		if p := r.pod("fits").Status.Phase; p != corev1.PodRunning {
			t.Errorf("a pod that fits is %s", p)
		}
	})
}

// The devices of an ended pod are free when its status says so.
func TestDevicesOfAnEndedPodAreFree(t *testing.T) {
	cfg := crifake.Config{Behave: func(s crifake.Start) crifake.Behaviour {
		if s.Pod == "job" {
			return crifake.Behaviour{ExitAfter: 5 * time.Second}
		}
		return crifake.Behaviour{}
	}}
	withCards(t, cfg, func(r *rig, c *cards) {
		r.api.create(newPod("job", wants(2), func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }))
		for r.pod("job").Status.Phase != corev1.PodSucceeded {
			r.pass(time.Millisecond)
		}
		r.api.create(newPod("next", wants(2)))
		r.pass(5 * time.Second)
		if p := r.pod("next").Status.Phase; p != corev1.PodRunning {
			t.Errorf("the next pod is %s: %s", p, r.pod("next").Status.Message)
		}
		if s := r.pod("job").Status.ContainerStatuses[0].AllocatedResourcesStatus; len(s) != 1 {
			t.Errorf("the ended pod no longer says what it had: %v", s)
		}
	})
}

// A pod that is deleted while the plugin hangs goes, and takes no device.
func TestPodIsDeletedWhileThePluginHangs(t *testing.T) {
	withCards(t, crifake.Config{}, func(r *rig, c *cards) {
		c.Change(func() {
			c.Before = func(ctx context.Context, method string) error {
				if method == "Allocate" {
					<-ctx.Done()
				}
				return ctx.Err()
			}
		})
		r.api.create(newPod("hangs", wants(2)))
		r.api.create(newPod("other"))
		r.pass(5 * time.Second)
		if p := r.pod("other").Status.Phase; p != corev1.PodRunning {
			t.Errorf("another pod is %s", p)
		}
		r.api.deleteGracefully("hangs", 30)
		r.pass(time.Second)
		if !r.gone("hangs") {
			t.Error("the pod is still there")
		}
		c.Change(func() { c.Before = nil })
		r.api.create(newPod("next", wants(2)))
		r.pass(5 * time.Second)
		if p := r.pod("next").Status.Phase; p != corev1.PodRunning {
			t.Errorf("the next pod is %s: %s", p, r.pod("next").Status.Message)
		}
	})
}

func TestRestartedKubeletKeepsDevices(t *testing.T) {
	withCards(t, crifake.Config{}, func(r *rig, c *cards) {
		r.api.create(newPod("keeps", wants(1)))
		r.api.create(newPod("goes", wants(1)))
		r.pass(5 * time.Second)
		r.stop()
		r.api.drop("goes")
		r.api.create(newPod("next", wants(1)))
		r.start()
		r.pass(10 * time.Second)
		for _, name := range []string{"keeps", "next"} {
			if s := r.pod(name).Status; s.Phase != corev1.PodRunning {
				t.Errorf("%s is %s: %s", name, s.Phase, s.Message)
			}
		}
		if got := c.manager.Devices("uid-keeps", "app"); len(got) != 1 {
			t.Errorf("it has %v", got)
		}
		if n := r.container("keeps", "app").Attempt; n != 0 {
			t.Errorf("it was restarted %d times", n)
		}
	})
}

// A pod that was deleted without a grace period still has its devices until its containers
// have stopped; the next pod waits for them.
func TestPodWaitsForDevicesOfAPodThatIsStopping(t *testing.T) {
	cfg := crifake.Config{Behave: func(crifake.Start) crifake.Behaviour { return crifake.Behaviour{TermDelay: 5 * time.Second} }}
	withCards(t, cfg, func(r *rig, c *cards) {
		r.api.create(newPod("user", wants(2)))
		r.pass(time.Second)
		r.api.drop("user")
		r.api.create(newPod("next", wants(2)))
		r.pass(2 * time.Second)
		if s := r.container("user", "app").State; s != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("the old container is %v: the test proves nothing", s)
		}
		if p := r.pod("next").Status.Phase; p != corev1.PodPending {
			t.Errorf("the next pod is %s: %s", p, r.pod("next").Status.Message)
		}
		r.pass(30 * time.Second)
		if p := r.pod("next").Status.Phase; p != corev1.PodRunning {
			t.Errorf("the next pod is %s: %s", p, r.pod("next").Status.Message)
		}
	})
}
