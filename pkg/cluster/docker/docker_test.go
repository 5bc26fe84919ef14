package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podium/api/config/v1alpha1"
	"podium/pkg/client/kubeconfig"
)

// engine is a fake Engine that answers by the start of the command, and records
// the commands.
type engine struct {
	mu      sync.Mutex
	log     []string
	answers map[string]string
	fails   map[string]string // standard error, by the start of the command
}

func (f *engine) engine() Engine {
	return Engine{Run: func(_ context.Context, stdin io.Reader, stdout io.Writer, args ...string) error {
		line := strings.Join(args, " ")
		f.mu.Lock()
		f.log = append(f.log, line)
		f.mu.Unlock()
		for start, complaint := range f.fails {
			if strings.HasPrefix(line, start) {
				return &CommandError{Args: args, Complaint: complaint, Err: errors.New("exit status 125")}
			}
		}
		if stdin != nil {
			if _, err := io.Copy(stdout, stdin); err != nil {
				return err
			}
		}
		for start, answer := range f.answers {
			if strings.HasPrefix(line, start) {
				_, err := io.WriteString(stdout, answer)
				return err
			}
		}
		return nil
	}}
}

// told returns the recorded commands that start so.
func (f *engine) told(start string) (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, line := range f.log {
		if strings.HasPrefix(line, start) {
			out = append(out, line)
		}
	}
	return out
}

func cluster(t *testing.T, nodes ...v1alpha1.Node) *v1alpha1.Cluster {
	t.Helper()
	c := &v1alpha1.Cluster{Metadata: v1alpha1.Metadata{Name: "ci"}, Nodes: nodes}
	c.Default()
	if err := v1alpha1.AsError(c.Validate()); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestANodeGetsWhatAMachineHas(t *testing.T) {
	folder := t.TempDir()
	o := Options{Image: "node:v1", Cluster: cluster(t, v1alpha1.Node{
		Role:              v1alpha1.ControlPlane,
		ExtraMounts:       []v1alpha1.Mount{{HostPath: folder, ContainerPath: "/data", ReadOnly: true}},
		ExtraPortMappings: []v1alpha1.PortMapping{{HostPort: 8080, ContainerPort: 30080}, {HostPort: 53, ContainerPort: 30053, Protocol: corev1.ProtocolUDP, ListenAddress: "::1"}},
	})}
	nodes, err := o.nodes()
	if err != nil {
		t.Fatal(err)
	}
	nodes[0].ipv4, nodes[0].apiPort = "10.87.0.2", 40000
	args := strings.Join(o.runArgs(nodes[0], true), " ")
	for _, want := range []string{
		"--name ci-control-plane --hostname ci-control-plane",
		"--label podium.dev/cluster=ci --label podium.dev/role=control-plane",
		"--network podium-ci --ip 10.87.0.2",
		"--cap-add ALL", "--cap-drop SYS_RESOURCE",
		"--mount type=volume,dst=/var,volume-label=podium.dev/cluster=ci",
		"--mount type=bind,src=" + folder + ",dst=/data,readonly",
		"--publish 127.0.0.1:40000:6443/tcp",
		"--publish 127.0.0.1:8080:30080/tcp --publish [::1]:53:30053/udp node:v1",
	} {
		if !strings.Contains(args, want) {
			t.Errorf("docker %s\nhas no %s", args, want)
		}
	}
	if able := strings.Join(o.runArgs(nodes[0], false), " "); strings.Contains(able, "--cap-drop") {
		t.Errorf("an engine that may give every capability is asked for all: docker %s", able)
	}
}

func TestNodesAreNamedByRole(t *testing.T) {
	cp, w := v1alpha1.Node{Role: v1alpha1.ControlPlane}, v1alpha1.Node{Role: v1alpha1.Worker, Image: "other:v1"}
	o := Options{Image: "node:v1", Cluster: cluster(t, w, cp, cp, w, cp)}
	nodes, err := o.nodes()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	ports := map[int]bool{}
	for _, n := range nodes {
		got = append(got, n.name+" "+n.image)
		ports[n.apiPort] = true
	}
	want := []string{"ci-control-plane node:v1", "ci-control-plane2 node:v1", "ci-control-plane3 node:v1", "ci-worker other:v1", "ci-worker2 other:v1"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the first is the one that is initialized (-want +got):\n%s", d)
	}
	if len(ports) != 4 { // three ports, none for workers
		t.Errorf("apiservers share ports of the host: %v", ports)
	}
}

func TestNodeArguments(t *testing.T) {
	n := &node{name: "ci-worker", address: "10.87.0.3", Node: v1alpha1.Node{
		Labels:         map[string]string{"zone": "a", "disk": "ssd"},
		Taints:         []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}, {Key: "x", Effect: corev1.TaintEffectNoExecute}},
		KubeReserved:   map[string]resource.Quantity{"memory": resource.MustParse("200Mi"), "cpu": resource.MustParse("100m")},
		SystemReserved: map[string]resource.Quantity{"cpu": resource.MustParse("1")},
	}}
	want := "--node-name ci-worker --node-ip 10.87.0.3 --node-labels disk=ssd,zone=a --node-taints gpu=yes:NoSchedule --node-taints x:NoExecute --kube-reserved cpu=100m,memory=200Mi --system-reserved cpu=1"
	for wait, want := range map[time.Duration]string{0: want, time.Minute: want + " --wait 1m0s"} {
		o := Options{Wait: wait}
		if d := cmp.Diff(want, strings.Join(o.nodeArgs(n), " ")); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}

