package pods

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestNetRawIsDroppedUnlessAdded(t *testing.T) {
	caps := func(add, drop string) *corev1.SecurityContext {
		c := &corev1.Capabilities{}
		if add != "" {
			c.Add = []corev1.Capability{corev1.Capability(add)}
		}
		if drop != "" {
			c.Drop = []corev1.Capability{corev1.Capability(drop)}
		}
		return &corev1.SecurityContext{Capabilities: c}
	}
	for _, c := range []struct {
		name, reason string
		allow        bool
		container    *corev1.SecurityContext
		add, drop    []string
	}{
		{name: "Default", reason: "nothing is said", container: &corev1.SecurityContext{}, drop: []string{"NET_RAW"}},
		{name: "AnotherAdded", reason: "another capability is not this one", container: caps("NET_ADMIN", ""), add: []string{"NET_ADMIN"}, drop: []string{"NET_RAW"}},
		{name: "Added", reason: "who asks for it and passes admission has it", container: caps("NET_RAW", ""), add: []string{"NET_RAW"}},
		{name: "AddedSmall", reason: "the runtime ignores case", container: caps("net_raw", ""), add: []string{"net_raw"}},
		{name: "AllAdded", reason: "all includes it", container: caps("ALL", ""), add: []string{"ALL"}},
		{name: "AllDropped", reason: "all includes it", container: caps("", "ALL"), drop: []string{"ALL"}},
		{name: "AddedAndAllDropped", reason: "as the pod says", container: caps("NET_RAW", "ALL"), add: []string{"NET_RAW"}, drop: []string{"ALL"}},
		{name: "Privileged", reason: "it has every capability", container: &corev1.SecurityContext{Privileged: ptr(true)}},
		{name: "Allowed", reason: "the kubelet is told to", allow: true, container: &corev1.SecurityContext{}},
	} {
		m := &Manager{cfg: Config{Options: Options{AllowNetRaw: c.allow}}}
		got := m.capabilities(c.container)
		if diff := cmp.Diff([][]string{c.add, c.drop}, [][]string{got.GetAddCapabilities(), got.GetDropCapabilities()}); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", c.name, c.reason, diff)
		}
	}
}

func TestPingWorksWithoutNetRaw(t *testing.T) {
	own := &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: pingGroups, Value: "1 1"}}}
	for _, c := range []struct {
		name  string
		host  Host
		allow bool
		spec  corev1.PodSpec
		want  map[string]string
	}{
		{name: "every group may ping", host: Host{PingGroups: true}, want: map[string]string{pingGroups: "0 2147483647"}},
		{name: "the pod's own range", host: Host{PingGroups: true}, spec: corev1.PodSpec{SecurityContext: own}, want: map[string]string{pingGroups: "1 1"}},
		{name: "the host's network is the host's", host: Host{PingGroups: true}, spec: corev1.PodSpec{HostNetwork: true}},
		{name: "a kernel without the sysctl"},
		{name: "NET_RAW is left", host: Host{PingGroups: true}, allow: true},
	} {
		m := &Manager{cfg: Config{Host: c.host, Options: Options{AllowNetRaw: c.allow}}}
		if diff := cmp.Diff(c.want, m.sysctls(&corev1.Pod{Spec: c.spec})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
