package docker

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"

	"podium/api/config/v1alpha1"
)

// remote returns the name or address of the engine's machine, as given by
// docker's context or DOCKER_HOST, or "" if that is this machine.
func (e *Engine) remote(ctx context.Context) (string, error) {
	endpoint, err := e.endpoint(ctx)
	if err != nil {
		return "", err
	}
	return machineOf(endpoint)
}

// endpoint returns the URL of the engine.
func (e *Engine) endpoint(ctx context.Context) (string, error) {
	return e.output(ctx, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
}

// machineOf returns the host in an engine's URL, or "" for a socket or a
// loopback address.
func machineOf(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", fmt.Errorf("where the Docker engine is: %w", err)
	}
	switch u.Scheme {
	case "tcp", "ssh", "http", "https":
	default:
		return "", nil // a socket
	}
	if host := u.Hostname(); host != "" && !isLoopback(host) {
		return host, nil
	}
	return "", nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// findEngine records where the engine runs. If that is a remote machine, it
// returns an error unless the port of the apiserver will be reachable from
// here.
func (o *Options) findEngine(ctx context.Context) error {
	endpoint, err := o.Engine.endpoint(ctx)
	if err != nil {
		return err
	}
	if o.remote, err = machineOf(endpoint); err != nil {
		return err
	}
	if o.Cluster.CloudProvider == v1alpha1.CloudDocker {
		if o.socket, err = socketOf(endpoint); err != nil {
			return err
		}
	}
	if address := o.Cluster.Networking.APIServerAddress; o.remote != "" && isLoopback(address) {
		return fmt.Errorf("the engine is on %s, where the apiserver would be at %s, which cannot be reached from here\n    → choose networking.apiServerAddress: 0.0.0.0 in the cluster's file (--config), or run podium there", o.remote, address)
	}
	return nil
}