// TestSecretsAreNotAmongArguments checks that join passes its secrets on
// standard input: every user of the host can read arguments.
func TestSecretsAreNotAmongArguments(t *testing.T) {
	const token, key = "abcdef.0123456789abcdef", "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"
	const join = " | podium join 10.87.0.2:6443 --discovery-token-ca-cert-hash sha256:aa --token-file -"
	f := &engine{answers: map[string]string{
		"exec ci-control-plane podium token":        "echo " + token + join + "\n",
		"exec ci-control-plane podium certs upload": "echo " + token + " " + key + join + " --control-plane --certificate-key-file -\n",
	}}
	e := f.engine()
	run := e.Run
	var mu sync.Mutex
	got := map[string]string{}
	e.Run = func(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) error {
		if stdin == nil {
			return run(ctx, stdin, stdout, args...)
		}
		data, err := io.ReadAll(stdin)
		mu.Lock()
		got[args[2]] = string(data)
		mu.Unlock()
		return errors.Join(err, run(ctx, nil, stdout, args...))
	}
	cp := v1alpha1.Node{Role: v1alpha1.ControlPlane}
	c := &creation{Options: Options{Image: "node:v1", Engine: e, Cluster: cluster(t, cp, cp, cp, v1alpha1.Node{Role: v1alpha1.Worker})}, verbose: io.Discard}
	var err error
	if c.nodes, err = c.Options.nodes(); err != nil {
		t.Fatal(err)
	}
	if err := c.join(t.Context(), func(string) {}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"ci-control-plane2": token + " " + key, "ci-control-plane3": token + " " + key, "ci-worker": token}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("what the joining nodes read (-want +got):\n%s", d)
	}
	joins := 0
	for _, line := range f.log {
		if strings.Contains(line, "podium join 10.87.0.2:6443") {
			joins++
		}
		if strings.Contains(line, token) || strings.Contains(line, key) {
			t.Errorf("docker %s: there is a secret", line)
		}
	}
	if joins != 3 {
		t.Errorf("%d nodes joined, of 3: %q", joins, f.log)
	}
}

