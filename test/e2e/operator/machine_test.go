package operator

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// base is the Debian that `make node-image` starts from: systemd and what the
// package depends on, nothing of Podium.
const base = "localhost/podium/node-base"

// needs skips the test where there is no Docker engine, no image or no package.
func needs(t *testing.T) (image, deb string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may run node containers")
	}
	out, err := exec.Command("docker", "images", "--quiet", base).CombinedOutput()
	if image, _, _ = strings.Cut(string(out), "\n"); err != nil || image == "" {
		t.Skipf("no node image (make node-image): %s", out)
	}
	found, err := filepath.Glob("../../../_deb/*.deb")
	if err != nil || len(found) == 0 {
		t.Skip("no package (make deb)")
	}
	newest := found[0]
	for _, f := range found {
		if a, b := stat(t, f), stat(t, newest); a.ModTime().After(b.ModTime()) {
			newest = f
		}
	}
	return image, newest
}

func stat(t *testing.T, file string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// machine is a container that behaves as a blank Debian with systemd.
type machine struct {
	*testing.T
	name string
}

// network joins the machines of a test.
func network(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("podium-operator-%d", os.Getpid())
	docker(t, "network", "create", name)
	t.Cleanup(func() { docker(t, "network", "rm", name) })
	return name
}

// boot starts a machine without anything of Podium on it but what makes a
// container one: the entrypoint.
func boot(t *testing.T, image, network, name string) *machine {
	t.Helper()
	m := &machine{T: t, name: fmt.Sprintf("podium-operator-%d-%s", os.Getpid(), name)}
	docker(t, "run", "--detach", "--name", m.name, "--hostname", name, "--network", network, "--network-alias", name,
		"--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined",
		"--security-opt", "systempaths=unconfined", "--device-cgroup-rule", "a *:* rwm", "--cgroupns=private",
		"--tmpfs", "/tmp:exec", "--tmpfs", "/run", "--tmpfs", "/run/lock", "--volume", "/var/lib",
		"--volume", abs(t, "../../../deploy/docker/node/usr/lib/podium")+":/usr/lib/podium:ro",
		"--env", "container=docker", "--entrypoint", "/usr/lib/podium/node-entrypoint", image)
	t.Cleanup(func() {
		if t.Failed() {
			m.try("journalctl -n 60 --no-pager -o short-monotonic")
		}
		docker(t, "rm", "--force", "--volumes", m.name)
	})
	m.until(time.Minute, "systemctl is-system-running | grep -qE 'running|degraded'")
	return m
}

func docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// never is for what must not succeed: bash -e passes over "! command".
const never = "never() { if bash -c \"$*\"; then echo \"must not be: $*\"; exit 1; fi; }\n"

// try runs a script as an operator's shell would, and shows it.
func (m *machine) try(script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", "exec", "-i", m.name, "bash", "-e", "-s")
	cmd.Stdin = strings.NewReader(never + script)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	m.Logf("%s$ %s\n%s", m.name, strings.TrimSpace(script), out.String())
	return out.String(), err
}

func (m *machine) run(script string) string {
	m.Helper()
	out, err := m.try(script)
	if err != nil {
		m.Fatalf("%v", err)
	}
	return out
}

// refused runs a script that must fail and say each of the parts.
func (m *machine) refused(script string, parts ...string) {
	m.Helper()
	out, err := m.try(script)
	if err == nil {
		m.Fatalf("%s: it was done", script)
	}
	for _, part := range parts {
		if !strings.Contains(out, part) {
			m.Errorf("%s: the complaint does not say %q", script, part)
		}
	}
}

// until repeats a script until it succeeds.
func (m *machine) until(patience time.Duration, script string) {
	m.Helper()
	deadline := time.Now().Add(patience)
	for {
		out, err := exec.Command("docker", "exec", m.name, "bash", "-c", script).CombinedOutput()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			m.Fatalf("%s: %v\n%s", script, err, out)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (m *machine) put(file, path string) {
	m.Helper()
	docker(m.T, "cp", file, m.name+":"+path)
}
