package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"podium/pkg/client"
	"podium/pkg/kubelet/devices/devicetest"
	"podium/pkg/kubelet/plugins"
)

// cards is a device plugin on the node, which this process runs.
type cards struct {
	*space
	*devicetest.Plugin
	root string // the kubelet's
	stop func()
}

// newCards returns the plugin of a resource with the devices c1 and c2: a container gets the
// kernel's null device, a file that names its card, a variable and an annotation.
func newCards(t *testing.T, resource string) *cards {
	s := newSpace(t)
	c := &cards{space: s, root: kubeletRoot(t), Plugin: devicetest.New(resource, "c1", "c2")}
	file := filepath.Join(t.TempDir(), "driver")
	if err := os.WriteFile(file, []byte("version 7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c.Options = &deviceplugin.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}
	c.Give = func(ids []string) *deviceplugin.ContainerAllocateResponse {
		return &deviceplugin.ContainerAllocateResponse{
			Envs:        map[string]string{"CARDS": strings.Join(ids, ",")},
			Mounts:      []*deviceplugin.Mount{{ContainerPath: "/etc/driver", HostPath: file, ReadOnly: true}},
			Devices:     []*deviceplugin.DeviceSpec{{ContainerPath: "/dev/card", HostPath: "/dev/null", Permissions: "rw"}},
			Annotations: map[string]string{"cards.example.com/given": strings.Join(ids, ",")},
		}
	}
	c.serve()
	t.Cleanup(func() {
		c.stop()
		for _, problem := range c.Problems() {
			t.Error(problem)
		}
	})
	return c
}

func (c *cards) socket() string {
	return filepath.Join(c.root, "device-plugins", strings.ReplaceAll(c.Resource, "/", "-")+".sock")
}

// serve serves the plugin and registers it with the kubelet.
func (c *cards) serve() {
	c.Helper()
	l, err := net.Listen("unix", c.socket())
	if err != nil {
		c.Fatal(err)
	}
	c.stop = c.Serve(l)
	conn, err := plugins.Dial(filepath.Join(c.root, "device-plugins", "kubelet.sock"))
	if err != nil {
		c.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(c.Context(), 20*time.Second)
	defer cancel()
	if err := c.Register(ctx, conn, filepath.Base(c.socket())); err != nil {
		c.Fatal(err)
	}
}

// offered waits until the node has so many devices.
func (c *cards) offered(allocatable, capacity string) {
	c.Helper()
	name := corev1.ResourceName(c.Resource)
	eventually(c.T, 30*time.Second, fmt.Sprintf("the node has %s of %s", allocatable, capacity), func() error {
		n, err := client.For[*corev1.Node](c.api).Get(c.Context(), "node-a")
		if err != nil {
			return err
		}
		has, all := n.Status.Allocatable[name], n.Status.Capacity[name]
		if has.String() != allocatable || all.String() != capacity {
			return fmt.Errorf("it has %s of %s", has.String(), all.String())
		}
		return nil
	})
}

// using creates a pod whose container has devices.
func (c *cards) using(name string, count int, command string) {
	c.Helper()
	c.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: OnFailure
  containers:
    - name: box
      image: localhost/podium/busybox:v1
      command: [sh, -c, %q]
      resources: {limits: {%s: %d}}
`, name, command, c.Resource, count))
}

// listed returns the devices of the space's pods that the pod resources API lists.
func (c *cards) listed() map[string]string {
	c.Helper()
	conn, err := plugins.Dial(filepath.Join(c.root, "pod-resources", "kubelet.sock"))
	if err != nil {
		c.Fatal(err)
	}
	defer conn.Close()
	list, err := podresources.NewPodResourcesListerClient(conn).List(c.Context(), &podresources.ListPodResourcesRequest{})
	if err != nil {
		c.Fatal(err)
	}
	out := map[string]string{}
	for _, p := range list.PodResources {
		if p.Namespace != c.name {
			continue
		}
		for _, r := range p.Containers {
			for _, d := range r.Devices {
				out[p.Name] += fmt.Sprint(r.Name, " ", d.ResourceName, d.DeviceIds)
			}
		}
	}
	return out
}

func running(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning }

func (c *cards) remove(pod string) {
	c.Helper()
	c.deleted(pod, func() error { return in[*corev1.Pod](c.space).Delete(c.Context(), pod, metav1.DeleteOptions{}) })
}

// A pod gets devices of a plugin, keeps them while the kubelet and the plugin are killed, and
// the next pod gets them when it has ended.
func TestDevicePlugins(t *testing.T) {
	c := newCards(t, "example.com/card")
	c.offered("2", "2")
	if out := the.podium(t, "describe", "node", "node-a"); strings.Count(out, "example.com/card") < 2 {
		t.Errorf("podium describe node does not show the devices:\n%s", out)
	}
	c.using("user", 2, "cat /etc/driver; echo $CARDS; echo x > /dev/card && test -c /dev/card && sleep 3600")
	c.pod("user", "runs", running)
	eventually(t, 10*time.Second, "the pod says what it has", func() error {
		if got := c.podium("logs", "user"); got != "version 7\nc1,c2\n" {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
	if diff := cmp.Diff([]string{"GetPreferredAllocation 2 of [c1 c2] with []", "Allocate [c1 c2]", "PreStartContainer [c1 c2]"}, c.Calls()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"user": "box example.com/card[c1]box example.com/card[c2]"}, c.listed()); diff != "" {
		t.Error(diff)
	}

	c.Set(append(devicetest.Healthy("c1"), devicetest.Unhealthy("c2")...)...)
	c.offered("1", "2")
	c.pod("user", "shows the health of its devices", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses[0].AllocatedResourcesStatus
		return len(s) == 1 && len(s[0].Resources) == 2 && s[0].Resources[1].Health == corev1.ResourceHealthStatusUnhealthy
	})
	c.Set(devicetest.Healthy("c1", "c2")...)
	c.offered("2", "2")

	the.kill(t, "kubelet")
	c.stop()
	if err := the.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.offered("0", "0")
	if got := c.pod("user", "runs on", running).Status.ContainerStatuses[0].RestartCount; got != 0 {
		t.Errorf("it has been restarted %d times", got)
	}
	c.serve()
	c.offered("2", "2")
	c.using("next", 1, "echo $CARDS")
	c.said("next", "FailedScheduling", "Insufficient example.com/card")
	c.remove("user")
	c.pod("next", "ends", succeeded)
	if diff := cmp.Diff(map[string]string{}, c.listed()); diff != "" {
		t.Errorf("the devices are not free: %s", diff)
	}

	c.stop() // the plugin is lost
	c.offered("0", "2")
}

// A plugin in the directory of plugins registers by the kubelet's watcher. A pod that the
// plugin refuses fails with upstream's reason.
func TestDevicePluginOfTheWatcher(t *testing.T) {
	c := newCards(t, "example.com/watched")
	c.offered("2", "2")
	c.stop()
	c.offered("0", "2")
	socket := filepath.Join(c.root, "plugins_registry", "watched.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	c.Before = func(_ context.Context, method string) error {
		if method == "Allocate" {
			return errors.New("the card is on fire")
		}
		return nil
	}
	c.stop = c.Serve(l)
	c.offered("2", "2")
	c.using("refused", 1, "true")
	p := c.pod("refused", "is refused", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if want := "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = the card is on fire, which is unexpected"; p.Status.Reason != "UnexpectedAdmissionError" || p.Status.Message != want {
		t.Errorf("%s: %s", p.Status.Reason, p.Status.Message)
	}
}
