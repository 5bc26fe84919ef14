package ha

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/scheme"
)

const name = "e2e-ha"

const worker = name + "-worker"

// cluster is one of three control planes and a worker, made as CI does.
type cluster struct {
	*testing.T
	root       string // of the repository
	kubeconfig string // names all servers
	servers    []string
	api        *client.Client
}

// newCluster makes it, and looks, when it is gone, for what it has left.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may run node containers")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{T: t, root: root, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	t.Cleanup(func() {
		if t.Failed() {
			c.keepLogs()
		}
		if _, err := c.try("cluster", "delete", name); err != nil {
			t.Error(err)
		}
		for _, kind := range []string{"container", "volume", "network"} {
			out, err := exec.Command("docker", kind, "ls", "--quiet", "--filter", "label=podium.dev/cluster="+name).CombinedOutput()
			if err != nil || len(bytes.TrimSpace(out)) > 0 {
				t.Errorf("left behind: %s %s (%v)", kind, out, err)
			}
		}
	})
	t.Log(c.podium("cluster", "create", name, "--control-planes", "3", "--workers", "1", "--wait", "2m", "-v"))
	c.api, c.servers = c.client(c.kubeconfig)
	if len(c.servers) != 3 {
		t.Fatalf("the kubeconfig names the servers %v: want all three", c.servers)
	}
	return c
}

// keepLogs collects the nodes' logs where CI and people find them.
func (c *cluster) keepLogs() {
	target := filepath.Join(os.TempDir(), "podium-ha-logs")
	_ = os.RemoveAll(target)
	_, err := c.try("cluster", "logs", target, name)
	c.Logf("the nodes' logs are in %s (%v)", target, err)
}

// try runs podium on the cluster.
func (c *cluster) try(args ...string) (string, error) { return c.by(c.kubeconfig, "", args...) }

// by runs it with a kubeconfig, and gives it something to read.
func (c *cluster) by(kubeconfig, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(c.root, "bin", "podium"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("podium %s: %w\n%s%s", strings.Join(args, " "), err, out.Bytes(), errs.Bytes())
	}
	return out.String(), nil
}

// podium runs it, too; its failure is the test's.
func (c *cluster) podium(args ...string) string {
	c.Helper()
	out, err := c.try(args...)
	if err != nil {
		c.Fatal(err)
	}
	return out
}

func (c *cluster) client(file string) (*client.Client, []string) {
	c.Helper()
	config, err := kubeconfig.Load(file)
	if err != nil {
		c.Fatal(err)
	}
	cfg, _, err := config.Client("")
	if err != nil {
		c.Fatal(err)
	}
	api, err := client.New(scheme.New(), cfg)
	if err != nil {
		c.Fatal(err)
	}
	return api, cfg.Servers
}

// only is a kubeconfig that names one server.
func (c *cluster) only(server string) string {
	c.Helper()
	config, err := kubeconfig.Load(c.kubeconfig)
	if err != nil {
		c.Fatal(err)
	}
	one := config.Cluster("podium-" + name)
	one.Server, one.Extensions = server, nil
	file := filepath.Join(c.TempDir(), "kubeconfig")
	if err := config.Write(file, 0o600); err != nil {
		c.Fatal(err)
	}
	return file
}

// eventually asks until check passes or patience ends, and says how long it took.
func (c *cluster) eventually(patience time.Duration, what string, check func(context.Context) error) time.Duration {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	begin := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		asking, stop := context.WithTimeout(ctx, 2*time.Second)
		err := check(asking)
		stop()
		if err == nil {
			return time.Since(begin)
		}
		select {
		case <-ctx.Done():
			c.Fatalf("not within %v: %s: %v", patience, what, err)
		case <-tick.C:
		}
	}
}

// members is what a control plane says of etcd's: the leader, and whether all
// three are healthy voters.
func (c *cluster) members(ctx context.Context, plane string) (leader string, err error) {
	out, err := exec.CommandContext(ctx, "docker", "exec", plane, "podium", "etcd", "list").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	healthy := 0
	for _, line := range strings.Split(string(out), "\n") {
		words := strings.Fields(line)
		if len(words) != 4 || words[3] != "healthy" {
			continue
		}
		if words[2] == "leader" {
			leader = words[0]
		}
		if words[2] != "learner" {
			healthy++
		}
	}
	if healthy != 3 || leader == "" {
		return leader, errors.New("etcd's members are not three healthy ones:\n" + string(out))
	}
	return leader, nil
}

func (c *cluster) nodeReady(ctx context.Context, node string) error {
	n, err := client.For[*corev1.Node](c.api).Get(ctx, node)
	if err != nil {
		return err
	}
	for _, cond := range n.Status.Conditions {
		if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("%s is not Ready", node)
}
