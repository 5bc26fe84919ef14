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

// facts are the shell commands to run on each node, by output file. None prints
// a secret.
var facts = map[string]string{
	"journal.log":    "journalctl --no-pager --output short-iso-precise",
	"units.txt":      "systemctl --no-pager --full status --lines 0 --all; systemctl --no-pager list-units --failed; systemd-analyze blame --no-pager",
	"network.txt":    "ip address; ip route show table all; ip neighbour; ss -tanup 2>/dev/null || true; cat /etc/resolv.conf",
	"iptables.txt":   "iptables-save -c; ip6tables-save -c",
	"containers.txt": "ctr --namespace k8s.io containers list; ctr --namespace k8s.io tasks list; ctr --namespace k8s.io images list",
	"machine.txt":    "date -u; uptime; free -m; df -h; mount; ps -eo pid,ppid,rss,etime,args --forest; dmesg 2>/dev/null | tail -n 200",
}

// objects are the podium commands to run for the cluster, by output file.
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

// Logs writes what explains a failure to dir: journal, units, network and
// container logs of each node, and the cluster's objects. For a stopped node it
// writes what the engine has. It continues after an error, and returns all
// errors joined.
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
	_ = g.Wait() // the errors are in errs
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

// clusterLogs runs the commands of objects on the first running control plane.
// It does nothing if none runs.
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

// into runs a docker command and writes its output to file.
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

// copyOut copies a directory of a node below dir. It returns nil if the node
// does not have it.
func (e *Engine) copyOut(ctx context.Context, name, folder, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	r, w := io.Pipe()
	var g errgroup.Group
	g.Go(func() error {
		err := e.run(ctx, nil, w, "cp", name+":"+folder, "-")
		w.CloseWithError(err)
		return nil // unpack returns it
	})
	err := unpack(r, dir)
	r.CloseWithError(err)
	_ = g.Wait()
	var failed *CommandError
	if errors.As(err, &failed) {
		return nil // the directory does not exist: no pod has run there
	}
	return err
}
