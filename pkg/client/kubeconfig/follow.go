package kubeconfig

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"

	"podium/pkg/client"
)

// Follow keeps c's list of servers in step with the cluster's until ctx ends, and
// writes it into the daemon's kubeconfig at path, so that a daemon that restarts while
// its configured server is down can use the others. With an empty path it writes no
// file. It always returns nil.
func Follow(ctx context.Context, c *client.Client, path string, log *slog.Logger) error {
	c.FollowServers(ctx, func(servers []string) {
		log.Info("API servers changed", "servers", servers)
		if path == "" {
			return // in a pod: the Service address leads to all servers
		}
		if err := setServers(path, servers); err != nil {
			log.Warn("write API servers to kubeconfig failed", "kubeconfig", path, "error", err)
		}
	})
	return nil
}

// setServers writes the servers into the current cluster of the kubeconfig at path.
func setServers(path string, servers []string) error {
	config, err := Load(path)
	if err != nil {
		return err
	}
	ctx := config.Context(config.CurrentContext)
	if ctx == nil {
		return fmt.Errorf("kubeconfig %s: no current context", path)
	}
	cluster := config.Cluster(ctx.Cluster)
	if cluster == nil {
		return fmt.Errorf("kubeconfig %s: no cluster %q", path, ctx.Cluster)
	}
	cluster.SetServers(servers)
	return config.Write(path, 0o600)
}

// SetServers stores the cluster's other servers in ServersExtension.
func (c *Cluster) SetServers(servers []string) {
	text, err := json.Marshal(map[string][]string{"servers": servers})
	if err != nil {
		panic(err) // strings always encode
	}
	c.Extensions = slices.DeleteFunc(slices.Clone(c.Extensions), func(e Extension) bool { return e.Name == ServersExtension })
	c.Extensions = append(c.Extensions, Extension{Name: ServersExtension, Extension: text})
}
