package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

// facts are what is asked of each node, by file. A secret is in none of them.
var facts = map[string]string{
	"journal.log":    "journalctl --no-pager --output short-iso-precise",
	"units.txt":      "systemctl --no-pager --full status --lines 0 --all; systemctl --no-pager list-units --failed; systemd-analyze blame --no-pager",
	"network.txt":    "ip address; ip route show table all; ip neighbour; ss -tanup 2>/dev/null || true; cat /etc/resolv.conf",
	"iptables.txt":   "iptables-save -c; ip6tables-save -c",
	"containers.txt": "ctr --namespace k8s.io containers list; ctr --namespace k8s.io tasks list; ctr --namespace k8s.io images list",
	"machine.txt":    "date -u; uptime; free -m; df -h; mount; ps -eo pid,ppid,rss,etime,args --forest; dmesg 2>/dev/null | tail -n 200",
}

// objects are what is asked of the cluster.
var objects = map[string]string{
	"nodes.yaml":     "get nodes -o yaml",
	"pods.yaml":      "get pods --all-namespaces -o yaml",
	"pods.txt":       "get pods --all-namespaces -o wide",
	"services.yaml":  "get services --all-namespaces -o yaml",
	"endpoints.yaml": "get endpointslices --all-namespaces -o yaml",
	"workloads.yaml": "get deployments,replicasets --all-namespaces -o yaml",
	"events.txt":     "get events --all-namespaces",
	"leases.yaml":    "get leases --all-namespaces -o yaml",
}

// Logs collects what explains a failed run into a folder: of each node the
// journal, the units, the network and the containers' logs, and the cluster's
// objects. Nodes that do not run give what the engine knows. All that can be
// had is had; the errors come together.
func (e *Engine) Logs(ctx context.Context, cluster, dir string) error {
	nodes, err := e.existing(ctx, cluster)
	if err != nil {
		return err
	}
	var g errgroup.Group
	errs := make([]error, len(nodes)+1)
	for i, n := range nodes {
		g.Go(func() error {
			if errs[i] = e.nodeLogs(ctx, n, filepath.Join(dir, n.Name)); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", n.Name, errs[i])
			}
			return nil
		})
	}
	g.Go(func() error {
		errs[len(nodes)] = e.clusterLogs(ctx, nodes, filepath.Join(dir, "cluster"))
		return nil
	})
	_ = g.Wait() // each has its own place for an error
	return errors.Join(append(errs, e.into(ctx, filepath.Join(dir, "engine.txt"), "info"))...)
}

func (e *Engine) nodeLogs(ctx context.Context, n NodeState, dir string) error {
	errs := []error{
		e.into(ctx, filepath.Join(dir, "inspect.json"), "inspect", n.Name),
		e.into(ctx, filepath.Join(dir, "console.log"), "logs", n.Name),
	}
	if n.State != "running" {
		return errors.Join(append(errs, e.copyOut(ctx, n.Name, "/var/log/journal", filepath.Join(dir, "journal")))...)
	}
	for file, script := range facts {
		errs = append(errs, e.into(ctx, filepath.Join(dir, file), "exec", n.Name, "sh", "-c", "{ "+script+"; } 2>&1; true"))
	}
	return errors.Join(append(errs, e.copyOut(ctx, n.Name, "/var/log/pods", dir))...)
}

// clusterLogs asks on the first control plane that runs.
func (e *Engine) clusterLogs(ctx context.Context, nodes []NodeState, dir string) error {
	for _, n := range nodes {
		if n.State != "running" || n.Role != "control-plane" {
			continue
		}
		var errs []error
		for file, command := range objects {
			errs = append(errs, e.into(ctx, filepath.Join(dir, file), "exec", n.Name, "sh", "-c", "podium --request-timeout=10s --kubeconfig "+adminConf+" "+command+" 2>&1; true"))
		}
		return errors.Join(errs...)
	}
	return nil
}

// into writes a command's output to a file.
func (e *Engine) into(ctx context.Context, file string, args ...string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(e.run(ctx, nil, f, args...), f.Close())
}

// copyOut brings a folder of a node, if it has it, below dir.
func (e *Engine) copyOut(ctx context.Context, name, folder, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	r, w := io.Pipe()
	var g errgroup.Group
	g.Go(func() error {
		err := e.run(ctx, nil, w, "cp", name+":"+folder, "-")
		w.CloseWithError(err)
		return nil // the reader has it
	})
	err := unpack(r, dir)
	r.CloseWithError(err)
	_ = g.Wait()
	var failed *CommandError
	if errors.As(err, &failed) {
		return nil // no pod has run there
	}
	return err
}
