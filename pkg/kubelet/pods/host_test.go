package pods

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/cri/crifake"
	"podium/pkg/kubelet/sysctls"
)

// A pod that this machine cannot confine as it asks does not run here.
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

// A container owns its termination message file, and may have put anything there.
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
