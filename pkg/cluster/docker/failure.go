package docker

import (
	"context"
	"fmt"
	"strings"
)

// Stop ends a node: by systemd in good order, or at once, as by a power cut.
func (e *Engine) Stop(ctx context.Context, name string, now bool) error {
	n, err := e.node(ctx, name)
	switch {
	case err != nil || n.State == "exited":
		return err
	case now:
		_, err = e.output(ctx, "kill", name)
	default:
		_, err = e.output(ctx, "stop", "--time", "30", name)
	}
	return err
}

// Start brings a node back that was stopped or paused.
func (e *Engine) Start(ctx context.Context, name string) error {
	n, err := e.node(ctx, name)
	switch {
	case err != nil || n.State == "running":
		return err
	case n.State == "paused":
		_, err = e.output(ctx, "unpause", name)
	default:
		_, err = e.output(ctx, "start", name)
	}
	return err
}

// Pause freezes every process of a node: it keeps what it holds, and is silent.
func (e *Engine) Pause(ctx context.Context, name string) error {
	n, err := e.node(ctx, name)
	if err != nil || n.State == "paused" {
		return err
	}
	_, err = e.output(ctx, "pause", name)
	return err
}

// cut are the rules that keep a node's packets from leaving it and others'
// from reaching it, whoever they are for. The tables are not the proxy's.
var cut = []string{
	"PREROUTING -i eth0 -m comment --comment podium-partition -j DROP",
	"POSTROUTING -o eth0 -m comment --comment podium-partition -j DROP",
}

// Partition cuts a node off from all others and from the host: what runs on it
// goes on. A node that is stopped meanwhile comes back healed.
func (e *Engine) Partition(ctx context.Context, name string) error {
	return e.onRunning(ctx, name, cutScript("-I", "! "))
}

// Heal lets a partitioned node speak again.
func (e *Engine) Heal(ctx context.Context, name string) error {
	return e.onRunning(ctx, name, cutScript("-D", ""))
}

// cutScript changes each rule if it is there, or, negated, if it is not.
func cutScript(verb, negate string) string {
	var script strings.Builder
	script.WriteString("set -e\n")
	for _, rule := range cut {
		for _, program := range []string{"iptables", "ip6tables"} {
			fmt.Fprintf(&script, "if %s%s -w -t mangle -C %s 2>/dev/null; then %[2]s -w -t mangle %[4]s %[3]s; fi\n", negate, program, rule, verb)
		}
	}
	return script.String()
}

func (e *Engine) onRunning(ctx context.Context, name, script string) error {
	n, err := e.node(ctx, name)
	if err != nil {
		return err
	}
	if n.State != "running" {
		return fmt.Errorf("node %s is %s: start it first (podium cluster node start %[1]s)", name, n.State)
	}
	_, err = e.output(ctx, "exec", name, "sh", "-c", script)
	return err
}