func TestNetworkUsesFreeRange(t *testing.T) {
	first, second := candidates("ci")[0].String(), candidates("ci")[1].String()
	f := &engine{fails: map[string]string{
		"network create --driver bridge --subnet " + first: "Error response from daemon: Pool overlaps with other one on this address space",
	}}
	o := Options{Cluster: cluster(t), Engine: f.engine()}
	nodes := []*node{{name: "a"}, {name: "b"}}
	if err := o.createNetwork(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	want := []string{
		networkCreate(first), networkCreate(second),
	}
	if d := cmp.Diff(want, f.told("network")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	base := strings.TrimSuffix(second, "0/24")
	if nodes[0].address != base+"2" || nodes[1].address != base+"3" {
		t.Errorf("addresses %s and %s: want the first two behind the gateway's", nodes[0].address, nodes[1].address)
	}
}

func TestNodesOfAnIPv6ClusterHaveAddressesOfBothFamilies(t *testing.T) {
	c := cluster(t)
	c.Networking = v1alpha1.Networking{IPFamily: v1alpha1.IPv6}
	c.Default()
	f := &engine{}
	o := Options{Cluster: c, Engine: f.engine()}
	nodes := []*node{{name: "a"}, {name: "b"}}
	if err := o.createNetwork(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	first := candidates("ci")[0]
	six := fmt.Sprintf("fd00:10:87:%x::", first.Addr().As4()[2])
	made, _ := strings.CutSuffix(networkCreate(first.String()), " podium-ci")
	made, _, _ = strings.Cut(made, " --label podium.dev/load-balancers")
	want := []string{made + " --label podium.dev/load-balancers=" + six + "e0-" + six + "fe --ipv6 --subnet " + six + "/64 podium-ci"}
	if d := cmp.Diff(want, f.told("network")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	args := strings.Join(o.runArgs(nodes[1], false), " ")
	if nodes[1].address != six+"3" || !strings.Contains(args, "--ip "+nodes[1].ipv4+" ") || !strings.Contains(args, "--ip6 "+six+"3") {
		t.Errorf("%s is at %s and %s: docker %s", nodes[1].name, nodes[1].address, nodes[1].ipv4, args)
	}
}

func networkCreate(subnet string) string {
	base := strings.TrimSuffix(subnet, "0/24")
	return "network create --driver bridge --subnet " + subnet + " --gateway " + base + "1 --ip-range " + base + "0/25" +
		" --label podium.dev/cluster=ci --label podium.dev/load-balancers=" + base + "224-" + base + "254 podium-ci"
}

func TestTheNetworkLeavesPodsAndServicesTheirRanges(t *testing.T) {
	f := &engine{}
	c := cluster(t)
	c.Networking.PodSubnet = "10.87.0.0/16"
	o := Options{Cluster: c, Engine: f.engine()}
	err := o.createNetwork(t.Context(), nil)
	if err == nil || len(f.log) > 0 {
		t.Errorf("all of the pool is the pods': got %v after %q", err, f.log)
	}
}

const psFormat = "ps --all"

func TestCreatePreflightErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		engine *engine
		want   string
	}{
		"NoEngine": {
			&engine{fails: map[string]string{"version": "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"}},
			"engine, image and name checked: docker version --format: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n    → start the engine (systemctl start docker), or set DOCKER_HOST to its address",
		},
		"NoImageAndNameTaken": {
			&engine{answers: map[string]string{psFormat: "ci-control-plane|ci|control-plane|running|node:v1\n"}, fails: map[string]string{"image inspect": "No such image"}},
			"engine, image and name checked: there is a cluster ci already\n    → choose another name, or remove it: podium cluster delete ci\n" +
				"the engine has no node image node:v1\n    → build it (make node-image), or name another with --image",
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config")
			err := Create(t.Context(), Options{Cluster: cluster(t), Image: "node:v1", Kubeconfig: file, Engine: tc.engine.engine()})
			if d := cmp.Diff(tc.want, fmt.Sprint(err)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if made := append(tc.engine.told("network create"), tc.engine.told("run")...); len(made) > 0 {
				t.Errorf("it went on: %q", made)
			}
			if _, err := os.Stat(file); err == nil {
				t.Error("a kubeconfig was written")
			}
		})
	}
}

func TestAFailedCreationIsUndone(t *testing.T) {
	f := &engine{
		answers: map[string]string{"network ls": "n1\n", "volume ls": "v1\nv2\n"},
		fails:   map[string]string{"run": "driver failed programming external connectivity on endpoint ci-control-plane: Bind for 127.0.0.1:6443 failed: port is already allocated"},
	}
	err := Create(t.Context(), Options{Cluster: cluster(t), Kubeconfig: filepath.Join(t.TempDir(), "config"), Engine: f.engine()})
	want := "node containers started: ci-control-plane: docker run --detach: driver failed programming external connectivity on endpoint ci-control-plane: Bind for 127.0.0.1:6443 failed: port is already allocated\n" +
		"    → a port of the host is in use: choose another in apiServerPort or extraPortMappings, or stop the process that listens there (ss -ltnp shows it)\n" +
		"    what was made is removed; --retain keeps it, to look into"
	if d := cmp.Diff(want, fmt.Sprint(err)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"network rm n1", "volume rm --force v1 v2"}, append(f.told("network rm"), f.told("volume rm")...)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestDeleteTakesTheWholeCluster(t *testing.T) {
	f := &engine{answers: map[string]string{
		psFormat:     "ci-worker|ci|worker|paused|node:v1\nci-control-plane|ci|control-plane|running|node:v1\n",
		"network ls": "n1\n",
	}}
	file := filepath.Join(t.TempDir(), "config")
	if err := remember(file, kubeconfig.New("podium-ci", kubeconfig.Cluster{Server: "https://127.0.0.1:1"}, kubeconfig.User{})); err != nil {
		t.Fatal(err)
	}
	if err := Delete(t.Context(), f.engine(), "ci", file, io.Discard); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"unpause ci-worker", "rm --force --volumes ci-control-plane ci-worker"}, append(f.told("unpause"), f.told("rm")...)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if c, err := kubeconfig.Load(file); err != nil || len(c.Contexts) > 0 || c.CurrentContext != "" {
		t.Errorf("the kubeconfig still knows it: %+v, %v", c, err)
	}
}

func TestKubeconfigsOfOthersStayAsTheyAre(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	const theirs = `apiVersion: v1
clusters:
- cluster:
    certificate-authority: ca.crt
    server: https://example.test
  name: work
contexts:
- context:
    cluster: work
    user: me
  name: work
current-context: work
kind: Config
users:
- name: me
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      args: null
      command: login
      env: null
      provideClusterInfo: false
` // as kubectl writes it
	if err := os.WriteFile(file, []byte(theirs), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second creation with the same name replaces the first
		if err := remember(file, kubeconfig.New("podium-ci", kubeconfig.Cluster{Server: "https://127.0.0.1:1"}, kubeconfig.User{Token: "x"})); err != nil {
			t.Fatal(err)
		}
	}
	c, err := kubeconfig.Load(file)
	if err != nil || c.CurrentContext != "podium-ci" || len(c.Clusters) != 2 {
		t.Fatalf("after create: %+v, %v", c, err)
	}
	if err := forget(file, "ci"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Replace(theirs, "current-context: work", `current-context: ""`, 1), string(got)); d != "" {
		t.Errorf("after delete (-want +got):\n%s", d)
	}
}

func TestHostKubeconfigHasAllControlPlanes(t *testing.T) {
	const admin = `{"clusters":[{"name":"ci","cluster":{"server":"https://10.87.0.2:6443"}}],"users":[{"name":"ci","user":{"token":"t"}}]}`
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: "admin.conf", Size: int64(len(admin)), Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, admin); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f := &engine{answers: map[string]string{
		psFormat: "ci-control-plane|ci|control-plane|running|i\nci-control-plane2|ci|control-plane|exited|i\nci-worker|ci|worker|running|i\n",
		"cp ci-control-plane:/etc/podium/admin.conf -": archive.String(),
	}}
	e := f.engine()
	run := e.Run
	e.Run = func(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) error {
		if args[0] == "inspect" {
			answer := map[string]string{"ci-control-plane": "127.0.0.1 4001", "ci-control-plane2": "0.0.0.0 4002"}[args[len(args)-1]]
			_, err := io.WriteString(stdout, answer)
			return err
		}
		return run(ctx, stdin, stdout, args...)
	}
	config, err := e.Kubeconfig(t.Context(), "ci")
	if err != nil {
		t.Fatal(err)
	}
	client, _, err := config.Client("")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"https://127.0.0.1:4001", "https://127.0.0.1:4002"}, client.Servers); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestLoadReadsOnceAndGivesToAll(t *testing.T) {
	f := &engine{answers: map[string]string{
		psFormat: "ci-control-plane|ci|control-plane|running|i\nci-worker|ci|worker|running|i\nci-worker2|ci|worker|exited|i\n",
		"save":   strings.Repeat("layer", 100_000),
	}}
	e := f.engine()
	run := e.Run
	var mu sync.Mutex
	got := map[string]int{}
	e.Run = func(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) error {
		if stdin == nil {
			return run(ctx, stdin, stdout, args...)
		}
		n, err := io.Copy(io.Discard, stdin)
		mu.Lock()
		defer mu.Unlock()
		got[args[2]] = int(n)
		return err
	}
	if err := e.Load(t.Context(), "ci", []string{"app:v1", "db:v1"}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]int{"ci-control-plane": 500_000, "ci-worker": 500_000}, got); d != "" {
		t.Errorf("every node that runs gets all of it (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"save app:v1 db:v1"}, f.told("save")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestFailedImageLoadDoesNotBlockOtherNodes(t *testing.T) {
	f := &engine{
		answers: map[string]string{psFormat: "ci-control-plane|ci|control-plane|running|i\n", "save": strings.Repeat("layer", 100_000)},
		fails:   map[string]string{"exec --interactive ci-control-plane": "ctr: unrecognized image format"},
	}
	e := f.engine()
	err := e.Load(t.Context(), "ci", []string{"app:v1"})
	if want := "import on ci-control-plane: docker exec --interactive: ctr: unrecognized image format"; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestFailuresAreOnlyMadeOnNodes(t *testing.T) {
	ps := map[string]string{psFormat: "ci-control-plane|ci|control-plane|running|i\nci-worker|ci|worker|exited|i\nci-worker2|ci|worker|paused|i\n"}
	for name, tc := range map[string]struct {
		do   func(context.Context, *Engine) error
		told []string
		want string
	}{
		"StopGently":       {func(ctx context.Context, e *Engine) error { return e.Stop(ctx, "ci-control-plane", false) }, []string{"stop --time 30 ci-control-plane"}, ""},
		"StopAtOnce":       {func(ctx context.Context, e *Engine) error { return e.Stop(ctx, "ci-control-plane", true) }, []string{"kill ci-control-plane"}, ""},
		"StopStopped":      {func(ctx context.Context, e *Engine) error { return e.Stop(ctx, "ci-worker", false) }, nil, ""},
		"StartStopped":     {func(ctx context.Context, e *Engine) error { return e.Start(ctx, "ci-worker") }, []string{"start ci-worker"}, ""},
		"StartPaused":      {func(ctx context.Context, e *Engine) error { return e.Start(ctx, "ci-worker2") }, []string{"unpause ci-worker2"}, ""},
		"PausePaused":      {func(ctx context.Context, e *Engine) error { return e.Pause(ctx, "ci-worker2") }, nil, ""},
		"PartitionStopped": {func(ctx context.Context, e *Engine) error { return e.Partition(ctx, "ci-worker") }, nil, "node ci-worker is exited: start it first (podium cluster node start ci-worker)"},
		"NotOurs":          {func(ctx context.Context, e *Engine) error { return e.Stop(ctx, "database", true) }, nil, "there is no node database; there are ci-control-plane, ci-worker, ci-worker2"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &engine{answers: ps}
			e := f.engine()
			err := tc.do(t.Context(), &e)
			if got := fmt.Sprint(err); err != nil && got != tc.want || err == nil && tc.want != "" {
				t.Errorf("got error %v, want %q", err, tc.want)
			}
			var told []string
			for _, line := range f.log {
				if !strings.HasPrefix(line, psFormat) {
					told = append(told, line)
				}
			}
			if d := cmp.Diff(tc.told, told); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestOnlyStepsOfANodeAreShown(t *testing.T) {
	var shown bytes.Buffer
	var told []string
	w := &steps{to: newIndent(&shown), tell: func(s string) { told = append(told, s) }}
	for _, part := range []string{" ✓ preflight checks                     0.48s\n … imag", "es loaded   2.00s  waits\n\n  echo abcdef.0123456789abcdef | podium join 10.87.0.2:6443 --token-file -\n", "   the control plane is up              5.67s\n"} {
		if n, err := io.WriteString(w, part); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	want := "        ✓ preflight checks                     0.48s\n        … images loaded   2.00s  waits\n          the control plane is up              5.67s\n"
	if d := cmp.Diff(want, shown.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"✓ preflight checks                     0.48s", "… images loaded   2.00s  waits", "the control plane is up              5.67s"}, told); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestAnArchiveStaysInItsFolder(t *testing.T) {
	pack := func(names ...string) *bytes.Buffer {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, n := range names {
			if err := w.WriteHeader(&tar.Header{Name: n, Typeflag: tar.TypeReg, Size: 1}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return &b
	}
	dir := t.TempDir()
	if err := unpack(pack("pods/a/0.log"), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "pods/a/0.log")); err != nil {
		t.Error(err)
	}
	if err := unpack(pack("../outside"), dir); err == nil {
		t.Error("a file outside of the folder was written")
	}
}
