package sysctls

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		kernel  string
		allowed []string
		set     string
		host    func(*corev1.PodSpec)
		want    string
	}{
		"safe":                {reason: "it concerns the pod's network alone", set: "net.ipv4.ip_local_port_range"},
		"with slashes":        {reason: "sysctl(8) knows both forms", set: "net/ipv4/ip_local_port_range"},
		"a dot in a part":     {reason: "in the form with slashes, a dot is a part's own", allowed: []string{"net.ipv4.conf.*"}, set: "net/ipv4/conf/eth0.1/mtu"},
		"not for this kernel": {reason: "before 4.15 it was the machine's", kernel: "4.14.0", set: "net.ipv4.tcp_rmem", want: `forbidden sysctl: "net.ipv4.tcp_rmem" not allowlisted`},
		"for this kernel":     {kernel: "4.15.0-aws", set: "net.ipv4.tcp_rmem"},
		"a kernel of no form": {reason: "then nothing that needs one is safe", kernel: "?", set: "net.ipv4.tcp_rmem", want: `forbidden sysctl: "net.ipv4.tcp_rmem" not allowlisted`},
		"unsafe":              {reason: "other pods would feel it", set: "kernel.msgmax", want: `forbidden sysctl: "kernel.msgmax" not allowlisted`},
		"allowed by name":     {allowed: []string{"kernel.msgmax"}, set: "kernel.msgmax"},
		"allowed by pattern":  {allowed: []string{"kernel.shm*"}, set: "kernel.shmmax"},
		"of the machine":      {reason: "no list lets it through", allowed: []string{"kernel.shm*"}, set: "kernel.panic", want: `forbidden sysctl: "kernel.panic" not allowlisted`},
		"on the host's network": {
			reason: "it would be the host's", set: "net.ipv4.tcp_syncookies", host: func(s *corev1.PodSpec) { s.HostNetwork = true },
			want: `forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled`,
		},
		"in the host's IPC": {
			set: "kernel.shm_rmid_forced", host: func(s *corev1.PodSpec) { s.HostIPC = true },
			want: `forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host IPC enabled`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			release := tc.kernel
			if release == "" {
				release = "6.1.0-13-amd64"
			}
			a, err := New(release, tc.allowed)
			if err != nil {
				t.Fatal(err)
			}
			pod := &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: tc.set, Value: "1"}}}}}
			if tc.host != nil {
				tc.host(&pod.Spec)
			}
			got := ""
			if err := a.Check(pod); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("%q, want %q; %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestNoListOfTheMachinesParameters(t *testing.T) {
	_, err := New("6.1", []string{"kernel.panic", "vm.*", "net.*.x", "*", ""})
	for _, want := range []string{`"kernel.panic" are not known to be namespaced`, `"vm." are not known`, `"net.*.x" must have`, `"" are not known`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// FuzzAllowed checks that no flag value allows a sysctl that is not namespaced.
func FuzzAllowed(f *testing.F) {
	f.Add("kernel.shm*", "kernel.shmmax", "6.1")
	f.Add("net.*", "net/ipv4/conf/eth0.1/mtu", "4.4.0-x")
	f.Add("k*", "kernel.panic", "")
	f.Fuzz(func(t *testing.T, list, set, release string) {
		a, err := New(release, []string{list})
		if err != nil {
			return
		}
		name := Name(set)
		if ns := a.find(name); ns != unknown && !strings.HasPrefix(name, "net.") && !strings.HasPrefix(name, "fs.mqueue.") &&
			!strings.HasPrefix(name, "kernel.shm") && !strings.HasPrefix(name, "kernel.msg") && !strings.HasPrefix(name, "kernel.sem") {
			t.Errorf("%q lets %q through", list, name)
		}
	})
}
