package kubeconfig

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"

	"podium/pkg/client"
)

// Follow keeps a daemon's list of servers as its cluster has it, until ctx
// ends, and writes it into the daemon's kubeconfig: started again while the
// server that the file names is down, it knows the others.
func Follow(ctx context.Context, c *client.Client, path string, log *slog.Logger) error {
	c.FollowServers(ctx, func(servers []string) {
		log.Info("the cluster's servers", "servers", servers)
		if path == "" {
			return // a pod's, whose Service address is of all servers
		}
		if err := setServers(path, servers); err != nil {
			log.Warn("the servers were not written down", "kubeconfig", path, "error", err)
		}
	})
	return nil
}

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

// SetServers names more servers of the cluster, for podium's own clients.
func (c *Cluster) SetServers(servers []string) {
	text, err := json.Marshal(map[string][]string{"servers": servers})
	if err != nil {
		panic(err) // strings always encode
	}
	c.Extensions = slices.DeleteFunc(slices.Clone(c.Extensions), func(e Extension) bool { return e.Name == ServersExtension })
	c.Extensions = append(c.Extensions, Extension{Name: ServersExtension, Extension: text})
}
