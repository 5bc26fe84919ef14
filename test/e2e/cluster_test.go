package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/scheme"
)

// cluster is a local cluster created by `podium cluster create`.
type cluster struct {
	root string // of the repository
	dir  string // of the cluster
}

func (c *cluster) bin(name string) string { return filepath.Join(c.root, "bin", name) }

// create creates the cluster, or repairs it: it restarts daemons that were killed and leaves
// running ones alone. flags are added to the command.
func (c *cluster) create(ctx context.Context, flags ...string) error {
	config, programs, err := writeProviders(filepath.Join(filepath.Dir(c.dir), "providers"))
	if err != nil {
		return err
	}
	return c.command(ctx, "create", append(flags, "--images", filepath.Join(c.root, "_images"), "--node-name", "node-a", "--node-ip", nodeIP,
		"--extra-config", "kubelet.image-credential-provider-config="+config, "--extra-config", "kubelet.image-credential-provider-bin-dir="+programs)...)
}

func (c *cluster) delete(ctx context.Context) error { return c.command(ctx, "delete") }

func (c *cluster) command(ctx context.Context, verb string, flags ...string) error {
	args := append([]string{"cluster", verb, "e2e", "--provider", "local", "--dir", c.dir}, flags...)
	cmd := exec.CommandContext(ctx, c.bin("podium"), args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("podium cluster %s: %w\n%s", verb, err, out.Bytes())
	}
	return nil
}

// keepLogs copies the daemons' logs to a place for CI and developers.
func (c *cluster) keepLogs() {
	target := filepath.Join(os.TempDir(), "podium-e2e-logs")
	os.RemoveAll(target)
	if err := os.CopyFS(target, os.DirFS(filepath.Join(c.dir, "logs"))); err == nil {
		fmt.Fprintln(os.Stderr, "e2e: the daemons' logs are in", target)
	}
}

// podium runs podium and returns its output.
func (c *cluster) podium(t *testing.T, args ...string) string {
	t.Helper()
	return c.run(t, "", c.bin("podium"), args...)
}

// run runs a program on this cluster. The test fails if the program fails.
func (c *cluster) run(t *testing.T, stdin, program string, args ...string) string {
	t.Helper()
	out, err := c.try(t.Context(), stdin, program, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// try runs a program on this cluster for at most two minutes.
func (c *cluster) try(ctx context.Context, stdin, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(c.dir, "kubeconfig"), "HOME="+c.dir)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(program), strings.Join(args, " "), err, out.Bytes(), errs.Bytes())
	}
	return out.String(), nil
}

// importImage gives the runtime the image of a program in bin/peers.
func importImage(t *testing.T, name string) {
	t.Helper()
	out, err := exec.Command("ctr", "--address", the.socket(), "--namespace", "k8s.io", "images", "import", the.bin("peers/"+name+".tar")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// remove deletes objects after a test, whose context has ended.
func remove(t *testing.T, args ...string) {
	t.Helper()
	out, err := the.try(context.Background(), "", the.bin("peers/kubectl"), append([]string{"delete", "--ignore-not-found", "--timeout=100s"}, args...)...)
	if err != nil {
		t.Errorf("delete %v: %v\n%s", args, err, out)
	}
}

// client returns a client with the administrator's credentials.
func (c *cluster) client(t testing.TB) *client.Client {
	t.Helper()
	api, err := c.connect()
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func (c *cluster) connect() (*client.Client, error) {
	config, err := kubeconfig.Load(filepath.Join(c.dir, "kubeconfig"))
	if err != nil {
		return nil, err
	}
	cfg, _, err := config.Client("")
	if err != nil {
		return nil, err
	}
	return client.New(scheme.New(), cfg)
}

var socketLine = regexp.MustCompile(`(?m)^  address = "(.*)"$`)

// socket returns the socket of the cluster's containerd.
func (c *cluster) socket() string {
	text, err := os.ReadFile(filepath.Join(c.dir, "containerd.toml"))
	if err != nil {
		return ""
	}
	return socketLine.FindStringSubmatch(string(text))[1]
}

// runtime returns a client of the cluster's containerd.
func (c *cluster) runtime(t testing.TB) cri.RuntimeServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+c.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return cri.NewRuntimeServiceClient(conn)
}

var pidField = regexp.MustCompile(`"pid":(\d+)`)

// pid returns the process id of a daemon.
func (c *cluster) pid(t testing.TB, daemon string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, "pids", daemon+".json"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(pidField.FindStringSubmatch(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// containerPID returns the process id of a pod's first container.
func (c *cluster) containerPID(t *testing.T, pod *corev1.Pod) int {
	t.Helper()
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	answer, err := c.runtime(t).ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var info struct{ PID int }
	if err := json.Unmarshal([]byte(answer.Info["info"]), &info); err != nil || info.PID == 0 {
		t.Fatalf("containerd says %q, %v, of the container's process", answer.Info["info"], err)
	}
	return info.PID
}
