package pods

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/cri/crifake"
)

func TestDNS(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("# host\nnameserver 192.0.2.53\nsearch a.example\nsearch example.org. b.example\noptions rotate\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := New(Config{Events: newFakeAPI(), Options: Options{ClusterDNS: []string{"10.96.0.10"}, ClusterDomain: "cluster.local", ResolvConf: file}})
	cluster := &runtimeapi.DNSConfig{
		Servers:  []string{"10.96.0.10"},
		Searches: []string{"default.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.org", "b.example"}, Options: []string{"ndots:5"},
	}
	host := &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53"}, Searches: []string{"example.org", "b.example"}, Options: []string{"rotate"}}
	for _, c := range []struct {
		name   string
		change func(*corev1.PodSpec)
		want   *runtimeapi.DNSConfig
	}{
		{"ClusterFirst", func(s *corev1.PodSpec) { s.DNSPolicy = corev1.DNSClusterFirst }, cluster},
		{"Default", func(s *corev1.PodSpec) { s.DNSPolicy = corev1.DNSDefault }, host},
		{"HostNetwork", func(s *corev1.PodSpec) { s.DNSPolicy, s.HostNetwork = corev1.DNSClusterFirst, true }, host},
		{"ClusterFirstWithHostNet", func(s *corev1.PodSpec) { s.DNSPolicy, s.HostNetwork = corev1.DNSClusterFirstWithHostNet, true }, cluster},
		{"None", func(s *corev1.PodSpec) {
			s.DNSPolicy = corev1.DNSNone
			s.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"1.1.1.1"}, Searches: []string{"x"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr("2")}, {Name: "edns0"}}}
		}, &runtimeapi.DNSConfig{Servers: []string{"1.1.1.1"}, Searches: []string{"x"}, Options: []string{"ndots:2", "edns0"}}},
		{"Merged", func(s *corev1.PodSpec) {
			s.DNSPolicy = corev1.DNSClusterFirst
			s.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"10.96.0.10", "1.1.1.1"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr("2")}}}
		}, &runtimeapi.DNSConfig{Servers: []string{"10.96.0.10", "1.1.1.1"}, Searches: cluster.Searches, Options: []string{"ndots:2"}}},
	} {
		got, err := m.dnsConfig(newPod("a", func(p *corev1.Pod) { c.change(&p.Spec) }))
		if err != nil {
			t.Fatal(err)
		}
		if got.String() != c.want.String() {
			t.Errorf("%s:\n got %v\nwant %v", c.name, got, c.want)
		}
	}
}

func FuzzResolvConf(f *testing.F) {
	f.Add([]byte("nameserver 1.1.1.1\nsearch a b\noptions ndots:5 # x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, s := range parseResolvConf(data).Servers {
			if s == "" || strings.ContainsAny(s, " \t\n") {
				t.Errorf("server %q", s)
			}
		}
	})
}

func TestHostsFile(t *testing.T) {
	p := newPod("web-0", func(p *corev1.Pod) {
		p.Spec.Subdomain = "web"
		p.Spec.HostAliases = []corev1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"foo", "bar"}}}
	})
	got := string(hostsFile(p, []string{"10.0.0.1", "fd00::1"}, nil, "cluster.local"))
	want := "10.0.0.1\tweb-0.web.default.svc.cluster.local\tweb-0\nfd00::1\tweb-0.web.default.svc.cluster.local\tweb-0\n\n# Entries added by HostAliases.\n1.2.3.4\tfoo\tbar\n"
	if !strings.HasPrefix(got, "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n") || !strings.HasSuffix(got, want) {
		t.Errorf("file is\n%s", got)
	}
	p.Spec.HostNetwork = true
	if got := string(hostsFile(p, nil, []byte("127.0.0.1 me\n"), "")); !strings.HasPrefix(got, "# Kubernetes-managed hosts file (host network).\n127.0.0.1 me\n") {
		t.Errorf("on the host's network:\n%s", got)
	}
}

