package docker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"podium/pkg/backoff"
)

// Stop stops a node and waits until it has: through systemd (killed after 30
// seconds), or with now at once, like a power failure. It does nothing if the
// node is stopped.
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

// Start starts a stopped node, or resumes a paused one. It does not wait until
// the node is Ready.
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

// With cgroups v1, the runtime gives up freezing processes that start others
// meanwhile ("unable to freeze"), and leaves them running. Pause then asks again.
const (
	freezeTries  = 20
	freezePeriod = 250 * time.Millisecond
)

// Pause freezes every process of a node: it stays in the cluster but does not
// respond.
func (e *Engine) Pause(ctx context.Context, name string) error {
	n, err := e.node(ctx, name)
	if err != nil || n.State == "paused" {
		return err
	}
	for try := 1; ; try++ {
		_, err := e.output(ctx, "pause", name)
		if err == nil || try == freezeTries || !strings.Contains(err.Error(), "unable to freeze") {
			return err
		}
		if err := backoff.Sleep(ctx, freezePeriod); err != nil {
			return err
		}
	}
}

// cut are the iptables rules that drop all packets that leave the node or reach
// it, forwarded ones included. They are in the mangle table, which kube-proxy
// does not use.
var cut = []string{
	"PREROUTING -i eth0 -m comment --comment podium-partition -j DROP",
	"POSTROUTING -o eth0 -m comment --comment podium-partition -j DROP",
}

// Partition cuts a running node off from all others and from the host. Its
// processes continue. A restart of the node ends the partition.
func (e *Engine) Partition(ctx context.Context, name string) error {
	return e.onRunning(ctx, name, cutScript("-I", "! "))
}

// Heal ends the partition of a running node.
func (e *Engine) Heal(ctx context.Context, name string) error {
	return e.onRunning(ctx, name, cutScript("-D", ""))
}

// cutScript returns a shell script that applies verb to each rule if the rule
// exists or, with negate, if it does not.
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

// onRunning runs a shell script on a node, and returns an error if the node
// does not run.
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
