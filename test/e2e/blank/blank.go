package blank

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podium/test/e2e/page"
)

// base is the Debian image that `make node-image` starts from: systemd and the package's
// dependencies, nothing of Podium.
const base = "localhost/podium/node-base"

// Image returns the id of the base image. It skips the test if there is none, or without root.
func Image(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may run node containers")
	}
	out, err := exec.Command("docker", "images", "--quiet", base).CombinedOutput()
	image, _, _ := strings.Cut(string(out), "\n")
	if err != nil || image == "" {
		t.Skipf("no node image (make node-image): %s", out)
	}
	return image
}

// Package returns the newest file that matches. It skips the test if there is none.
func Package(t *testing.T, glob, made string) string {
	t.Helper()
	found, err := filepath.Glob(glob)
	if err != nil || len(found) == 0 {
		t.Skipf("no package (%s)", made)
	}
	newest := found[0]
	for _, f := range found {
		if a, b := stat(t, f), stat(t, newest); a.ModTime().After(b.ModTime()) {
			newest = f
		}
	}
	return newest
}

func stat(t *testing.T, file string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// patience is the timeout of one script on a machine.
const patience = 4 * time.Minute

// container is a machine that behaves like a blank Debian with systemd.
type container string

// Network creates the network for the machines of a test.
func Network(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("podium-blank-%d", os.Getpid())
	Docker(t, "network", "create", name)
	t.Cleanup(func() { Docker(t, "network", "rm", name) })
	return name
}

// Boot starts a machine that has nothing of Podium except the node image's entrypoint.
func Boot(t *testing.T, image, network, name string) *page.Operator {
	t.Helper()
	c := container(fmt.Sprintf("podium-blank-%d-%s", os.Getpid(), name))
	Docker(t, "run", "--detach", "--name", string(c), "--hostname", name, "--network", network, "--network-alias", name,
		"--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined",
		"--security-opt", "systempaths=unconfined", "--device-cgroup-rule", "a *:* rwm", "--cgroupns=private",
		"--tmpfs", "/tmp:exec", "--tmpfs", "/run", "--tmpfs", "/run/lock", "--volume", "/var/lib",
		"--volume", absolute(t, "../../../deploy/docker/node/usr/lib/podium")+":/usr/lib/podium:ro",
		"--env", "container=docker", "--entrypoint", "/usr/lib/podium/node-entrypoint", image)
	o := &page.Operator{T: t, Machine: c, Name: name, Patience: patience}
	t.Cleanup(func() {
		if t.Failed() {
			_, _ = o.Try("journalctl -n 60 --no-pager -o short-monotonic") // it may be what failed
		}
		Docker(t, "rm", "--force", "--volumes", string(c))
	})
	o.Until(time.Minute, "systemctl is-system-running | grep -qE 'running|degraded'")
	return o
}

// Address returns a machine's address on the network.
func Address(t *testing.T, o *page.Operator) string {
	t.Helper()
	c := o.Machine.(container)
	return strings.TrimSpace(Docker(t, "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", string(c)))
}

// Docker runs docker.
func Docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Run implements page.Machine.
func (c container) Run(ctx context.Context, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", "exec", "-i", string(c), "bash", "-e", "-s")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Put implements page.Machine.
func (c container) Put(ctx context.Context, file, path string) error {
	if out, err := exec.CommandContext(ctx, "docker", "cp", file, string(c)+":"+path).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	full, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return full
}