func TestHostname(t *testing.T) {
	long := strings.Repeat("a", 62) + "-b"
	for _, c := range []struct {
		pod  *corev1.Pod
		want string
	}{
		{newPod("a"), "a"},
		{newPod("a", func(p *corev1.Pod) { p.Spec.Hostname = "h" }), "h"},
		{newPod(long), strings.Repeat("a", 62)},
		{newPod("a", func(p *corev1.Pod) { p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = "s", ptr(true) }), "a.s.default.svc.d"},
		{newPod("a", func(p *corev1.Pod) {
			p.Spec.Hostname, p.Spec.Subdomain, p.Spec.HostnameOverride = "h", "s", ptr("db.example.org")
		}), "db.example.org"},
	} {
		if got := hostname(c.pod, "d"); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestTerminationMessages(t *testing.T) {
	dir := t.TempDir()
	file, log := filepath.Join(dir, "message"), filepath.Join(dir, "0.log")
	const stamp = "2026-01-02T03:04:05.678901234Z stdout "
	if err := os.WriteFile(log, []byte(stamp+"F first\n"+stamp+"P sec\n"+stamp+"F ond\n"+stamp+"P end"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, content string
		policy        corev1.TerminationMessagePolicy
		code          int32
		want          string
	}{
		{"File", "DONE", corev1.TerminationMessageReadFile, 0, "DONE"},
		{"LongFile", strings.Repeat("x", 5000), corev1.TerminationMessageReadFile, 0, strings.Repeat("x", 4096)},
		{"FallbackNotNeeded", "DONE", corev1.TerminationMessageFallbackToLogsOnError, 1, "DONE"},
		{"FallbackOnSuccess", "", corev1.TerminationMessageFallbackToLogsOnError, 0, ""},
		{"Fallback", "", corev1.TerminationMessageFallbackToLogsOnError, 1, "first\nsecond\nend"},
		{"NoFallback", "", corev1.TerminationMessageReadFile, 1, ""},
	} {
		if err := os.WriteFile(file, []byte(c.content), 0o644); err != nil {
			t.Fatal(err)
		}
		got := terminationMessage(&runtimeapi.ContainerStatus{
			ExitCode: c.code, LogPath: log, Mounts: []*runtimeapi.Mount{{ContainerPath: "/m", HostPath: file}},
			Annotations: map[string]string{cri.AnnotationMessagePath: "/m", cri.AnnotationMessagePolicy: string(c.policy)},
		})
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func FuzzLogText(f *testing.F) {
	f.Add("2026-01-02T03:04:05.678901234Z stdout F text")
	f.Add("x y P:")
	f.Fuzz(func(t *testing.T, line string) {
		if text, ok := logText(line); ok && len(text) > len(line)+1 {
			t.Errorf("%q became %q", line, text)
		}
	})
}

func TestSecurityContexts(t *testing.T) {
	runtime := crifake.New(crifake.Config{Images: []string{"app:1"}})
	m := New(Config{Images: runtime.ImageService(), RootDir: "/root"})
	sec := func(change func(*corev1.PodSecurityContext, *corev1.SecurityContext)) (*runtimeapi.LinuxContainerSecurityContext, error) {
		p := newPod("a")
		p.Spec.SecurityContext, p.Spec.Containers[0].SecurityContext = &corev1.PodSecurityContext{}, &corev1.SecurityContext{}
		change(p.Spec.SecurityContext, p.Spec.Containers[0].SecurityContext)
		return m.security(t.Context(), p, &p.Spec.Containers[0], "app:1", "")
	}
	s, err := sec(func(p *corev1.PodSecurityContext, c *corev1.SecurityContext) {
		p.RunAsUser, c.RunAsUser, p.RunAsGroup, p.FSGroup = ptr(int64(1)), ptr(int64(2)), ptr(int64(3)), ptr(int64(4))
		c.AllowPrivilegeEscalation, c.ReadOnlyRootFilesystem = ptr(false), ptr(true)
		c.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
		p.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr("p.json")}
	})
	if err != nil || s.RunAsUser.Value != 2 || s.RunAsGroup.Value != 3 || s.SupplementalGroups[0] != 4 || !s.NoNewPrivs || !s.ReadonlyRootfs ||
		s.Capabilities.DropCapabilities[0] != "ALL" || s.Seccomp.LocalhostRef != "/root/seccomp/p.json" || len(s.MaskedPaths) == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := sec(func(_ *corev1.PodSecurityContext, c *corev1.SecurityContext) { c.Privileged = ptr(true) }); err != nil || !s.Privileged || len(s.MaskedPaths) != 0 {
		t.Errorf("privileged: %+v, %v", s, err)
	}
	if _, err := sec(func(p *corev1.PodSecurityContext, _ *corev1.SecurityContext) { p.RunAsNonRoot = ptr(true) }); err == nil ||
		err.Error() != `container has runAsNonRoot and image will run as root (pod: "a_default(uid-a)", container: app)` {
		t.Errorf("non-root over a root image: %v", err)
	}
	if _, err := sec(func(p *corev1.PodSecurityContext, _ *corev1.SecurityContext) {
		p.RunAsNonRoot, p.RunAsUser = ptr(true), ptr(int64(0))
	}); err == nil {
		t.Error("user 0 is root")
	}
}

func TestSandboxConfig(t *testing.T) {
	m := New(Config{LogsDir: "/logs", Events: newFakeAPI(), Options: Options{ClusterDomain: "d"}})
	p := newPod("a", func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "x"}
		p.Spec.ShareProcessNamespace, p.Spec.HostIPC = ptr(true), true
		p.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel/shm_rmid_forced", Value: "1"}}}
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 53, HostPort: 5353, Protocol: corev1.ProtocolUDP, HostIP: "127.0.0.1"}, {ContainerPort: 80}}
	})
	c, err := m.sandboxConfig(p, 2, "/parent")
	if err != nil {
		t.Fatal(err)
	}
	if c.Hostname != "a" || c.LogDirectory != "/logs/default_a_uid-a" || c.Metadata.Attempt != 2 || c.Linux.CgroupParent != "/parent" ||
		c.Labels["app"] != "x" || c.Labels[cri.LabelPodUID] != "uid-a" || c.Linux.Sysctls["kernel.shm_rmid_forced"] != "1" {
		t.Errorf("%+v", c)
	}
	if n := c.Linux.SecurityContext.NamespaceOptions; n.Pid != runtimeapi.NamespaceMode_POD || n.Ipc != runtimeapi.NamespaceMode_NODE || n.Network != runtimeapi.NamespaceMode_POD {
		t.Errorf("namespaces %+v", n)
	}
	if len(c.PortMappings) != 1 || c.PortMappings[0].HostPort != 5353 || c.PortMappings[0].Protocol != runtimeapi.Protocol_UDP {
		t.Errorf("ports %+v", c.PortMappings)
	}
	p.Spec.HostNetwork = true
	if c, err := m.sandboxConfig(p, 0, ""); err != nil || c.Hostname != "" || len(c.PortMappings) != 0 || c.Linux.SecurityContext.NamespaceOptions.Network != runtimeapi.NamespaceMode_NODE {
		t.Errorf("on the host's network: %+v, %v", c, err)
	}
}

