// Package containerd generates containerd's configuration for a node, and
// detects the properties of the machine that it depends on.
package containerd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"text/template"

	"golang.org/x/sys/unix"
)

// SandboxImage is the image of every pod's sandbox.
const SandboxImage = "localhost/podium/pause:v1"

// Config holds the variable parts of containerd's configuration. Empty strings
// mean containerd's defaults.
type Config struct {
	Version string // output of containerd --version
	Comment string // the first line, without "# "
	CNIBin  string // directory of the CNI plugins
	CNIConf string // directory of the CNI configuration

	// SystemdCgroup selects whether runc uses systemd's cgroups; nil: runc's
	// default.
	SystemdCgroup *bool

	// Directories and socket of a containerd that runs in addition to the
	// host's.
	Root, State, Socket string
}

// config supports both versions of the format: containerd 2.x reads version 3,
// in which the CRI plugin has two parts.
var config = template.Must(template.New("config").Parse(`{{with .Comment}}# {{.}}
{{end}}version = {{if .V3}}3{{else}}2{{end}}
{{if .Root -}}
root = "{{.Root}}"
state = "{{.State}}"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]

[grpc]
  address = "{{.Socket}}"
{{end}}
{{if .V3 -}}
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{{.Sandbox}}"

[plugins."io.containerd.cri.v1.runtime"]
{{- else -}}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{{.Sandbox}}"
{{- end}}
  restrict_oom_score_adj = {{.RestrictOOM}}
{{- if .Root}}
  netns_mounts_under_state_dir = true
{{- end}}
{{- if not .V3}}
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
{{- end}}
  [plugins."{{.Runtime}}".cni]
    {{if .V3}}bin_dirs = ["{{.CNIBin}}"]{{else}}bin_dir = "{{.CNIBin}}"{{end}}
    conf_dir = "{{.CNIConf}}"
{{- with .SystemdCgroup}}
  [plugins."{{$.Runtime}}".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."{{$.Runtime}}".containerd.runtimes.runc.options]
      SystemdCgroup = {{.}}
{{- end}}
{{- if .V3}}

[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
{{- end}}
`))

// Render returns the content of the configuration file.
func (c Config) Render() ([]byte, error) {
	restrict, err := lacksSysResource()
	if err != nil {
		return nil, err
	}
	v3, runtime := isVersion2(c.Version), "io.containerd.grpc.v1.cri"
	if v3 {
		runtime = "io.containerd.cri.v1.runtime"
	}
	var text bytes.Buffer
	err = config.Execute(&text, struct {
		Config
		V3, RestrictOOM  bool
		Sandbox, Runtime string
	}{c, v3, restrict, SandboxImage, runtime})
	return text.Bytes(), err
}

var majorVersion = regexp.MustCompile(`\bv?(\d+)\.\d+`)

// isVersion2 reports whether a version is 2.0 or later.
func isVersion2(version string) bool {
	m := majorVersion.FindStringSubmatch(version)
	return m != nil && m[1] != "0" && m[1] != "1"
}

// CNIPlugins returns the directory of the CNI plugins on the machine whose root
// directory is root: upstream's, or else Debian's. It returns "" if neither has
// them.
func CNIPlugins(root string) string {
	for _, dir := range []string{"/opt/cni/bin", "/usr/lib/cni"} {
		if _, err := os.Stat(filepath.Join("/", root, dir, "ptp")); err == nil {
			return dir
		}
	}
	return ""
}

// lacksSysResource reports whether root on this machine cannot lower a
// process's oom_score_adj. runc then fails unless containerd is configured to
// restrict it.
func lacksSysResource() (bool, error) {
	has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0)
	if err != nil {
		return false, fmt.Errorf("read the capability bounding set: %w", err)
	}
	return has == 0, nil
}
