package docker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"podium/api/config/v1alpha1"
	"podium/pkg/client/kubeconfig"
)

// adminConf is the administrator's kubeconfig on a control plane.
const adminConf = "/etc/podium/admin.conf"

// Kubeconfig returns the administrator's kubeconfig for use on the host. It
// lists all control planes: Podium's own clients can use each of them, other
// clients use the first.
func (e *Engine) Kubeconfig(ctx context.Context, cluster string) (*kubeconfig.Config, error) {
	nodes, err := e.existing(ctx, cluster)
	if err != nil {
		return nil, err
	}
	var servers []string
	var admin []byte
	for _, n := range nodes {
		if n.Role != v1alpha1.ControlPlane {
			continue
		}
		server, err := e.server(ctx, n)
		if err != nil {
			return nil, err
		}
		servers = append(servers, server)
		if len(admin) == 0 {
			if admin, err = e.adminConf(ctx, n); err != nil {
				return nil, err
			}
		}
	}
	return hostConfig(cluster, admin, servers)
}

// adminConf reads the file from a container, which may be stopped.
func (e *Engine) adminConf(ctx context.Context, n NodeState) ([]byte, error) {
	var out bytes.Buffer
	err := e.run(ctx, nil, &out, "cp", n.Name+":"+adminConf, "-")
	if err != nil {
		return nil, fmt.Errorf("read the administrator's kubeconfig: %w", err)
	}
	return untar(&out)
}

// server returns the URL at which the host reaches a control plane's apiserver.
func (e *Engine) server(ctx context.Context, n NodeState) (string, error) {
	format := fmt.Sprintf(`{{with index .HostConfig.PortBindings "%d/tcp"}}{{(index . 0).HostIp}} {{(index . 0).HostPort}}{{end}}`, apiServerPort)
	out, err := e.output(ctx, "inspect", "--format", format, n.Name)
	if err != nil {
		return "", err
	}
	host, port, ok := strings.Cut(out, " ")
	if !ok {
		return "", fmt.Errorf("%s has no port for its apiserver on the host", n.Name)
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		if host, err = e.remote(ctx); err != nil {
			return "", err
		}
		host = cmp.Or(host, "127.0.0.1")
	}
	return "https://" + net.JoinHostPort(host, port), nil
}

// hostConfig returns the administrator's kubeconfig with other servers.
func hostConfig(cluster string, admin []byte, servers []string) (*kubeconfig.Config, error) {
	in, err := kubeconfig.Parse(admin, "")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", adminConf, err)
	}
	if len(in.Clusters) != 1 || len(in.Users) != 1 || len(servers) == 0 {
		return nil, fmt.Errorf("%s has %d clusters and %d users: want one of each", adminConf, len(in.Clusters), len(in.Users))
	}
	c := kubeconfig.Cluster{Server: servers[0], CertificateAuthorityData: in.Clusters[0].Value.CertificateAuthorityData}
	if len(servers) > 1 {
		c.SetServers(servers)
	}
	return kubeconfig.New(ContextName(cluster), c, in.Users[0].Value), nil
}

// kubeconfigFile returns the file that kubectl would write to.
func kubeconfigFile(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	paths := kubeconfig.DefaultPaths()
	if len(paths) == 0 {
		return "", errors.New("no place for a kubeconfig: this user has no home; name a file with --kubeconfig")
	}
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return paths[len(paths)-1], nil
}

// remember adds a cluster to a kubeconfig file, or replaces it there, and makes
// its context the current one.
func remember(file string, config *kubeconfig.Config) error {
	have, err := readKubeconfig(file)
	if err != nil {
		return err
	}
	without(have, config.CurrentContext)
	have.Merge(config)
	have.CurrentContext = config.CurrentContext
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return have.Write(file, 0o600)
}

// forget removes a cluster from a kubeconfig file. It does nothing if the file
// does not have it.
func forget(named, cluster string) error {
	file, err := kubeconfigFile(named)
	if err != nil {
		return nil // then Create could not write one, either
	}
	have, err := readKubeconfig(file)
	if err != nil || !without(have, ContextName(cluster)) {
		return err
	}
	return have.Write(file, 0o600)
}

// readKubeconfig parses a kubeconfig file and keeps relative paths as they are.
// A missing file is empty.
func readKubeconfig(file string) (*kubeconfig.Config, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &kubeconfig.Config{}, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := kubeconfig.Parse(data, "")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// without removes the cluster, user and context of that name and reports
// whether there were any.
func without(c *kubeconfig.Config, name string) bool {
	n := len(c.Clusters) + len(c.Users) + len(c.Contexts)
	c.Clusters = slices.DeleteFunc(c.Clusters, func(e kubeconfig.Named[kubeconfig.Cluster]) bool { return e.Name == name })
	c.Users = slices.DeleteFunc(c.Users, func(e kubeconfig.Named[kubeconfig.User]) bool { return e.Name == name })
	c.Contexts = slices.DeleteFunc(c.Contexts, func(e kubeconfig.Named[kubeconfig.Context]) bool { return e.Name == name })
	current := c.CurrentContext == name
	if current {
		c.CurrentContext = ""
	}
	return current || n != len(c.Clusters)+len(c.Users)+len(c.Contexts)
}
