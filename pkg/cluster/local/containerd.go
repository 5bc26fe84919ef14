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
	"strings"
	"time"

	"podium/pkg/cluster/containerd"
	"podium/pkg/cluster/files"
)

// containerdProcess writes containerd's configuration and returns its process.
// It does not start it.
func (c *Config) containerdProcess(ctx context.Context) (process, error) {
	binary, err := exec.LookPath("containerd")
	if err != nil {
		return process{}, fmt.Errorf("containerd is not installed (Debian: apt-get install containerd): %w", err)
	}
	out, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return process{}, fmt.Errorf("get containerd's version: %w", err)
	}
	plugins := containerd.CNIPlugins("")
	if plugins == "" {
		return process{}, errors.New("no CNI plugins in /opt/cni/bin or /usr/lib/cni (Debian: apt-get install containernetworking-plugins)")
	}
	text, err := containerd.Config{
		Version: string(out), Root: c.path("containerd"), State: filepath.Join(c.runDir(), "containerd"),
		Socket: c.containerdSocket(), CNIBin: plugins, CNIConf: c.cniConf(),
	}.Render()
	if err != nil {
		return process{}, err
	}
	file := c.path("containerd.toml")
	if _, err := files.Write(file, text, 0o644); err != nil {
		return process{}, err
	}
	if err := os.MkdirAll(c.runDir(), 0o711); err != nil {
		return process{}, err
	}
	return process{name: "containerd", args: []string{binary, "--config", file, "--log-level", "warn"}}, nil
}

func (c *Config) cniConf() string { return c.path("cni") }

// containerdAnswers returns nil if containerd accepts connections.
func (c *Config) containerdAnswers(context.Context) error {
	conn, err := net.DialTimeout("unix", c.containerdSocket(), time.Second)
	if err != nil {
		return fmt.Errorf("containerd does not answer: %w; its log: %s", err, c.logFile("containerd"))
	}
	return conn.Close()
}

// loadImages imports the archives that changed since containerd imported them.
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
		if _, err := files.Write(stamp, []byte(print), 0o644); err != nil {
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
