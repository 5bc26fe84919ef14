package multinode

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
	"podium/test/e2e/docked"
	"podium/test/freeport"
)

// An image of the engine, and one in an archive, run on every node without a registry.
func TestLoadImage(t *testing.T) {
	s := the.space(t)
	const image = "localhost/podium-e2e/loaded:v1"
	box, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "busybox"), box, 0o755); err != nil {
		t.Fatal(err)
	}
	tar := exec.Command("sh", "-c", "tar -c -C "+dir+" busybox | docker import - "+image)
	if out, err := tar.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		if _, err := docked.Docker(context.Background(), "image", "rm", image); err != nil {
			t.Error(err)
		}
	})
	archive := filepath.Join(dir, "archive.tar")
	if _, err := docked.Docker(t.Context(), "save", "--output", archive, image); err != nil {
		t.Fatal(err)
	}
	s.Podium(t, "cluster", "load", "image", image, "--name", s.Cluster.Name)
	s.Podium(t, "cluster", "load", "image", archive, "--name", s.Cluster.Name)
	for _, node := range []string{plane, worker1, worker2} {
		name := strings.TrimPrefix(node, mainCluster+"-")
		s.Apply(pinned(name, node, image, "/busybox", "sleep", "1000"))
		s.Ready(name)
	}
}