func TestLogsAreRotated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, crifake.Config{})
		r.tweak = func(c *Config) { c.LogMaxSize, c.LogMaxFiles = 100, 3 }
		r.start()
		defer func() { r.stop() }()
		r.api.create(newPod("a"))
		r.pass(time.Second)
		log := filepath.Join(r.dir, "logs", "default_a_uid-a", "app", "0.log")
		for range 6 {
			if err := os.WriteFile(log, []byte(strings.Repeat("x", 200)), 0o640); err != nil {
				t.Fatal(err)
			}
			r.pass(10 * time.Second)
		}
		if got := len(r.calls("ReopenContainerLog")); got != 6 {
			t.Errorf("reopened %d times", got)
		}
		files, _ := filepath.Glob(log + ".*")
		if len(files) != 2 || !strings.HasSuffix(files[0], ".gz") || strings.HasSuffix(files[1], ".gz") {
			t.Errorf("files: %v", files)
		}
	})
}

// Log rotation does not follow links that a pod with access to the logs creates.
func TestLogRotationFollowsNoLink(t *testing.T) {
	for name, lead := range map[string]func(log, outside string) error{
		"the log is a link": func(log, outside string) error { return os.Symlink(outside, log) },
		"its folder is a link": func(log, outside string) error {
			return errors.Join(os.RemoveAll(filepath.Dir(log)), os.Symlink(filepath.Dir(outside), filepath.Dir(log)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, crifake.Config{})
				r.tweak = func(c *Config) { c.LogMaxSize, c.LogMaxFiles = 100, 3 }
				r.start()
				defer func() { r.stop() }()
				r.api.create(newPod("a"))
				r.pass(time.Second)
				outside := filepath.Join(t.TempDir(), "0.log")
				log := filepath.Join(r.dir, "logs", "default_a_uid-a", "app", "0.log")
				if err := errors.Join(os.WriteFile(outside, []byte(strings.Repeat("x", 200)), 0o600), lead(log, outside)); err != nil {
					t.Fatal(err)
				}
				r.pass(time.Minute)
				if got := len(r.calls("ReopenContainerLog")); got != 0 {
					t.Errorf("it was rotated %d times", got)
				}
				if files, _ := filepath.Glob(filepath.Join(filepath.Dir(outside), "*")); len(files) != 1 {
					t.Errorf("outside there are now %v", files)
				}
			})
		})
	}
}

func TestStatusPatchLeavesOthersAlone(t *testing.T) {
	base := newPod("a", func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: "x", Status: corev1.ConditionTrue}, {Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
		p.Status.NominatedNodeName = "n"
	})
	now := metav1.NewTime(time.Unix(1000, 0))
	patch, err := statusPatch(base, &corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &now, QOSClass: corev1.PodQOSBestEffort,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{"uid":"uid-a"},"status":{"$setElementOrder/conditions":[{"type":"x"},{"type":"PodScheduled"},{"type":"Ready"}],` +
		`"conditions":[{"lastProbeTime":null,"lastTransitionTime":"1970-01-01T00:16:40Z","status":"True","type":"Ready"}],"phase":"Running","startTime":"1970-01-01T00:16:40Z"}}`
	if diff := cmp.Diff(want, string(patch)); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
	if patch, err := statusPatch(base, base.Status.DeepCopy()); patch != nil || err != nil {
		t.Errorf("no difference, but %s, %v", patch, err)
	}
	done := newPod("b", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	if got := merged(done, &corev1.PodStatus{Phase: corev1.PodRunning}); got.Phase != corev1.PodFailed {
		t.Error("a failed pod runs again")
	}
}
