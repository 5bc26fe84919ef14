package ha

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/cluster/poll"
	"podium/test/e2e/docked"
)

const name = "e2e-ha"

const worker = name + "-worker"

// cluster has three control planes and a worker on a cloud, created as in CI.
type cluster struct {
	*testing.T
	*docked.Cluster
	servers []string
	api     *client.Client
}

// newCluster creates the cluster. When it is deleted, the test checks that nothing is left.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may run node containers")
	}
	c := &cluster{T: t, Cluster: docked.New(name, t.TempDir())}
	t.Cleanup(func() {
		ctx := context.Background()
		if t.Failed() {
			c.KeepLogs(ctx)
		}
		if _, err := c.Try(ctx, "", "cluster", "delete", name); err != nil {
			t.Error(err)
		}
		for _, kind := range []string{"container", "volume", "network"} {
			out, err := docked.Docker(ctx, kind, "ls", "--quiet", "--filter", "label=podium.dev/cluster="+name)
			if err != nil || out != "" {
				t.Errorf("left behind: %s %s (%v)", kind, out, err)
			}
		}
	})
	t.Log(c.podium("cluster", "create", name, "--control-planes", "3", "--workers", "1", "--cloud-provider", "docker", "--wait", "2m", "-v"))
	c.api, c.servers = docked.Client(t, c.Kubeconfig)
	if len(c.servers) != 3 {
		t.Fatalf("the kubeconfig names the servers %v: want all three", c.servers)
	}
	return c
}

// podium runs podium on the cluster. The test fails if podium fails.
func (c *cluster) podium(args ...string) string {
	c.Helper()
	return c.Podium(c.T, args...)
}

// only returns the cluster with a kubeconfig that contains a single server.
func (c *cluster) only(server string) *docked.Cluster {
	c.Helper()
	config, err := kubeconfig.Load(c.Kubeconfig)
	if err != nil {
		c.Fatal(err)
	}
	one := config.Cluster("podium-" + name)
	one.Server, one.Extensions = server, nil
	narrow := docked.New(name, c.TempDir())
	if err := config.Write(narrow.Kubeconfig, 0o600); err != nil {
		c.Fatal(err)
	}
	return narrow
}

// eventually calls check until it succeeds or patience ends, and returns how long it took. A
// call that takes longer than two seconds fails.
func (c *cluster) eventually(patience time.Duration, what string, check func(context.Context) error) time.Duration {
	c.Helper()
	return docked.Eventually(c.T, patience, what, func(ctx context.Context) error {
		ctx, stop := context.WithTimeout(ctx, 2*time.Second)
		defer stop()
		return check(ctx)
	})
}

// members returns etcd's leader as a control plane sees it, or an error unless all three
// members are healthy voters.
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
	return poll.NodeReady(n)
}
