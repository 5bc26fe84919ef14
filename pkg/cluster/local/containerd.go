package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
	"time"

	"golang.org/x/sys/unix"
)

// containerdConfig is containerd's configuration for our cluster: nothing
// shared with another containerd of the host. 2.x speaks version 3 of the
// format, where the CRI plugin is in two parts.
var containerdConfig = template.Must(template.New("config").Parse(`version = {{if .V3}}3{{else}}2{{end}}
root = "{{.Root}}"
state = "{{.State}}"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]

[grpc]
  address = "{{.Socket}}"

{{if .V3 -}}
[plugins."io.containerd.cri.v1.images"]
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{{.Sandbox}}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = {{.RestrictOOM}}
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{{.CNIBin}}"]
    conf_dir = "{{.CNIConf}}"

[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
{{- else -}}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{{.Sandbox}}"
  restrict_oom_score_adj = {{.RestrictOOM}}
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{{.CNIBin}}"
    conf_dir = "{{.CNIConf}}"
{{- end}}
`))

func (c *Config) containerdProcess(ctx context.Context) (process, error) {
	binary, err := exec.LookPath("containerd")
	if err != nil {
		return process{}, fmt.Errorf("containerd is not installed (Debian: apt-get install containerd): %w", err)
	}
	out, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return process{}, fmt.Errorf("ask containerd for its version: %w", err)
	}
	cniBin, err := cniPlugins()
	if err != nil {
		return process{}, err
	}
	restrict, err := lacksSysResource()
	if err != nil {
		return process{}, err
	}
	var text bytes.Buffer
	err = containerdConfig.Execute(&text, map[string]any{
		"V3": isVersion2(string(out)), "Root": c.path("containerd"), "State": filepath.Join(c.runDir(), "containerd"),
		"Socket": c.containerdSocket(), "Sandbox": sandboxImage, "RestrictOOM": restrict,
		"CNIBin": cniBin, "CNIConf": c.cniConf(),
	})
	if err != nil {
		return process{}, err
	}
	file := c.path("containerd.toml")
	if err := writeFile(file, text.Bytes(), 0o644); err != nil {
		return process{}, err
	}
	if err := os.MkdirAll(c.runDir(), 0o711); err != nil {
		return process{}, err
	}
	return process{name: "containerd", args: []string{binary, "--config", file, "--log-level", "warn"}}, nil
}

func (c *Config) cniConf() string { return c.path("cni") }

var majorVersion = regexp.MustCompile(`\bv?(\d+)\.\d+`)

func isVersion2(version string) bool {
	m := majorVersion.FindStringSubmatch(version)
	return m != nil && m[1] != "0" && m[1] != "1"
}

// cniPlugins finds the folder of the CNI plugins: the one that upstream
// installs to, then Debian's.
func cniPlugins() (string, error) {
	for _, dir := range []string{"/opt/cni/bin", "/usr/lib/cni"} {
		if _, err := os.Stat(filepath.Join(dir, "ptp")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no CNI plugins in /opt/cni/bin or /usr/lib/cni (Debian: apt-get install containernetworking-plugins)")
}

// lacksSysResource says whether this host's root may not lower a process's
// oom_score_adj; runc then fails unless containerd leaves it alone.
func lacksSysResource() (bool, error) {
	has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0)
	if err != nil {
		return false, fmt.Errorf("read the capability bounding set: %w", err)
	}
	return has == 0, nil
}

// containerdAnswers dials the socket.
func (c *Config) containerdAnswers(context.Context) error {
	conn, err := net.DialTimeout("unix", c.containerdSocket(), time.Second)
	if err != nil {
		return fmt.Errorf("containerd does not answer: %w; its log: %s", err, c.logFile("containerd"))
	}
	return conn.Close()
}

// loadImages imports archives that this containerd has not seen yet.
func (c *Config) loadImages(ctx context.Context) error {
	for _, archive := range c.Images {
		print, err := fingerprint(archive)
		if err != nil {
			return fmt.Errorf("find image archive: %w (build it: make images)", err)
		}
		stamp := c.path("containerd", "loaded-"+filepath.Base(archive))
		if seen, err := os.ReadFile(stamp); err == nil && string(seen) == print {
			continue
		}
		if err := c.ctr(ctx, "images", "import", archive); err != nil {
			return err
		}
		if err := writeFile(stamp, []byte(print), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) ctr(ctx context.Context, args ...string) error {
	args = append([]string{"--address", c.containerdSocket(), "--namespace", "k8s.io"}, args...)
	out, err := exec.CommandContext(ctx, "ctr", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ctr %s: %w: %s", strings.Join(args[4:], " "), err, bytes.TrimSpace(out))
	}
	return nil
}
