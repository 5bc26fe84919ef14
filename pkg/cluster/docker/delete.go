package docker

import (
	"context"
	"errors"
	"io"

	"podium/pkg/cluster/progress"
)

// Delete removes a cluster: its containers, volumes and network, and its entry
// in the kubeconfig. It skips what does not exist, and returns nil for an
// unknown cluster.
func Delete(ctx context.Context, engine Engine, cluster, kubeconfigFile string, out io.Writer) error {
	steps := progress.Start(out)
	nodes, err := engine.nodes(ctx, cluster)
	if err != nil {
		return err
	}
	plain := func(f func(context.Context) error) func(context.Context, func(string)) error {
		return func(ctx context.Context, _ func(string)) error { return f(ctx) }
	}
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"containers and volumes removed", func(ctx context.Context) error { return engine.removeNodes(ctx, nodes, cluster) }},
		{"network removed", func(ctx context.Context) error { return engine.removeNetworks(ctx, cluster) }},
		{"kubeconfig cleared", func(context.Context) error { return forget(kubeconfigFile, cluster) }},
	} {
		if err := steps.Do(ctx, step.name, plain(step.run)); err != nil {
			return err
		}
	}
	steps.Total("cluster " + cluster + " is gone")
	return nil
}

// removeNodes kills and removes the containers and their volumes.
func (e *Engine) removeNodes(ctx context.Context, nodes []NodeState, cluster string) error {
	var errs []error
	if len(nodes) > 0 {
		args := []string{"rm", "--force", "--volumes"}
		for _, n := range nodes {
			if n.State == "paused" { // a paused process cannot be killed
				_, err := e.output(ctx, "unpause", n.Name)
				errs = append(errs, err)
			}
			args = append(args, n.Name)
		}
		_, err := e.output(ctx, args...)
		errs = append(errs, err)
	}
	volumes, err := e.lines(ctx, "volume", "ls", "--quiet", "--filter", "label="+labelled(cluster))
	if err == nil && len(volumes) > 0 {
		_, err = e.output(ctx, append([]string{"volume", "rm", "--force"}, volumes...)...)
	}
	return errors.Join(append(errs, err)...)
}

func (e *Engine) removeNetworks(ctx context.Context, cluster string) error {
	networks, err := e.lines(ctx, "network", "ls", "--quiet", "--filter", "label="+labelled(cluster))
	if err == nil && len(networks) > 0 {
		_, err = e.output(ctx, append([]string{"network", "rm"}, networks...)...)
	}
	return err
}
