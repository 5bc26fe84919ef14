package cloud

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/scheme"
)

// The shared cluster: a control plane and two workers.
const (
	clusterName = "e2e-cloud"
	plane       = clusterName + "-control-plane"
	worker1     = clusterName + "-worker"
	worker2     = clusterName + "-worker2"
)

const config = `
apiVersion: config.podium.dev/v1alpha1
kind: Cluster
metadata: {name: ` + clusterName + `}
cloudProvider: docker
nodes: [{role: control-plane}, {role: worker, zone: east}, {role: worker, zone: west}]
`

// the is that cluster.
var the *cluster

type cluster struct{ root, kubeconfig string }

func TestMain(m *testing.M) {
	code, err := withCluster(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cloud:", err)
		code = 1
	}
	os.Exit(code)
}

func withCluster(tests func() int) (code int, err error) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "podium-cloud-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	the = &cluster{root: root, kubeconfig: filepath.Join(dir, "kubeconfig")}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	out, err := the.try(ctx, config, "cluster", "create", "--config", "-", "--wait", "3m", "--retain")
	fmt.Println(out)
	if err != nil && strings.Contains(err.Error(), "already") {
		return 1, err // another run's, which is left alone
	}
	if err == nil {
		code = tests()
	}
	if err != nil || code != 0 {
		the.keepLogs(ctx)
	}
	_, gone := the.try(ctx, "", "cluster", "delete", clusterName)
	return code, errors.Join(err, gone)
}

// keepLogs collects the nodes' logs where CI and people find them.
func (c *cluster) keepLogs(ctx context.Context) {
	target := filepath.Join(os.TempDir(), "podium-cloud-logs")
	os.RemoveAll(target)
	if _, err := c.try(ctx, "", "cluster", "logs", target, clusterName); err != nil {
		fmt.Fprintln(os.Stderr, "cloud: some logs are missing:", err)
	}
	fmt.Fprintln(os.Stderr, "cloud: the nodes' logs are in", target)
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
	out, err := c.try(t.Context(), "", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (c *cluster) apply(t *testing.T, manifest string) {
	t.Helper()
	if _, err := c.try(t.Context(), manifest, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// client speaks to the cluster as its administrator.
func (c *cluster) client(t *testing.T) *client.Client {
	t.Helper()
	config, err := kubeconfig.Load(c.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.Client("podium-" + clusterName)
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

// get asks a web server on port 80, each time on a new connection.
func get(ctx context.Context, host, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, "80")+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return strings.TrimSpace(string(text)), err
}
