package docker

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// join makes the other nodes join with the commands that the first control
// plane prints. Workers join concurrently, control planes one after the other:
// etcd accepts one learner at a time.
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

// joinPlanes makes the control planes join, one after the other.
func (c *creation) joinPlanes(ctx context.Context, waiting func(string), planes []*node) error {
	if len(planes) == 0 {
		return nil
	}
	join, err := c.printed(ctx, "certs", "upload")
	if err != nil {
		return err
	}
	for _, n := range planes {
		told := func(text string) { waiting(n.name + ": " + text) }
		if err := join.on(ctx, c, n, told, slices.Concat(c.controlPlaneArgs(), c.nodeArgs(n))); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	return nil
}

// joinWorkers makes the workers join concurrently.
func (c *creation) joinWorkers(ctx context.Context, waiting func(string), workers []*node) error {
	if len(workers) == 0 {
		return nil
	}
	join, err := c.printed(ctx, "token", "create", "--print-join-command")
	if err != nil {
		return err
	}
	return each(ctx, workers, func(ctx context.Context, n *node) error { return join.on(ctx, c, n, waiting, c.nodeArgs(n)) })
}

// joinCommand is a join command that podium printed. Its secrets are passed on
// standard input: every user of the host can read a command's arguments.
type joinCommand struct {
	secrets string
	words   []string // arguments of podium
}

func (j joinCommand) on(ctx context.Context, c *creation, n *node, waiting func(string), more []string) error {
	return c.podiumReading(ctx, n, strings.NewReader(j.secrets), waiting, slices.Concat(j.words, more)...)
}

// printed runs a podium command on the first control plane and parses the join
// command that it prints.
func (c *creation) printed(ctx context.Context, args ...string) (joinCommand, error) {
	line, err := c.Engine.output(ctx, append([]string{"exec", c.nodes[0].name, "podium"}, args...)...)
	if err != nil {
		return joinCommand{}, err
	}
	echo, join, _ := strings.Cut(line, " | ")
	secrets, echoes := strings.CutPrefix(echo, "echo ")
	words := strings.Fields(join)
	if !echoes || len(words) < 2 || words[0] != "podium" || words[1] != "join" {
		return joinCommand{}, fmt.Errorf("podium %s printed no join command", strings.Join(args, " "))
	}
	return joinCommand{secrets: secrets, words: words[1:]}, nil
}
