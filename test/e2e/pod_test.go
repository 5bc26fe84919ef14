package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A startup probe gates the others; a failing liveness probe restarts the container.
func TestProbes(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: slow}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: box
      image: localhost/podium/busybox:v1
      command: [sh, -c, "sleep 3; touch /tmp/up; sleep 3600"]
      startupProbe: {exec: {command: [test, -e, /tmp/up]}, periodSeconds: 1, failureThreshold: 30}
      livenessProbe: {exec: {command: [test, -e, /tmp/up]}, periodSeconds: 1, failureThreshold: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: never}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: box
      image: localhost/podium/busybox:v1
      command: [sleep, "3600"]
      startupProbe: {tcpSocket: {port: 9}, periodSeconds: 1, failureThreshold: 2}
---
apiVersion: v1
kind: Pod
metadata: {name: sick}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: web
      image: localhost/podium/web:v1
      startupProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, failureThreshold: 60}
      livenessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, failureThreshold: 2}
      readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
`)
	started := func(p *corev1.Pod) bool {
		all := p.Status.ContainerStatuses
		return len(all) > 0 && all[0].State.Running != nil && all[0].Started != nil && *all[0].Started
	}
	sick := s.ready("sick")
	if _, err := fromNode(t, false).do("POST", "http://"+sick.Status.PodIP+":8080/fail"); err != nil {
		t.Fatal(err)
	}
	s.pod("sick", "is started again", restarted(1))
	s.said("sick", "Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 503")
	s.said("sick", "Killing", "Container web failed liveness probe, will be restarted")

	slow := s.pod("slow", "has started", started)
	status := slow.Status.ContainerStatuses[0]
	if status.RestartCount != 0 {
		t.Errorf("the liveness probe did not wait for the startup probe: %s", describe(slow))
	}
	s.ready("slow")
	s.pod("never", "is started again", restarted(1))
	s.said("never", "Killing", "Container box failed startup probe, will be restarted")
}

// Init containers run one after another, each to completion, before the others.
func TestInitContainers(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: steps}
spec:
  restartPolicy: Never
  initContainers:
    - {name: one, image: "localhost/podium/busybox:v1", command: [sh, -c, "sleep 1; echo one >> /work/order"], volumeMounts: &mounts [{name: work, mountPath: /work}]}
    - {name: two, image: "localhost/podium/busybox:v1", command: [sh, -c, "echo two >> /work/order"], volumeMounts: *mounts}
  containers:
    - {name: app, image: "localhost/podium/busybox:v1", command: [sh, -c, "echo app >> /work/order; cat /work/order; cp /work/order /dev/termination-log"], volumeMounts: *mounts}
  volumes: [{name: work, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: stuck}
spec:
  restartPolicy: Never
  initContainers:
    - {name: one, image: "localhost/podium/busybox:v1", command: [sh, -c, "exit 4"]}
  containers:
    - {name: app, image: "localhost/podium/busybox:v1", command: [sh, -c, "echo never"]}
`)
	steps := s.pod("steps", "ends", ended)
	if got := s.podium("logs", "steps"); got != "one\ntwo\napp\n" {
		t.Errorf("the order was %q", got)
	}
	if got := steps.Status.ContainerStatuses[0].State.Terminated.Message; got != "one\ntwo\napp\n" {
		t.Errorf("the termination message is %q", got)
	}
	stuck := s.pod("stuck", "ends", ended)
	if stuck.Status.Phase != corev1.PodFailed || stuck.Status.ContainerStatuses[0].State.Waiting == nil {
		t.Errorf("with a failed init container the pod is %s, %s", stuck.Status.Phase, describe(stuck))
	}
}