func TestLogsAreCollected(t *testing.T) {
	s := the.space(t)
	s.Apply(pinned("talker", worker1, "localhost/podium/busybox:v1", "sh", "-c", "echo what it said; sleep 1000"))
	s.Ready("talker")
	dir := filepath.Join(t.TempDir(), "artifact")
	s.Podium(t, "cluster", "logs", dir, mainCluster)
	for file, want := range map[string]string{
		plane + "/journal.log":      "kube-apiserver[",
		worker1 + "/journal.log":    "kubelet[",
		worker2 + "/iptables.txt":   "KUBE-SERVICES",
		worker2 + "/units.txt":      "kubelet.service",
		worker1 + "/containers.txt": "localhost/podium/pause:v1",
		worker1 + "/inspect.json":   "podium.dev/cluster",
		"cluster/nodes.yaml":        "name: " + worker2,
		"cluster/pods.txt":          "talker",
		"cluster/events.txt":        "Scheduled",
		"engine.txt":                "Server Version",
	} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, and nothing of %q in %d bytes", file, err, want, len(text))
		}
	}
	logs, err := filepath.Glob(filepath.Join(dir, worker1, "pods", s.Namespace+"_talker_*", "c", "0.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("the pod's log: %v, %v", logs, err)
	}
	if text, err := os.ReadFile(logs[0]); err != nil || !strings.Contains(string(text), "what it said") {
		t.Errorf("the pod's log has %q, %v", text, err)
	}
	// No credentials are in it.
	key := adminKey(t)
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), key) || strings.Contains(string(text), "PRIVATE KEY") {
			t.Errorf("%s holds a secret", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// adminKey returns a part of the administrator's key as encoded in kubeconfigs.
func adminKey(t *testing.T) string {
	t.Helper()
	for _, line := range strings.Split(the.Podium(t, "cluster", "kubeconfig", mainCluster), "\n") {
		if key, ok := strings.CutPrefix(strings.TrimSpace(line), "client-key-data: "); ok {
			return key[60:]
		}
	}
	t.Fatal("the kubeconfig has no key")
	return ""
}

// A second cluster from a file, beside the first: it has everything in the file, and nothing is
// left of it.
func TestAConfiguredClusterBesideTheFirst(t *testing.T) {
	dir := t.TempDir()
	shared := filepath.Join(dir, "shared")
	if err := os.Mkdir(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(shared, "greeting"), []byte("hello from the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	port := freeport.TCP(t)
	api := freeport.TCP(t)
	config := fmt.Sprintf(`
apiVersion: config.podium.dev/v1alpha1
kind: Cluster
metadata: {name: e2e-configured}
nodes:
- role: control-plane
  labels: {disk: ssd}
  taints: [{key: prefer, value: "not", effect: PreferNoSchedule}]
  kubeReserved: {cpu: 100m, memory: 128Mi}
  systemReserved: {memory: 64Mi}
  extraMounts: [{hostPath: %q, containerPath: /shared, readOnly: true}]
  extraPortMappings: [{hostPort: %d, containerPort: 30080}]
networking: {podSubnet: 10.20.0.0/16, serviceSubnet: 10.30.0.0/20, apiServerPort: %d, dnsDomain: corp.example}
`, shared, port, api)
	c := cluster{docked.New("e2e-configured", dir)}
	t.Cleanup(func() { // after its deletion
		if kept, err := os.ReadFile(c.Kubeconfig); err != nil || strings.Contains(string(kept), c.Name) {
			t.Errorf("the kubeconfig still names it, %v:\n%s", err, kept)
		}
	})
	c.create(t, config)

	list := c.Podium(t, "cluster", "list")
	for _, want := range []string{mainCluster, "e2e-configured"} {
		if !strings.Contains(list, want) {
			t.Errorf("cluster list does not show %s:\n%s", want, list)
		}
	}
	if _, err := c.Try(t.Context(), "", "cluster", "create", c.Name); err == nil || !strings.Contains(err.Error(), "there is a cluster e2e-configured already") {
		t.Errorf("a second of the name: %v", err)
	}
	s := c.space(t)
	if out := c.Podium(t, "cluster", "kubeconfig", c.Name); !strings.Contains(out, fmt.Sprintf("https://127.0.0.1:%d", api)) {
		t.Errorf("the apiserver is not on port %d of the host", api)
	}
	c.checkNode(t)

	s.Apply(web + "\n---\n" + `
apiVersion: v1
kind: Service
metadata: {name: fixed}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: http, nodePort: 30080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: shared, hostPath: {path: /shared, type: Directory}}]
  containers: [{name: c, image: "localhost/podium/busybox:v1", imagePullPolicy: Never, command: [sh, -c, "cat /shared/greeting; sleep 1000"], volumeMounts: [{name: shared, mountPath: /shared}]}]
`)
	s.Apply(pinned("asker", c.Name+"-control-plane", "localhost/podium/web:v1", "/web"))
	s.Ready("asker")
	s.RolledOut("web", time.Minute)
	docked.Eventually(t, 10*time.Second, "the app answers on a port of the host", func(ctx context.Context) error {
		_, err := get(ctx, "127.0.0.1", port)
		return err
	})
	reader := s.Ready("reader")
	if !strings.HasPrefix(reader.Status.PodIP, "10.20.") {
		t.Errorf("the pod's address %s is not of the range that was asked for", reader.Status.PodIP)
	}
	docked.Eventually(t, 10*time.Second, "the pod has read the mounted folder", func(ctx context.Context) error {
		out, err := s.Try(ctx, "", "logs", "-n", s.Namespace, "reader")
		if err == nil && !strings.Contains(out, "hello from the host") {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	docked.Eventually(t, 10*time.Second, "names are served below the domain that was asked for", func(context.Context) error {
		_, err := s.Exec("asker", "/web", "get", "http://web."+s.Namespace+".svc.corp.example/")
		return err
	})
}

// create creates a cluster from a file for one test, and checks that nothing is left of it.
func (c cluster) create(t *testing.T, config string) {
	t.Helper()
	t.Log(c.Feed(t, config, "cluster", "create", "--config", "-", "--wait", "3m", "-v"))
	traces, err := c.traces(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.KeepLogs(context.Background())
		}
		if _, err := c.Try(context.Background(), "", "cluster", "delete", c.Name); err != nil {
			t.Error(err)
		}
		if err := traces.left(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// checkNode compares the node with its section in the file.
func (c cluster) checkNode(t *testing.T) {
	t.Helper()
	n, err := client.For[*corev1.Node](c.Client(t)).Get(t.Context(), c.Name+"-control-plane")
	if err != nil {
		t.Fatal(err)
	}
	if n.Labels["disk"] != "ssd" {
		t.Errorf("labels %v: want disk=ssd", n.Labels)
	}
	if len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "prefer" || n.Spec.Taints[0].Effect != corev1.TaintEffectPreferNoSchedule {
		t.Errorf("taints %v: want only the one of the file: no worker would run the pods", n.Spec.Taints)
	}
	cpu := n.Status.Capacity.Cpu().MilliValue() - n.Status.Allocatable.Cpu().MilliValue()
	memory := n.Status.Capacity.Memory().Value() - n.Status.Allocatable.Memory().Value()
	if cpu != 100 || memory < 192<<20 || memory > 320<<20 { // the kubelet reserves some for evictions
		t.Errorf("reserved: %dm CPU and %d MiB: want 100m and 192 MiB at least", cpu, memory>>20)
	}
}

// Errors are reported before or during the creation of a cluster, and nothing is left.
func TestWhatCannotBeMadeIsNotHalfMade(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	head := "apiVersion: config.podium.dev/v1alpha1\nkind: Cluster\nmetadata: {name: e2e-wrong}\n"
	for name, tc := range map[string]struct {
		config string
		want   []string
	}{
		"PortInUse": {head + fmt.Sprintf("nodes: [{role: control-plane, extraPortMappings: [{hostPort: %d, containerPort: 30080}]}]", port), []string{"a port of the host is in use"}},
		"NoImage":   {head + "nodes: [{role: control-plane, image: 'localhost/none:v1'}]", []string{"no node image localhost/none:v1"}},
		"NoFolder":  {head + "nodes: [{role: control-plane, extraMounts: [{hostPath: /no/such, containerPath: /x}]}]", []string{"stat /no/such: no such file or directory"}},
		"Mistakes":  {head + "nodes: [{role: worker, labels: {'a b': c}}]\nnetworking: {podSubnet: ten}", []string{"nodes[0].labels: Invalid value", "networking.podSubnet: Invalid value", "nodes: "}},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster{docked.New("e2e-wrong", t.TempDir())}
			_, err := c.Try(t.Context(), tc.config, "cluster", "create", "--config", "-")
			if err == nil {
				t.Fatal("it was made")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
			if err := (traces{label: "label=podium.dev/cluster=" + c.Name}).left(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(c.Kubeconfig); err == nil {
				t.Error("a kubeconfig was written")
			}
		})
	}
}
