package machine

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"podium/pkg/cluster/containerd"
	"podium/pkg/cluster/files"
)

// containerd's configuration, and the drop-in that makes its unit read it. The
// file of Debian's package stays unchanged for other users of containerd.
const (
	containerdFile   = "/etc/podium/containerd.toml"
	containerdDropIn = "/etc/systemd/system/containerd.service.d/podium.conf"
)

// runtime configures containerd and starts it, or restarts it if the
// configuration changed. It does nothing if the operator provides a runtime.
func (m *machine) runtime(ctx context.Context) error {
	if m.Runtime != "" {
		return nil
	}
	version, err := m.host.Run(ctx, "containerd", "--version")
	if err != nil {
		return err
	}
	systemd := m.CgroupDriver == "systemd"
	text, err := containerd.Config{
		Version: version, Comment: "Written by podium; read because of " + containerdDropIn + ".",
		CNIBin: m.cniPlugins(), CNIConf: "/etc/cni/net.d", SystemdCgroup: &systemd,
	}.Render()
	if err != nil {
		return err
	}
	changed, err := files.Write(m.at(containerdFile), text, 0o644)
	if err != nil {
		return err
	}
	dropIn := "# Written by podium.\n[Service]\nExecStart=\nExecStart=/usr/bin/containerd --config " + containerdFile + "\n"
	changedUnit, err := files.Write(m.at(containerdDropIn), []byte(dropIn), 0o644)
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

// images waits for containerd and imports the image archives of the package. It
// returns an error if containerd then lacks the sandbox image. It does nothing
// if the operator provides a runtime.
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
	if !slices.ContainsFunc(strings.Fields(have), func(w string) bool { return strings.HasPrefix(w, containerd.SandboxImage) }) {
		return fmt.Errorf("the image %s, in which every pod begins, is neither in containerd nor in %s: reinstall Podium's package", containerd.SandboxImage, imagesDir)
	}
	return nil
}

// cniPlugins returns the directory of the CNI plugins, or "" if there is none.
func (c *Config) cniPlugins() string { return containerd.CNIPlugins(c.Root) }