// A deleted pod runs its preStop hook, then gets SIGTERM, and is killed after its grace period.
func TestGracefulTermination(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	diary := t.TempDir()
	pod := func(name, grace, onTerm string) {
		s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: ` + name + `}
spec:
  terminationGracePeriodSeconds: ` + grace + `
  containers:
    - name: box
      image: localhost/podium/busybox:v1
      command: [sh, -c, "trap '` + onTerm + `' TERM; while true; do sleep 0.1; done"]
      lifecycle: {preStop: {exec: {command: [sh, -c, "echo ` + name + ` preStop >> /diary/` + name + `; sleep 0.3"]}}}
      volumeMounts: [{name: diary, mountPath: /diary}]
  volumes: [{name: diary, hostPath: {path: ` + diary + `, type: Directory}}]
`)
	}
	pod("polite", "60", "echo polite TERM >> /diary/polite; exit 0")
	pod("deaf", "10", "echo deaf TERM >> /diary/deaf") // on a busy machine the hook takes seconds to start
	for _, row := range []struct {
		name     string
		min, max time.Duration // min is the time of its hook, or its grace period; max is a longer grace period
	}{
		{"polite", 300 * time.Millisecond, 60 * time.Second},
		{"deaf", 9500 * time.Millisecond, 30 * time.Second}, // 30 s is the default grace period
	} {
		alive := s.ready(row.name)
		begin := time.Now()
		if err := in[*corev1.Pod](s).Delete(t.Context(), row.name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.goes(alive)
		if took := time.Since(begin); took < row.min || took > row.max {
			t.Errorf("%s was gone after %v, want between %v and %v", row.name, took, row.min, row.max)
		}
		got, err := os.ReadFile(filepath.Join(diary, row.name))
		if want := row.name + " preStop\n" + row.name + " TERM\n"; err != nil || string(got) != want {
			t.Errorf("the diary of %s is %q, %v; want %q", row.name, got, err, want)
		}
	}
}

const everyKindOfVolume = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: blue, shape: round}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {door: sesame}
---
apiVersion: v1
kind: Pod
metadata: {name: all, labels: {app: all}, annotations: {note: hello}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: box
      image: localhost/podium/busybox:v1
      command: [sleep, "3600"]
      resources: {limits: {cpu: 200m, memory: 64Mi}}
      envFrom: [{prefix: SET_, configMapRef: {name: settings}}]
      env:
        - {name: PLAIN, value: plain}
        - {name: COMPOSED, value: "$(PLAIN) and $$(escaped)"}
        - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
        - {name: LIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory}}}
        - {name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}
        - {name: DOOR, valueFrom: {secretKeyRef: {name: keys, key: door}}}
        - {name: NONE, valueFrom: {secretKeyRef: {name: keys, key: none, optional: true}}}
      volumeMounts:
        - {name: scratch, mountPath: /scratch}
        - {name: memory, mountPath: /memory}
        - {name: host, mountPath: /host, readOnly: true}
        - {name: settings, mountPath: /settings}
        - {name: settings, mountPath: /one/shape, subPath: shape}
        - {name: keys, mountPath: /keys}
        - {name: down, mountPath: /down}
        - {name: mixed, mountPath: /mixed}
  volumes:
    - {name: scratch, emptyDir: {}}
    - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
    - {name: host, hostPath: {path: /etc, type: Directory}}
    - {name: settings, configMap: {name: settings}}
    - {name: keys, secret: {secretName: keys, defaultMode: 0400}}
    - {name: down, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
    - name: mixed
      projected:
        sources:
          - {configMap: {name: settings, items: [{key: shape, path: deep/shape}]}}
          - {secret: {name: keys}}
          - {serviceAccountToken: {path: token, audience: elsewhere}}
`

func TestEnvironmentAndVolumes(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(everyKindOfVolume)
	pod := s.ready("all")
	for _, row := range []struct{ command, want string }{
		{"echo $PLAIN, $COMPOSED", "plain, plain and $(escaped)"},
		{"echo $POD, $NODE, $IP", "all, node-a, " + pod.Status.PodIP},
		{"echo $LIMIT, $COLOUR, $DOOR, $NONE.", "67108864, blue, sesame, ."},
		{"echo $SET_colour $SET_shape", "blue round"},
		{"echo $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT", "10.96.0.1 443"},
		{"echo x > /scratch/x && cat /scratch/x", "x"},
		{"grep ' /memory ' /proc/mounts | cut -d' ' -f3", "tmpfs"},
		{"grep -c root: /host/passwd; touch /host/x 2>&1 | grep -o Read-only", "1\nRead-only"},
		{"cat /settings/colour /one/shape", "blueround"},
		{"cat /keys/door; stat -L -c ' %a' /keys/door", "sesame 400"},
		{"cat /down/labels", `app="all"`},
		{"cat /mixed/deep/shape /mixed/door; cut -d. -f2 /mixed/token | base64 -d 2>/dev/null | grep -o elsewhere", "roundsesameelsewhere"},
		{"cat /etc/hostname; grep -c $IP /etc/hosts", "all\n1"},
	} {
		if got := s.exec("all", row.command); got != row.want {
			t.Errorf("%s printed %q, want %q", row.command, got, row.want)
		}
	}

	maps := in[*corev1.ConfigMap](s)
	if _, err := maps.Patch(t.Context(), "settings", "application/merge-patch+json", []byte(`{"data":{"colour":"red","size":"big"}}`)); err != nil {
		t.Fatal(err)
	}
	shows := func(command, want string) {
		t.Helper()
		begin := time.Now()
		// Without a change that the kubelet watches, volumes are refreshed once a minute.
		eventually(t, 20*time.Second, command+" follows", func() error {
			if s.exec("all", command+" 2>/dev/null || true") != want {
				return errNotYet
			}
			return nil
		})
		t.Logf("%s followed after %v", command, time.Since(begin).Round(time.Millisecond))
	}
	shows("cat /settings/colour /settings/size", "redbig")
	s.podium("annotate", "pod", "all", "note=changed", "--overwrite")
	s.podium("label", "pod", "all", "tier=front")
	shows("cat /down/labels", "app=\"all\"\ntier=\"front\"")
	if got := s.exec("all", "cat /one/shape"); got != "round" {
		t.Errorf("the subPath file holds %q; it must stay as it was", got)
	}
}

// Limits are enforced by the kernel: they are in the container's cgroup, and a container that
// exceeds its memory limit is killed and reports it.
func TestResourceLimits(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: limited}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - {name: box, image: "localhost/podium/busybox:v1", command: [sleep, "3600"], resources: {limits: {cpu: 200m, memory: 32Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: glutton}
spec:
  restartPolicy: Never
  containers:
    - {name: box, image: "localhost/podium/busybox:v1", command: [tail, /dev/zero], resources: {limits: {memory: 16Mi}}}
`)
	limited := s.ready("limited")
	if limited.Status.QOSClass != corev1.PodQOSGuaranteed {
		t.Errorf("its QoS class is %s", limited.Status.QOSClass)
	}
	pid := the.containerPID(t, limited)
	got := map[string]string{"memory": cgroupValue(t, pid, "memory", "memory.limit_in_bytes", "memory.max"), "cpu": cgroupValue(t, pid, "cpu", "cpu.cfs_quota_us", "cpu.max")}
	if diff := cmp.Diff(map[string]string{"memory": "33554432", "cpu": "20000"}, got); diff != "" {
		t.Errorf("the container's cgroup (-want +got):\n%s", diff)
	}
	// The runtime may report the exit before its reason.
	s.pod("glutton", "is told to have been killed for its memory", func(pod *corev1.Pod) bool {
		if !ended(pod) {
			return false
		}
		end := pod.Status.ContainerStatuses[0].State.Terminated
		return end != nil && end.Reason == "OOMKilled" && end.ExitCode == 137
	})
}

func TestSecurityContext(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: nobody}
spec:
  restartPolicy: Never
  securityContext: {runAsUser: 1234, runAsGroup: 2345, fsGroup: 3456, runAsNonRoot: true}
  containers:
    - name: box
      image: localhost/podium/busybox:v1
      command: [sh, -c, "exec 2>&1; id; touch /x; touch /work/mine; stat -c %g /work/mine; grep -E 'NoNewPrivs|CapEff' /proc/self/status"]
      securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      volumeMounts: [{name: work, mountPath: /work}]
  volumes: [{name: work, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: root}
spec:
  securityContext: {runAsNonRoot: true}
  containers: [{name: box, image: "localhost/podium/busybox:v1", command: [id]}]
`)
	s.pod("nobody", "ends", ended)
	want := "uid=1234 gid=2345 groups=2345,3456\ntouch: /x: Read-only file system\n3456\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n"
	if diff := cmp.Diff(want, s.podium("logs", "nobody")); diff != "" {
		t.Errorf("it printed (-want +got):\n%s", diff)
	}
	s.pod("root", "is refused", waits("CreateContainerConfigError"))
	s.said("root", "Failed", "container has runAsNonRoot and image will run as root")
}

// A pod's token authenticates to the API server at its Service address, and gives no access to
// other objects.
func TestServiceAccountToken(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(box("caller", "sleep 3600"))
	caller := s.ready("caller")
	const dir = "/var/run/secrets/kubernetes.io/serviceaccount"
	token := s.exec("caller", "cat "+dir+"/token")
	if got := s.exec("caller", "cat "+dir+"/namespace"); got != s.name {
		t.Errorf("the namespace file holds %q", got)
	}
	from := fromPod(t, caller, false).trusting(t, s.exec("caller", "cat "+dir+"/ca.crt"))

	for _, row := range []struct {
		path, token string
		code        int
		text        string
	}{
		{"/version", token, 200, "gitVersion"},
		{"/apis", token, 200, "APIGroupList"},
		{"/api/v1/namespaces/kube-system/secrets", token, 403, `secrets is forbidden: User \"system:serviceaccount:` + s.name + `:default\" cannot list resource \"secrets\" in API group \"\" in the namespace \"kube-system\"`},
		{"/api/v1/namespaces/" + s.name + "/pods", token + "x", 401, "Unauthorized"},
		{"/api/v1/namespaces/" + s.name + "/pods", "", 401, "Unauthorized"},
	} {
		code, body := from.ask(t, "https://10.96.0.1"+row.path, row.token)
		if code != row.code || !strings.Contains(body, row.text) {
			t.Errorf("%s gave %d %s, want %d with %q", row.path, code, body, row.code, row.text)
		}
	}
}

// The deletion of a namespace deletes everything in it, including pods that end slowly.
func TestNamespaceDeletion(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	name := s.name + "-inner"
	if out := the.podium(t, "create", "namespace", name); !strings.Contains(out, "created") {
		t.Error(out)
	}
	inner := &space{T: t, api: s.api, name: name}
	inner.apply(webOf(2) + "\n---\n" + box("slow", "sleep 3600") + "\n---\n" + `
apiVersion: v1
kind: ConfigMap
metadata: {name: held, finalizers: [podium.dev/test]}
`)
	inner.rolledOut("web")
	inner.ready("slow")
	the.podium(t, "delete", "namespace", name, "--wait=false")
	eventually(t, 30*time.Second, "all but what is held goes", func() error {
		if n := len(inner.pods("")); n > 0 {
			return errNotYet
		}
		return nil
	})
	if _, err := in[*corev1.ConfigMap](inner).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}); !apierrors.IsForbidden(err) {
		t.Errorf("creating in a namespace that goes: %v", err)
	}
	if _, err := in[*corev1.ConfigMap](inner).Patch(t.Context(), "held", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)); err != nil {
		t.Fatal(err)
	}
	the.podium(t, "wait", "--for=delete", "namespace/"+name, "--timeout=60s")
}

// cgroupValue returns the first word of a limit of a process from its cgroup: from the file v1
// or v2, depending on the cgroup version.
func cgroupValue(t *testing.T, pid int, controller, v1, v2 string) string {
	t.Helper()
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(groups), "\n") {
		fields := strings.SplitN(line, ":", 3)
		if len(fields) < 3 {
			continue
		}
		file := "/sys/fs/cgroup" + fields[2] + "/" + v2
		if slices.Contains(strings.Split(fields[1], ","), controller) {
			file = "/sys/fs/cgroup/" + controller + fields[2] + "/" + v1
		}
		if text, err := os.ReadFile(file); err == nil {
			return strings.Fields(string(text))[0]
		}
	}
	t.Fatalf("no %s or %s for\n%s", v1, v2, groups)
	return ""
}
