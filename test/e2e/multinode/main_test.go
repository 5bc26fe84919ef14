package multinode

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

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/scheme"
	"podium/test/e2e/arguments"
)

// mainCluster is the one that most tests share: a control plane and two workers.
const mainCluster = "e2e-multinode"

// The shared cluster's nodes.
const (
	plane   = mainCluster + "-control-plane"
	worker1 = mainCluster + "-worker"
	worker2 = mainCluster + "-worker2"
)

// the is that cluster.
var the *cluster

// whileCreated is what processes had among their arguments while it was made.
var whileCreated *arguments.Watch

// cluster is one made by `podium cluster create`.
type cluster struct {
	root       string // of the repository
	name       string
	kubeconfig string
}

func TestMain(m *testing.M) {
	code, err := withCluster(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "multinode:", err)
		code = 1
	}
	os.Exit(code)
}

// withCluster makes the shared cluster, runs the tests, deletes it, and finds
// what it left.
func withCluster(tests func() int) (code int, err error) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "podium-multinode-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	the = &cluster{root: root, name: mainCluster, kubeconfig: filepath.Join(dir, "kubeconfig")}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	whileCreated = arguments.Start()
	out, err := the.try(ctx, "", "cluster", "create", the.name, "--workers", "2", "--wait", "3m", "-v", "--retain")
	fmt.Println(out)
	if err != nil && strings.Contains(err.Error(), "already") {
		return 1, err // another run's, which is left alone
	}
	if err != nil {
		the.keepLogs(ctx)
		_, gone := the.try(ctx, "", "cluster", "delete", the.name)
		return 1, errors.Join(err, gone)
	}
	traces, err := the.traces(ctx)
	if err != nil {
		return 1, err
	}
	if code = tests(); code != 0 {
		the.keepLogs(ctx)
	}
	if _, err := the.try(ctx, "", "cluster", "delete", the.name); err != nil {
		return 1, err
	}
	return code, traces.left(ctx)
}

// keepLogs collects the nodes' logs where CI and people find them.
func (c *cluster) keepLogs(ctx context.Context) {
	target := filepath.Join(os.TempDir(), "podium-multinode-logs")
	os.RemoveAll(target)
	if _, err := c.try(ctx, "", "cluster", "logs", target, c.name); err != nil {
		fmt.Fprintln(os.Stderr, "multinode: some logs are missing:", err)
	}
	fmt.Fprintln(os.Stderr, "multinode: the nodes' logs are in", target)
}

// try runs podium on the cluster.
func (c *cluster) try(ctx context.Context, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(c.root, "bin", "podium"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("podium %s: %w\n%s%s", strings.Join(args, " "), err, out.Bytes(), errs.Bytes())
	}
	return out.String(), nil
}

// podium runs it, too; its failure is the test's.
func (c *cluster) podium(t *testing.T, args ...string) string {
	t.Helper()
	return c.feed(t, "", args...)
}

// feed gives podium something to read.
func (c *cluster) feed(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := c.try(t.Context(), stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// client speaks to the cluster as its administrator.
func (c *cluster) client(t *testing.T) *client.Client {
	t.Helper()
	config, err := kubeconfig.Load(c.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.Client("podium-" + c.name)
	if err != nil {
		t.Fatal(err)
	}
	api, err := client.New(scheme.New(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func docker(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// eventually asks until check passes or patience ends.
func eventually(t *testing.T, patience time.Duration, what string, check func(context.Context) error) {
	t.Helper()
	// Cleanups wait, too, when the test's own context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	begin := time.Now()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			t.Logf("%s after %v", what, time.Since(begin).Round(10*time.Millisecond))
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s: %v", patience, what, err)
		case <-tick.C:
		}
	}
}
