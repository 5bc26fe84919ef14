package docked

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
)

// bin is the repository's folder of binaries, relative to the tests' folders.
const bin = "../../../bin"

// Cluster is a cluster created, or to be created, by `podium cluster create`.
type Cluster struct {
	Name       string
	Kubeconfig string // file that podium reads and writes
}

// New returns a cluster of that name with its kubeconfig in dir. It does not create it.
func New(name, dir string) *Cluster {
	return &Cluster{Name: name, Kubeconfig: filepath.Join(dir, "kubeconfig")}
}

// Run creates the cluster with these arguments of `podium cluster create`, calls tests and
// deletes the cluster. It keeps the logs if tests fail. If the cluster exists already, it
// belongs to another run: Run returns an error and does not touch it.
func (c *Cluster) Run(ctx context.Context, stdin string, args []string, tests func() (int, error)) (code int, err error) {
	out, err := c.Try(ctx, stdin, append([]string{"cluster", "create"}, args...)...)
	fmt.Println(out)
	if err != nil && strings.Contains(err.Error(), "already") {
		return 1, err
	}
	if err == nil {
		code, err = tests()
	}
	if err != nil || code != 0 {
		c.KeepLogs(ctx)
	}
	_, gone := c.Try(ctx, "", "cluster", "delete", c.Name)
	return code, errors.Join(err, gone)
}

// KeepLogs collects the nodes' logs in a place for CI and developers, and prints the place.
func (c *Cluster) KeepLogs(ctx context.Context) {
	target := filepath.Join(os.TempDir(), "podium-"+c.Name+"-logs")
	err := os.RemoveAll(target)
	if err == nil {
		_, err = c.Try(ctx, "", "cluster", "logs", target, c.Name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, c.Name+": some logs are missing:", err)
	}
	fmt.Fprintln(os.Stderr, c.Name+": the nodes' logs are in", target)
}

// Try runs podium on the cluster with stdin and returns its output; an error contains the
// output, too.
func (c *Cluster) Try(ctx context.Context, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "podium"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("podium %s: %w\n%s%s", strings.Join(args, " "), err, out.Bytes(), errs.Bytes())
	}
	return out.String(), nil
}

// Podium runs podium on the cluster. The test fails if podium fails.
func (c *Cluster) Podium(t *testing.T, args ...string) string {
	t.Helper()
	return c.Feed(t, "", args...)
}

// Feed is Podium with stdin.
func (c *Cluster) Feed(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := c.Try(t.Context(), stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Client returns a client with the administrator's credentials.
func (c *Cluster) Client(t *testing.T) *client.Client {
	t.Helper()
	api, _ := Client(t, c.Kubeconfig)
	return api
}

// Client returns a client for the current context of a kubeconfig; servers are its initial
// servers.
func Client(t *testing.T, file string) (api *client.Client, servers []string) {
	t.Helper()
	config, err := kubeconfig.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.Client("")
	if err != nil {
		t.Fatal(err)
	}
	api, err = client.New(scheme.New(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return api, cfg.Servers
}

// Docker runs docker and returns its output without the final newline.
func Docker(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// Eventually calls check until it succeeds or patience ends, and returns how long it took.
func Eventually(t *testing.T, patience time.Duration, what string, check func(context.Context) error) time.Duration {
	t.Helper()
	// Cleanups, too, call this after the test's own context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	begin := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last error // why it is not so, rather than that the time is over
	for {
		err := check(ctx)
		took := time.Since(begin)
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if err == nil {
			t.Logf("%s after %v", what, took.Round(10*time.Millisecond))
			return took
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s: %v", patience, what, last)
		case <-tick.C:
		}
	}
}
