package pods

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri/crifake"
	"podium/pkg/kubelet/sysctls"
)

// The node rejects a pod whose confinement it cannot enforce.
func TestWhatTheMachineCannotEnforce(t *testing.T) {
	allowed, err := sysctls.New("6.1", []string{"kernel.msg*"})
	if err != nil {
		t.Fatal(err)
	}
	confined := &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	for name, tc := range map[string]struct {
		host            Host
		change          func(*corev1.Pod)
		reason, message string
	}{
		"AppArmor of the pod": {
			change: func(p *corev1.Pod) { p.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: confined} },
			reason: "AppArmor", message: "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host",
		},
		"AppArmor of a container": {
			change: func(p *corev1.Pod) {
				p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AppArmorProfile: confined}
			},
			reason: "AppArmor", message: "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host",
		},
		"AppArmor where it is": {
			host:   Host{AppArmor: true},
			change: func(p *corev1.Pod) { p.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: confined} },
		},
		"AppArmor off": {
			change: func(p *corev1.Pod) {
				p.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}}
			},
		},
		"a sysctl of the node": {
			host: Host{Sysctls: allowed},
			change: func(p *corev1.Pod) {
				p.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.panic", Value: "1"}}}
			},
			reason: "SysctlForbidden", message: `Pod was rejected: forbidden sysctl: "kernel.panic" not allowlisted`,
		},
		"a sysctl that is allowed": {
			host: Host{Sysctls: allowed},
			change: func(p *corev1.Pod) {
				p.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, crifake.Config{})
				r.tweak = func(c *Config) { c.Host = tc.host }
				r.start()
				defer func() { r.stop() }()
				r.api.create(newPod("a", tc.change))
				r.pass(5 * time.Second)
				s := r.pod("a").Status
				if s.Reason != tc.reason || s.Message != tc.message || (s.Phase == corev1.PodFailed) != (tc.reason != "") {
					t.Errorf("%s %q %q, want %q %q", s.Phase, s.Reason, s.Message, tc.reason, tc.message)
				}
				if ran := len(r.calls("RunPodSandbox")) > 0; ran != (tc.reason == "") {
					t.Errorf("a sandbox was made: %t", ran)
				}
			})
		})
	}
}

// A container owns its termination message file and may replace it with anything.
func TestTailReadsFilesOnly(t *testing.T) {
	dir := t.TempDir()
	secret, link, pipe := filepath.Join(dir, "secret"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	for _, err := range []error{os.WriteFile(secret, []byte("s"), 0o600), os.Symlink(secret, link), unix.Mkfifo(pipe, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{link, pipe, dir} {
		if data, err := tail(path, 10); err == nil {
			t.Errorf("%s was read: %q", path, data)
		}
	}
}

// SELinux options are passed to the runtime. If the host does not support SELinux, an
// event says that they have no effect.
func TestSELinuxOptions(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, crifake.Config{})
			r.tweak = func(c *Config) { c.Host.SELinux = enabled }
			r.start()
			defer func() { r.stop() }()
			r.api.create(newPod("a", func(p *corev1.Pod) {
				p.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c1"}}
			}))
			r.pass(5 * time.Second)
			if told := len(r.api.eventsOf("SELinuxNotEnabled")) > 0; told == enabled {
				t.Errorf("enabled %t, told %t", enabled, told)
			}
			if r.pod("a").Status.Phase != corev1.PodRunning {
				t.Errorf("the pod is %s", r.pod("a").Status.Phase)
			}
		})
	}
	p := newPod("a", func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c1"}}
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Type: "t"}}
	})
	s, err := New(Config{Images: userImage{}}).security(t.Context(), p, &p.Spec.Containers[0], "app:1", "")
	if err != nil || s.SelinuxOptions.GetType() != "t" || sandboxSecurity(p, nil).SelinuxOptions.GetLevel() != "s0:c1" {
		t.Errorf("%v, %v", s.GetSelinuxOptions(), err)
	}
}

// userImage is an image service with one image that sets a user.
type userImage struct {
	runtimeapi.ImageServiceClient
	uid  *runtimeapi.Int64Value
	name string
}

func (i userImage) ImageStatus(context.Context, *runtimeapi.ImageStatusRequest, ...grpc.CallOption) (*runtimeapi.ImageStatusResponse, error) {
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Uid: i.uid, Username: i.name}}, nil
}

func TestWhomAContainerRunsAs(t *testing.T) {
	const of = ` (pod: "a_default(uid-a)", container: app)`
	id := func(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }
	for name, tc := range map[string]struct {
		reason        string
		image         userImage
		pod, own      *int64
		group         *int64
		nonRoot       bool
		uid           *int64
		username, err string
	}{
		"nobody says":               {reason: "the runtime takes the image's", image: userImage{uid: id(5)}},
		"the pod":                   {pod: ptr(int64(1)), uid: ptr(int64(1))},
		"the container":             {reason: "its word goes before the pod's", pod: ptr(int64(1)), own: ptr(int64(2)), uid: ptr(int64(2))},
		"the image, by number":      {image: userImage{uid: id(5)}, nonRoot: true, uid: ptr(int64(5))},
		"the image, by name":        {reason: "the name might be root's", image: userImage{name: "app"}, nonRoot: true, err: "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root" + of},
		"an image of root":          {image: userImage{uid: id(0)}, nonRoot: true, err: "container has runAsNonRoot and image will run as root" + of},
		"an image of nobody":        {reason: "then it is root", nonRoot: true, err: "container has runAsNonRoot and image will run as root" + of},
		"root in so many words":     {own: ptr(int64(0)), nonRoot: true, err: "container's runAsUser breaks non-root policy" + of},
		"a group and a name":        {reason: "a runtime takes no group without a user", image: userImage{name: "app"}, group: ptr(int64(7)), username: "app"},
		"a group and a number":      {image: userImage{uid: id(5)}, group: ptr(int64(7)), uid: ptr(int64(5))},
		"a group and nobody":        {group: ptr(int64(7)), uid: ptr(int64(0))},
		"a user though the name is": {reason: "what is said holds, whatever the image says", image: userImage{name: "app"}, own: ptr(int64(9)), nonRoot: true, uid: ptr(int64(9))},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod("a", func(p *corev1.Pod) {
				p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: tc.pod, RunAsNonRoot: &tc.nonRoot}
				p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: tc.own, RunAsGroup: tc.group}
			})
			s, err := New(Config{Images: tc.image}).security(t.Context(), p, &p.Spec.Containers[0], "app:1", "")
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != tc.err {
				t.Fatalf("%q, want %q; %s", text, tc.err, tc.reason)
			}
			if err != nil {
				return
			}
			same := tc.uid == nil && s.RunAsUser == nil || tc.uid != nil && s.RunAsUser != nil && *tc.uid == s.RunAsUser.Value
			if !same || s.RunAsUsername != tc.username {
				t.Errorf("user %v %q, want %v %q; %s", s.RunAsUser, s.RunAsUsername, tc.uid, tc.username, tc.reason)
			}
		})
	}
}
