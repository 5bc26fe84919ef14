package docker

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// join makes the other nodes part of the cluster, as an operator would: with
// the commands that the first control plane prints. Workers join at once;
// control planes one after the other, since etcd takes one member at a time.
func (c *creation) join(ctx context.Context, waiting func(string)) error {
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return !n.controlPlane() })
	if i < 0 {
		i = len(c.nodes)
	}
	if err := c.joinPlanes(ctx, waiting, c.nodes[1:i]); err != nil {
		return err
	}
	return c.joinWorkers(ctx, waiting, c.nodes[i:])
}

func (c *creation) joinPlanes(ctx context.Context, waiting func(string), planes []*node) error {
	if len(planes) == 0 {
		return nil
	}
	command, err := c.printed(ctx, "certs", "upload")
	if err != nil {
		return err
	}
	for _, n := range planes {
		told := func(text string) { waiting(n.name + ": " + text) }
		args := slices.Concat(command, c.controlPlaneArgs(), nodeArgs(n))
		if err := c.podium(ctx, n, told, args...); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	return nil
}

func (c *creation) joinWorkers(ctx context.Context, waiting func(string), workers []*node) error {
	if len(workers) == 0 {
		return nil
	}
	command, err := c.printed(ctx, "token", "create", "--print-join-command")
	if err != nil {
		return err
	}
	return each(ctx, workers, func(ctx context.Context, n *node) error {
		return c.podium(ctx, n, waiting, slices.Concat(command, nodeArgs(n))...)
	})
}

// printed is the join command, without podium, that podium prints on the first
// control plane.
func (c *creation) printed(ctx context.Context, args ...string) ([]string, error) {
	command, err := c.Engine.output(ctx, append([]string{"exec", c.nodes[0].name, "podium"}, args...)...)
	if err != nil {
		return nil, err
	}
	words := strings.Fields(command)
	if len(words) < 2 || words[0] != "podium" || words[1] != "join" {
		return nil, fmt.Errorf("podium %s printed no join command", strings.Join(args, " "))
	}
	return words[1:], nil
}
