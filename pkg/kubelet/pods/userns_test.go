package pods

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri/crifake"
	"podium/pkg/kubelet/userns"
)

// namespaced runs a test on a node whose kernel and runtime support user namespaces,
// with ranges for two pods.
func namespaced(t *testing.T, cfg crifake.Config, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg.UserNamespaces = true
		r := newRig(t, cfg)
		r.tweak = func(c *Config) {
			ns, err := userns.New(r.dir, userns.DefaultRange(2))
			if err != nil {
				t.Fatal(err)
			}
			c.UserNS, c.Host = ns, Host{UserNS: true, PingGroups: true}
		}
		r.start()
		defer func() { r.stop() }()
		f(r)
	})
}

func ownUsers(p *corev1.Pod) { p.Spec.HostUsers = ptr(false) }

func TestAPodGetsAUserNamespaceOfItsOwn(t *testing.T) {
	namespaced(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("a", ownUsers, func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		}))
		r.api.create(newPod("b", ownUsers))
		r.api.create(newPod("plain"))
		r.pass(time.Second)
		first := func(pod string) uint32 {
			t.Helper()
			c := r.container(pod, "app")
			n := c.Config.Linux.SecurityContext.NamespaceOptions.UsernsOptions
			if n.GetMode() != runtimeapi.NamespaceMode_POD || len(n.Uids) != 1 || len(n.Gids) != 1 || n.Uids[0].Length != 65536 || n.Uids[0].ContainerId != 0 {
				t.Fatalf("pod %s has namespace %v", pod, n)
			}
			box := r.runtime.Sandbox(c.SandboxID).Linux
			if diff := cmp.Diff(n, box.SecurityContext.NamespaceOptions.UsernsOptions, protocmp.Transform()); diff != "" {
				t.Errorf("the sandbox has another namespace (-container +sandbox):\n%s", diff)
			}
			if got := box.Sysctls[pingGroups]; got != "0 65535" {
				t.Errorf("groups %q may ping: the kernel takes only those of the namespace", got)
			}
			for _, m := range c.Config.Mounts {
				if diff := cmp.Diff(n, &runtimeapi.UserNamespace{Mode: n.Mode, Uids: m.UidMappings, Gids: m.GidMappings}, protocmp.Transform()); diff != "" {
					t.Errorf("mount %s is mapped otherwise:\n%s", m.ContainerPath, diff)
				}
			}
			if len(c.Config.Mounts) < 2 {
				t.Errorf("mounts are %v", c.Config.Mounts)
			}
			return n.Uids[0].HostId
		}
		a, b := first("a"), first("b")
		if a == b {
			t.Errorf("two pods have ids from %d on", a)
		}
		plain := r.container("plain", "app").Config
		if n := plain.Linux.SecurityContext.NamespaceOptions.UsernsOptions; n != nil || plain.Mounts[0].UidMappings != nil {
			t.Errorf("a pod on the host's users has namespace %v", n)
		}

		r.restart()
		r.runtime.Kill(r.container("a", "app").ID, 1)
		r.pass(time.Minute)
		if c := r.container("a", "app"); c.Attempt == 0 || first("a") != a {
			t.Errorf("after a restart of the kubelet attempt %d has ids from %d on, not %d", c.Attempt, first("a"), a)
		}
		r.api.create(newPod("c", ownUsers))
		r.pass(time.Second)
		if s := r.pod("c").Status; s.Phase != corev1.PodPending {
			t.Errorf("a third pod is %s on a node with two ranges", s.Phase)
		}
		r.api.deleteGracefully("a", 1)
		r.pass(time.Minute)
		if !r.gone("a") || r.pod("c").Status.Phase != corev1.PodRunning || first("c") != a {
			t.Errorf("the range of a deleted pod is not given to the next: %+v", r.pod("c").Status)
		}
		if _, err := os.Stat(filepath.Join(r.dir, "pods/uid-a")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the deleted pod leaves its directory: %v", err)
		}
	})
}

func TestANodeWithoutUserNamespacesRefusesPodsWithThem(t *testing.T) {
	for name, c := range map[string]struct {
		runtime crifake.Config
		host    Host
		want    string
	}{
		"the runtime": {host: Host{UserNS: true}, want: `Pod was rejected: Pod requires a user namespace (hostUsers: false): RuntimeClass handler "" does not support user namespaces`},
		"the kernel":  {runtime: crifake.Config{UserNamespaces: true}, want: "Pod was rejected: Pod requires a user namespace (hostUsers: false): the kernel of this node does not support it"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, c.runtime)
				r.tweak = func(cfg *Config) { cfg.Host, cfg.UserNS = c.host, noUserNS{t} }
				r.start()
				defer func() { r.stop() }()
				r.api.create(newPod("a", ownUsers))
				r.api.create(newPod("b"))
				r.pass(5 * time.Second)
				if s := r.pod("a").Status; s.Phase != corev1.PodFailed || s.Reason != "UserNamespacesNotSupported" || s.Message != c.want {
					t.Errorf("pod is %+v", s)
				}
				if s := r.pod("b").Status; s.Phase != corev1.PodRunning {
					t.Errorf("a pod on the host's users is %+v", s)
				}
			})
		})
	}
}

// noUserNS fails the test if a range is requested.
type noUserNS struct{ t *testing.T }

func (n noUserNS) Of(uid types.UID) (*runtimeapi.UserNamespace, error) {
	n.t.Errorf("a range is asked for pod %s", uid)
	return nil, errors.New("none")
}

func (noUserNS) Release(types.UID) error { return nil }
