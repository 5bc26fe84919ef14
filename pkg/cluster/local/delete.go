package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"podium/pkg/cluster/cleanup"
	"podium/pkg/cluster/poll"
	"podium/pkg/cluster/progress"
)

// Delete stops the cluster and removes everything it left on this machine. It
// returns nil if there is no cluster in cfg.Dir, and can be repeated after a
// failure. It never deletes a directory without the marker of Create.
func Delete(ctx context.Context, cfg Config) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	if _, err := readMarker(cfg.Dir); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(cfg.Out, "   no cluster in %s\n", cfg.Dir)
		return nil
	} else if err != nil {
		return err
	}
	steps := progress.Start(cfg.Out)
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"daemons stopped", cfg.stopDaemons},
		{"pods removed", cfg.removePods},
		{"containerd stopped", cfg.stopContainerd},
		{"network removed", cfg.removeNetwork},
		{"mounts, cgroups and files removed", cfg.removeFiles},
	} {
		err := steps.Do(ctx, step.name, func(ctx context.Context, _ func(string)) error { return step.run(ctx) })
		if err != nil {
			return err
		}
	}
	steps.Total("cluster " + cfg.Name + " is gone")
	return nil
}

// stopDaemons stops the daemons in reverse start order, so that each stops
// before those that it depends on.
func (c *Config) stopDaemons(ctx context.Context) error {
	daemons := c.daemons()
	for i := len(daemons) - 1; i >= 0; i-- {
		if err := c.stop(ctx, daemons[i].name); err != nil {
			return err
		}
	}
	return nil
}

// removePods removes every sandbox of our containerd. It starts containerd
// again if that does not run: containers survive it.
func (c *Config) removePods(ctx context.Context) error {
	if _, err := os.Stat(c.path("containerd")); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	p, err := c.containerdProcess(ctx)
	if err != nil {
		return err
	}
	if err := c.start(ctx, p); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := poll.Until(wait, 50*time.Millisecond, c.containerdAnswers); err != nil {
		return err
	}
	return cleanup.RemovePods(ctx, c.containerdSocket())
}

func (c *Config) stopContainerd(ctx context.Context) error {
	return errors.Join(c.stop(ctx, "containerd"), cleanup.EndShims(ctx, c.containerdSocket()))
}

// removeNetwork runs kube-proxy --cleanup, which removes its rules, the bridge
// and the CNI configuration.
func (c *Config) removeNetwork(ctx context.Context) error {
	binary := filepath.Join(c.Bin, "kube-proxy")
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("find kube-proxy, which cleans up its rules: %w (build it: make build)", err)
	}
	args := append([]string{"--cleanup"}, c.networkFlags()...)
	if out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("kube-proxy --cleanup: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// removeFiles detaches the mounts in our directories, removes our cgroups, and
// then the directories.
func (c *Config) removeFiles(ctx context.Context) error {
	for _, dir := range []string{c.Dir, c.runDir()} {
		if err := cleanup.UnmountBelow(dir); err != nil {
			return err
		}
	}
	if err := cleanup.RemoveCgroups(ctx, c.id()); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(c.Dir), os.RemoveAll(c.runDir()))
}
