package machine

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"golang.org/x/sys/unix"
)

// containerd's file and the drop-in that makes its unit read it: the file of
// Debian's package stays as it is, for whoever else uses containerd.
const (
	containerdFile   = "/etc/podium/containerd.toml"
	containerdDropIn = "/etc/systemd/system/containerd.service.d/podium.conf"
)

// containerdConfig is for both versions of the format: 2.x speaks version 3,
// where the CRI plugin is in two parts.
var containerdConfig = template.Must(template.New("config").Parse(`# Written by podium; read because of {{.DropIn}}.
version = {{if .V3}}3{{else}}2{{end}}

{{if .V3 -}}
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{{.Sandbox}}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = {{.RestrictOOM}}
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{{.CNI}}"]
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = {{.Systemd}}

[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
{{- else -}}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{{.Sandbox}}"
  restrict_oom_score_adj = {{.RestrictOOM}}
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{{.CNI}}"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = {{.Systemd}}
{{- end}}
`))

// runtime sets containerd up and loads the images that come with Podium. A
// runtime that the operator brings is left alone.
func (m *machine) runtime(ctx context.Context) error {
	if m.Runtime != "" {
		return nil
	}
	version, err := m.host.Run(ctx, "containerd", "--version")
	if err != nil {
		return err
	}
	restrict, err := lacksSysResource()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := containerdConfig.Execute(&text, map[string]any{
		"V3": isVersion2(version), "Sandbox": sandboxImage, "RestrictOOM": restrict, "CNI": m.cniPlugins(),
		"Systemd": m.CgroupDriver == "systemd", "DropIn": containerdDropIn,
	}); err != nil {
		return err
	}
	changed, err := writeFile(m.at(containerdFile), text.Bytes(), 0o644)
	if err != nil {
		return err
	}
	dropIn := "# Written by podium.\n[Service]\nExecStart=\nExecStart=/usr/bin/containerd --config " + containerdFile + "\n"
	changedUnit, err := writeFile(m.at(containerdDropIn), []byte(dropIn), 0o644)
	if err != nil {
		return err
	}
	service := []string{"containerd.service"}
	if !changed && !changedUnit {
		return m.startServices(ctx, service, nil)
	}
	if _, err := m.host.Run(ctx, "systemctl", "daemon-reload"); err != nil {
		return err
	}
	return m.startServices(ctx, service, service)
}

// images loads the archives that came with the package, unless the runtime
// has what is in them.
func (m *machine) images(ctx context.Context, waiting func(string)) error {
	if m.Runtime != "" {
		return nil
	}
	archives, err := filepath.Glob(m.at(imagesDir, "*.tar"))
	if err != nil {
		return err
	}
	var have string
	err = m.wait(ctx, waiting, func(ctx context.Context) (err error) {
		have, err = m.host.Run(ctx, "ctr", "-n", "k8s.io", "images", "ls", "-q")
		return err
	}, "containerd")
	if err != nil {
		return err
	}
	for _, archive := range archives {
		out, err := m.host.Run(ctx, "ctr", "-n", "k8s.io", "images", "import", archive)
		if err != nil {
			return err
		}
		have += out
	}
	if !slices.ContainsFunc(strings.Fields(have), func(w string) bool { return strings.HasPrefix(w, sandboxImage) }) {
		return fmt.Errorf("the image %s, in which every pod begins, is neither in containerd nor in %s: reinstall Podium's package", sandboxImage, imagesDir)
	}
	return nil
}

// cniPlugins finds the folder of the CNI plugins: the one that upstream
// installs to, then Debian's.
func (c *Config) cniPlugins() string {
	for _, dir := range []string{"/opt/cni/bin", "/usr/lib/cni"} {
		if _, err := os.Stat(c.at(dir, "ptp")); err == nil {
			return dir
		}
	}
	return ""
}

var majorVersion = regexp.MustCompile(`\bv?(\d+)\.\d+`)

func isVersion2(version string) bool {
	m := majorVersion.FindStringSubmatch(version)
	return m != nil && m[1] != "0" && m[1] != "1"
}

// lacksSysResource says whether this machine's root may not lower a process's
// oom_score_adj; runc then fails unless containerd leaves it alone.
func lacksSysResource() (bool, error) {
	has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0)
	if err != nil {
		return false, fmt.Errorf("read the capability bounding set: %w", err)
	}
	return has == 0, nil
}
