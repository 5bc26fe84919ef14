package docker

import (
	"context"
	"fmt"
	"strings"
)

// join makes the other nodes part of the cluster, as an operator would: with
// the command that the first control plane prints.
func (c *creation) join(ctx context.Context, waiting func(string)) error {
	command, err := c.Engine.output(ctx, "exec", c.nodes[0].name, "podium", "token", "create", "--print-join-command")
	if err != nil {
		return err
	}
	words := strings.Fields(command)
	if len(words) < 2 || words[0] != "podium" || words[1] != "join" {
		return fmt.Errorf("podium token create --print-join-command printed %q, which is no join command", command)
	}
	return each(ctx, c.nodes[1:], func(ctx context.Context, n *node) error {
		return c.podium(ctx, n, waiting, append(words[1:len(words):len(words)], nodeArgs(n)...)...)
	})
}
