package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hostNamespace returns a kernel namespace of this machine, in which the kubelet runs.
func hostNamespace(t *testing.T, kind string) string {
	t.Helper()
	link, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// A field of a security context has its effect on a process in the container.
func TestSecurityContextInside(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	profile := filepath.Join(the.dir, "kubelet", "seccomp", "no-mkdir.json")
	if err := os.MkdirAll(filepath.Dir(profile), 0o755); err != nil {
		t.Fatal(err)
	}
	const denies = `{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO"}]}`
	if err := os.WriteFile(profile, []byte(denies), 0o644); err != nil {
		t.Fatal(err)
	}
	const status = "sed -n 's/^%s:[[:space:]]*//p' /proc/self/status"
	field := func(name string) string { return fmt.Sprintf(status, name) }

	type look struct {
		reason, command, want string // want is a regular expression for all of the output
	}
	for name, tc := range map[string]struct {
		pod, container string
		looks          []look
	}{
		"plain": {looks: []look{
			{"RuntimeDefault is the kubelet's default", field("Seccomp"), "2"},
			{"escalation is allowed unless the pod says no", field("NoNewPrivs"), "0"},
			{"what the runtime gives but NET_RAW, and no more", field("CapEff"), "00000000a80405fb"},
			{"the user of the image", "id -u", "0"},
			{"what of /proc is the machine's is masked", "wc -c < /proc/keys", "0"},
			{"and /proc/sys is not to be written", "echo 1 > /proc/sys/kernel/panic || echo no", "no"},
			{"its own process namespace", "readlink /proc/1/ns/pid", `pid:\[.*\]`},
		}},
		"ids": {
			pod: "securityContext: {runAsUser: 1001, runAsGroup: 2002, fsGroup: 3003, supplementalGroups: [4004], runAsNonRoot: true}",
			looks: []look{
				{"runAsUser", "id -u", "1001"},
				{"runAsGroup", "id -g", "2002"},
				{"fsGroup and supplementalGroups", field("Groups"), `(2002 )?3003 4004 ?`},
				{"the volume belongs to fsGroup, and hands it on", "stat -c '%g %a' /vol", "3003 2777"},
				{"so does a file made in it", "touch /vol/new && stat -c '%u %g' /vol/new", "1001 3003"},
			},
		},
		"container-first": {
			pod: "securityContext: {runAsUser: 1, runAsGroup: 1}", container: "securityContext: {runAsUser: 7, runAsGroup: 8}",
			looks: []look{{"the container's word goes before the pod's", "echo $(id -u) $(id -g)", "7 8"}},
		},
		"confined": {
			container: "securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}}",
			looks: []look{
				{"drop ALL, add one", field("CapEff"), "0000000000000400"},
				{"no_new_privs", field("NoNewPrivs"), "1"},
				{"the root is read-only", "touch /new 2>&1", ".*Read-only file system"},
				{"a volume is not", "touch /vol/new && echo yes", "yes"},
			},
		},
		"added": {
			container: "securityContext: {capabilities: {add: [SYS_TIME], drop: [CHOWN]}}",
			looks:     []look{{"one more, one less, and no NET_RAW", field("CapEff"), "00000000aa0405fa"}},
		},
		"unconfined": {
			pod:   "securityContext: {seccompProfile: {type: Unconfined}}",
			looks: []look{{"the pod says so", field("Seccomp"), "0"}},
		},
		"profile": {
			container: "securityContext: {seccompProfile: {type: Localhost, localhostProfile: no-mkdir.json}}",
			looks: []look{
				{"a filter is there", field("Seccomp"), "2"},
				{"and it is ours", "mkdir /tmp/new 2>&1", ".*Operation not permitted"},
			},
		},
		"privileged": {
			container: "securityContext: {privileged: true}",
			looks: []look{
				{"no filter", field("Seccomp"), "0"},
				{"all that there is", field("CapEff"), ownCapabilities(t)},
				{"nothing of /proc is read-only", "echo pod > /proc/sys/kernel/domainname && cat /proc/sys/kernel/domainname", "pod"},
			},
		},
		"sysctls": {
			pod: `securityContext: {sysctls: [{name: net.ipv4.ip_local_port_range, value: "20000 30000"}, {name: kernel/shm_rmid_forced, value: "1"}]}`,
			looks: []look{
				{"in the pod's network", "cat /proc/sys/net/ipv4/ip_local_port_range", "20000\t30000"},
				{"in its IPC; slashes are fine", "cat /proc/sys/kernel/shm_rmid_forced", "1"},
			},
		},
		"host": {
			pod: "hostPID: true\n  hostIPC: true\n  hostNetwork: true",
			looks: []look{
				{"hostPID", "readlink /proc/self/ns/pid", regexp.QuoteMeta(hostNamespace(t, "pid"))},
				{"hostIPC", "readlink /proc/self/ns/ipc", regexp.QuoteMeta(hostNamespace(t, "ipc"))},
				{"hostNetwork", "readlink /proc/self/ns/net", regexp.QuoteMeta(hostNamespace(t, "net"))},
			},
		},
		"shared": {
			pod:   "shareProcessNamespace: true",
			looks: []look{{"the first process is the sandbox's", "cat /proc/1/comm", "pause"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := s.within(t)
			indented := func(text, fallback string) string {
				if text == "" {
					return fallback
				}
				return text
			}
			s.apply(`apiVersion: v1
kind: Pod
metadata: {name: ` + name + `}
spec:
  terminationGracePeriodSeconds: 0
  ` + indented(tc.pod, "restartPolicy: Always") + `
  containers:
    - name: box
      image: localhost/podium/busybox:v1
      command: [sleep, "3600"]
      volumeMounts: [{name: vol, mountPath: /vol}]
      ` + indented(tc.container, "stdin: false") + `
  volumes: [{name: vol, emptyDir: {}}]`)
			s.ready(name)
			for _, l := range tc.looks {
				got := s.exec(name, l.command+" || true")
				if !regexp.MustCompile("^(" + l.want + ")$").MatchString(got) {
					t.Errorf("%s: %s says %q, want %q", l.reason, l.command, got, l.want)
				}
			}
		})
	}
}

// ownCapabilities returns those of this process, which limit a privileged container.
func ownCapabilities(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^CapBnd:\s*(\w+)$`).FindSubmatch(data)
	if m == nil {
		t.Fatal("no CapBnd in /proc/self/status")
	}
	if _, err := strconv.ParseUint(string(m[1]), 16, 64); err != nil {
		t.Fatal(err)
	}
	return string(m[1])
}

// A node refuses to run a pod with an unsupported or forbidden field, and reports why.
func TestSecurityContextRefused(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	pod := func(name, spec string) {
		s.apply("apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  terminationGracePeriodSeconds: 0\n  " + spec +
			"\n  containers: [{name: box, image: \"localhost/podium/busybox:v1\", command: [sleep, \"3600\"]}]")
	}
	pod("root", "securityContext: {runAsNonRoot: true}")
	pod("node-sysctl", `securityContext: {sysctls: [{name: kernel.msgmax, value: "1"}]}`)
	pod("apparmor", "securityContext: {appArmorProfile: {type: RuntimeDefault}}")

	root := s.pod("root", "cannot be made", waits("CreateContainerConfigError"))
	want := fmt.Sprintf(`container has runAsNonRoot and image will run as root (pod: "root_%s(%s)", container: box)`, s.name, root.UID)
	if got := root.Status.ContainerStatuses[0].State.Waiting.Message; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	refused := func(name, reason, message string) {
		p := s.pod(name, "is refused", ended)
		if p.Status.Phase != corev1.PodFailed || p.Status.Reason != reason || p.Status.Message != message {
			t.Errorf("%s: %s %s %q, want Failed %s %q", name, p.Status.Phase, p.Status.Reason, p.Status.Message, reason, message)
		}
		s.said(name, reason, strings.TrimPrefix(message, "Pod was rejected: "))
	}
	refused("node-sysctl", "SysctlForbidden", `Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted`)
	if enabled, _ := os.ReadFile("/sys/module/apparmor/parameters/enabled"); strings.TrimSpace(string(enabled)) == "Y" {
		s.ready("apparmor")
	} else {
		refused("apparmor", "AppArmor", "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host")
	}
}

// A namespace with the restricted standard accepts no other pods, and a workload's creator gets a
// warning.
func TestPodSecurityStandard(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.podium("label", "namespace", s.name, "pod-security.kubernetes.io/enforce=restricted")
	const manifest = `apiVersion: apps/v1
kind: Deployment
metadata: {name: plain}
spec:
  selector: {matchLabels: {app: plain}}
  template:
    metadata: {labels: {app: plain}}
    spec:
      containers: [{name: box, image: "localhost/podium/busybox:v1", command: [sleep, "3600"]}]
`
	file := filepath.Join(t.TempDir(), "plain.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	s.podium("apply", "-f", file)
	s.said(s.replicaSet("plain"), "FailedCreate", `violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "box" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities`)

	s.apply(`apiVersion: v1
kind: Pod
metadata: {name: safe}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
  containers: [{name: box, image: "localhost/podium/busybox:v1", command: [sleep, "3600"], securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]`)
	s.ready("safe")
}

// replicaSet returns the name of a Deployment's only ReplicaSet.
func (s *space) replicaSet(deployment string) string {
	s.Helper()
	name := ""
	eventually(s.T, 30*time.Second, "a ReplicaSet of "+deployment, func() error {
		list, err := in[*appsv1.ReplicaSet](s).List(s.Context(), metav1.ListOptions{LabelSelector: "app=" + deployment})
		if err == nil && len(list.Items) == 0 {
			err = errNotYet
		}
		if err == nil {
			name = list.Items[0].Name
		}
		return err
	})
	return name
}
